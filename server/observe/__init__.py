"""What an operator sees: logs, metrics, traces, and the journal of requests."""
