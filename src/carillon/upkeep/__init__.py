"""Someone looks after it: logs, metrics, retention."""
