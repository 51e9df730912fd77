"""How a plan reaches a collector: encoded, in batches, once."""
