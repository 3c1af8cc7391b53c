"""Time many small steps on the first GPU, in blocks with the agent and without it, for e2e/steptime.

gpu-step-time.py STEPS.csv URL COMMAND...: the command starts the agent, the URL is that of its metrics. The order of
the blocks is on, off, off, on, on, off …: a GPU that becomes warmer lengthens both kinds alike. It only reads from the
driver, as the agent does.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request

import torch

PAIRS = int(os.environ.get("STEP_TIME_PAIRS", "12"))
BLOCK = float(os.environ.get("STEP_TIME_BLOCK", "4"))  # seconds
STEPS = 500  # of a block, at the least, or its 99th percentile is a guess
SETTLE = float(os.environ.get("STEP_TIME_SETTLE", "3"))  # seconds: what an agent does once at its start is no cost per step
KERNELS = 100  # of a step, each of some microseconds: nothing hides what stands in the way of a launch
SEEN = "vigil_gpu_temperature_celsius{"  # on the page, the agent reads the GPU
PATIENCE = 60  # seconds for that


def start(url, command):
    agent = subprocess.Popen(command, stdout=sys.stderr)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if agent.poll() is not None:
            sys.exit(f"the agent ended with {agent.returncode} instead of reading the GPU")
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                if SEEN in page.read().decode():
                    time.sleep(SETTLE)
                    return agent
        except OSError:
            pass  # it does not listen yet
        time.sleep(0.1)
    stop(agent)
    sys.exit(f"the agent has read no GPU for {PATIENCE} s; its log says why")


def stop(agent):
    agent.send_signal(signal.SIGTERM)
    if agent.wait(timeout=30) != 0:
        sys.exit(f"the agent ended with {agent.returncode}")


def steps(x, seconds):
    times = []
    end = time.perf_counter() + seconds
    torch.cuda.synchronize()
    while True:
        begin = time.perf_counter()
        if begin > end and len(times) >= STEPS:
            return times
        for _ in range(KERNELS):
            x.add_(1)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)


def main():
    path, url, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU: install a PyTorch with CUDA that fits this driver")
    x = torch.zeros(1024, device="cuda:0")
    steps(x, BLOCK)  # so that the first block finds all warm
    agent = None
    try:
        with open(path, "w") as out:
            print("pair,agent,seconds", file=out)
            for pair in range(PAIRS):
                for on in (True, False) if pair % 2 == 0 else (False, True):
                    if on and agent is None:
                        agent = start(url, command)
                    if not on and agent is not None:
                        stop(agent)
                        agent = None
                    for seconds in steps(x, BLOCK):
                        print(f"{pair},{'on' if on else 'off'},{seconds:.9f}", file=out)
    finally:
        if agent is not None and agent.poll() is None:
            stop(agent)


main()
