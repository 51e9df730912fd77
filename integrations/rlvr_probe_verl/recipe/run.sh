#!/bin/sh
# The smallest real run: verl's own trainer with the arguments given, recorded in every process.
set -eu
exec rlvr-probe run -- python -m verl.trainer.main_ppo "$@"
