"""Put the first GPU under load and let it rest, in turns of 20 s, until it is ended.

Says how many bytes were copied to the GPU in each turn, to be held against vigil_gpu_pcie_bytes_total.
"""

import time

import torch

TURN = 20  # seconds
side = 4096
a = torch.randn(side, side, device="cuda:0")
host = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
device = torch.empty_like(host, device="cuda:0")
while True:
    turn, copied = time.monotonic() + TURN, 0
    began = time.time()
    while time.monotonic() < turn:
        b = a
        for _ in range(50):
            b = torch.nn.functional.normalize(b @ a)
        device.copy_(host, non_blocking=True)
        copied += host.numel()
        torch.cuda.synchronize()
    print(f"{began:.1f} to {time.time():.1f}: {copied} bytes copied to the GPU", flush=True)
    time.sleep(TURN)
