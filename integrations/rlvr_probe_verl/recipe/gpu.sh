#!/usr/bin/env bash
# Record verl's own GSM8K example on one GPU: two steps of GRPO. Needs an environment with verl, vLLM and
# rlvr-probe, and DATA, a folder with the train.parquet and test.parquet that verl's script
# examples/data_preprocess/gsm8k.py writes. Further arguments go to verl.
set -euo pipefail

: "${DATA:?a folder with train.parquet and test.parquet of GSM8K}"
: "${MODEL:=Qwen/Qwen2.5-0.5B-Instruct}"

rlvr-probe run -- python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/train.parquet" \
    data.val_files="$DATA/test.parquet" \
    data.train_batch_size=64 \
    data.max_prompt_length=512 \
    data.max_response_length=512 \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \
    trainer.n_gpus_per_node=1 \
    trainer.nnodes=1 \
    trainer.logger='["console"]' \
    trainer.val_before_train=False \
    trainer.save_freq=-1 \
    trainer.total_training_steps=2 \
    "$@"
