#!/usr/bin/env bash
# Train a tiny model with verl without a GPU, record it, and turn the recording into a workload.
# Works from any directory; arguments go to recipe/job.py, for example: --verl 0.5.0 --ranks 2
set -euo pipefail

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$recipe/../../.."

[ -x .venv/bin/rlvr-probe ] || { echo >&2 "run.sh: .venv is missing; 'make demo' makes it"; exit 1; }

heading() { printf '\n== %s\n' "$*"; }

heading "train with verl, unmodified, and record every process"
rm -rf demo-out/verl
mkdir -p demo-out
recording=$(.venv/bin/python integrations/rlvr_probe_verl/recipe/job.py --out demo-out/verl "$@")

heading "what was recorded"
.venv/bin/rlvr-probe show "$recording"

heading "as a PolyTrace workload"
.venv/bin/rlvr-probe convert "$recording" --to polytrace --out demo-out/verl/workload --force
.venv/bin/rlvr-probe validate demo-out/verl/workload
