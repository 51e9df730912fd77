"""See ``flash_attn``."""
