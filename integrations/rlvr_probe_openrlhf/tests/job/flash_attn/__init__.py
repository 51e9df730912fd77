"""Stands for flash-attn, which needs an accelerator: what OpenRLHF imports of it by name."""
