#!/usr/bin/env bash
# Train a tiny model with TRL, record it, turn the recording into a workload and a report: `make demo`.
# With --replay first, the recording is then replayed and compared: `make demo ARGS=--replay`.
# Works from any directory; other arguments go to the training script (recipe/grpo.py --help).
set -euo pipefail

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$recipe/../../.." && pwd)
cd "$root"

probe=.venv/bin/rlvr-probe
[ -x "$probe" ] || { echo >&2 "run.sh: $probe is missing; 'make demo' makes it"; exit 1; }

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false CUDA_VISIBLE_DEVICES=
# Deprecations inside transformers, not ours to mend.
export PYTHONWARNINGS=ignore

replay=
if [ "${1:-}" = --replay ]; then replay=yes; shift; fi

heading() { printf '\n== %s\n' "$*"; }

heading "train with TRL, unmodified, and record it"
"$probe" run --out demo-out/runs -- .venv/bin/python "${recipe#"$root"/}/grpo.py" "$@"

heading "what was recorded"
"$probe" show demo-out/runs

heading "as a PolyTrace workload"
"$probe" convert demo-out/runs --to polytrace --out demo-out/workload --force
"$probe" validate demo-out/workload

heading "where the GPU time went, and why"
"$probe" characterize demo-out/runs --html demo-out/report.html
echo "in a browser: demo-out/report.html"

if [ -n "$replay" ]; then
    heading "replayed, and how like it is"
    "$probe" replay demo-out/runs --out demo-out/replays -- .venv/bin/python "${recipe#"$root"/}/grpo.py" "$@"
fi

heading "try next"
cat <<NEXT
  $probe show demo-out/runs --json
  $probe run -- python your_training_script.py
NEXT
