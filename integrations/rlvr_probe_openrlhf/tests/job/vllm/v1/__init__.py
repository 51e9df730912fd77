"""See ``vllm``."""
