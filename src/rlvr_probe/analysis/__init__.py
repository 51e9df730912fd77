"""What follows from a trace or its tables: ledger, metrics, causes, what a run is stuck on."""
