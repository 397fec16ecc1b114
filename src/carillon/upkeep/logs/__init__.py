"""Log lines: made, redacted, written."""
