#!/usr/bin/env bash
# Record a Ray job of a driver, two actors and a task, in the Python named by PYTHON, which has Ray and rlvr-probe.
# Works from any directory; arguments go to `rlvr-probe run`.
set -euo pipefail

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import ray, rlvr_probe' || { echo >&2 "run.sh: $python lacks Ray or rlvr-probe; name another one: \
PYTHON=... run.sh"; exit 1; }

runs=${RUNS:-demo-out/ray}
"$python" -m rlvr_probe.cli run --out "$runs" "$@" -- "$python" "$recipe/job.py"
"$python" -m rlvr_probe.cli show "$runs"
