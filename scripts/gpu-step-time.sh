#!/usr/bin/env bash
# Measure what the agent costs the work on a GPU: `make gpu-step-time`, or, with the binaries already built in bin/,
#
#	scripts/gpu-step-time.sh [DIRECTORY FOR THE RESULTS]
#
# Times a loop of small kernels on the first GPU, in blocks with the agent and without it by turns, and says by how much
# the median and the 99th percentile differ, with an interval. It only reads. Some two and a half minutes.
#
# Its parts have been tested without a GPU. On a GPU, nobody has run it yet.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${GPU_CHECK_BIN:-$here/../bin}
port=${GPU_CHECK_PORT:-19836}

if ! command -v nvidia-smi >/dev/null || ! timeout 30 nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
	echo "no GPU here, no step time measured"
	exit 0
fi
if ! command -v python3 >/dev/null || ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	echo "python3 has no PyTorch that sees the GPU, no step time measured"
	exit 0
fi
for program in gpuvigil steptime; do
	[ -x "$bin/$program" ] || { echo "$bin/$program is not built: run make gpu-step-time, or build it first" >&2; exit 2; }
done

out=${1:-gpu-step-time-$(date +%Y%m%dT%H%M%S)}
mkdir -p "$out"
state=$(mktemp -d) # a short path, because it holds a socket
trap 'rm -rf "$state"' EXIT

# The limit leaves the rest of the eight minutes to gpu-check.sh. Ended by it, the loop ends the agent.
timeout --foreground --signal=INT --kill-after=20 200 python3 "$here/gpu-step-time.py" "$out/steps.csv" "http://127.0.0.1:$port/metrics" \
	"$bin/gpuvigil" run --web.listen-address="127.0.0.1:$port" --state.dir="$state" 2>"$out/step-agent.txt" ||
	{ echo "the steps were not all timed: $out/step-agent.txt" >&2; exit 2; }
"$bin/steptime" "$out/steps.csv"
