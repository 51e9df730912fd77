"""A run that goes on: its journals are read on as they grow, and each row is looked at once."""
