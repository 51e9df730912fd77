"""What goes out of a run: traces and metrics, as plain data."""
