"""What a trace, or its tables, tell beyond what was recorded in any one place."""
