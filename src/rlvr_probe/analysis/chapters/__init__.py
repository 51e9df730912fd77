"""Chapters: what a run says of lengths, slots, imbalance, rewards, tools, data and devices."""
