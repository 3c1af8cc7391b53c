#!/usr/bin/env bash
# Check gpuvigil on a machine with an NVIDIA GPU: `make gpu-check`, or, with the binaries already built in bin/,
#
#	scripts/gpu-check.sh [DIRECTORY FOR THE RESULTS]
#
# It only reads: no setting is changed, no Xid is forced, and GPM is never called by two at once. It runs the agent
# beside nvidia-smi and compares them field by field, puts a load on the first GPU if python3 has PyTorch with CUDA,
# asks NVML what only hardware can tell (gpu-check-nvml.py), keeps a recording, and measures what the agent costs the
# work on the GPU (gpu-step-time.sh). At most 8 minutes.
#
# Its parts have been tested without a GPU, against recorded output and a fake driver. On a GPU, nobody has run it yet.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${GPU_CHECK_BIN:-$here/../bin}
port=${GPU_CHECK_PORT:-19836}
# The rest of the eight minutes is for starting and for slow drivers.
compare_for=${GPU_CHECK_FOR:-3m}
record_for=${GPU_CHECK_RECORD_FOR:-30s}

if ! command -v nvidia-smi >/dev/null || ! timeout 30 nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
	echo "no GPU here, nothing checked"
	exit 0
fi
for program in gpuvigil gpucheck; do
	[ -x "$bin/$program" ] || { echo "$bin/$program is not built: run make gpu-check, or build it first" >&2; exit 2; }
done
if [ "${GPU_CHECK_LIMITED:-}" != 1 ]; then
	GPU_CHECK_LIMITED=1 exec timeout --kill-after=10 470 "${BASH_SOURCE[0]}" "$@"
fi

out=${1:-gpu-check-$(date +%Y%m%dT%H%M%S)}
mkdir -p "$out"
out=$(cd "$out" && pwd)
state=$(mktemp -d) # a short path, because it holds a socket
started=()
finish() {
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$state"
}
trap finish EXIT
# Ended by the time limit, the trap must still run.
trap 'exit 124' TERM INT

failed=0
run() { # NAME COMMAND...: keep what it says; a failure does not end the other checks
	local name=$1
	shift
	echo "== $name"
	if ! "$@" >"$out/$name.txt" 2>&1; then
		echo "== $name failed: $out/$name.txt"
		failed=1
	fi
}

run nvidia-smi-q timeout 60 nvidia-smi -q
run doctor timeout 60 "$bin/gpuvigil" doctor --state.dir="$state"

# What only hardware can tell, before the agent runs and without GPM.
if command -v python3 >/dev/null; then
	run nvml timeout 60 python3 "$here/gpu-check-nvml.py"
else
	echo "== nvml: no python3, not asked"
fi

printf 'sampling: {fast: 1s, slow: 1s, inventory: 10s}\n' >"$out/gpuvigil.yml"
"$bin/gpuvigil" run --config.file="$out/gpuvigil.yml" --web.listen-address="127.0.0.1:$port" --state.dir="$state" >"$out/agent.txt" 2>&1 &
agent=$!
started+=("$agent")

if command -v python3 >/dev/null && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	python3 "$here/gpu-check-load.py" >"$out/load.txt" 2>&1 &
	load=$!
	started+=("$load")
else
	load=
	echo "== load: no PyTorch with CUDA, compared without a load"
fi

echo "== compare: the agent beside nvidia-smi for $compare_for"
mkdir -p "$out/compared"
run compare "$bin/gpucheck" -url "http://127.0.0.1:$port/metrics" -out "$out/compared" -for "$compare_for"
cat "$out/compare.txt"
if [ -n "$load" ]; then
	kill "$load" || { echo "== the load ended before it was told to: $out/load.txt"; failed=1; }
	wait "$load" || true # it was told to end, and says so
fi
kill "$agent" || true # one that is gone has said why, and its status follows
wait "$agent" || { echo "== the agent ended with $?: $out/agent.txt"; failed=1; }
started=()

run record "$bin/gpuvigil" record --output="$out/recording.frames" --for="$record_for"
run step-time "$here/gpu-step-time.sh" "$out"
cat "$out/step-time.txt"
echo "== everything is in $out"
exit "$failed"
