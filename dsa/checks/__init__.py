"""Machine to diagnostics and verdicts."""
