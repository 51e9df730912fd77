"""Data types of recordings, traces and workloads, and every name in them."""
