"""The flight recorder of RL post-training."""
