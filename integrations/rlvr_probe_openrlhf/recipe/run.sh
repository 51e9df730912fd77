#!/usr/bin/env bash
# Train a tiny model with OpenRLHF without a GPU, record it, and turn the recording into a workload.
# Works from any directory; arguments go to recipe/job.py, for example: --agent --ranks 2 --engines 2
set -euo pipefail

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$recipe/../../.."

[ -x .venv/bin/rlvr-probe ] || { echo >&2 "run.sh: .venv is missing; 'make demo' makes it"; exit 1; }

heading() { printf '\n== %s\n' "$*"; }

heading "train with OpenRLHF, unmodified, and record every process"
rm -rf demo-out/openrlhf
mkdir -p demo-out
recording=$(.venv/bin/python integrations/rlvr_probe_openrlhf/recipe/job.py --out demo-out/openrlhf "$@")

heading "what was recorded"
.venv/bin/rlvr-probe show "$recording"

heading "as a PolyTrace workload"
.venv/bin/rlvr-probe convert "$recording" --to polytrace --out demo-out/openrlhf/workload --force
.venv/bin/rlvr-probe validate demo-out/openrlhf/workload
