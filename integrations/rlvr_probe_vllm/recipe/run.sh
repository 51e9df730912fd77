#!/usr/bin/env bash
# Record an offline vLLM engine that answers a few prompts, in the Python named by PYTHON, which has vLLM and rlvr-probe.
# Works from any directory, with a GPU that vLLM supports; MODEL is a small model; arguments go to `rlvr-probe run`.
set -euo pipefail

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import vllm, rlvr_probe' || { echo >&2 "run.sh: $python lacks vLLM or rlvr-probe; name another one: \
PYTHON=... run.sh"; exit 1; }

runs=${RUNS:-demo-out/vllm}
"$python" -m rlvr_probe.cli run --out "$runs" "$@" -- "$python" "$recipe/answer.py" "${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}"
"$python" -m rlvr_probe.cli show "$runs"
