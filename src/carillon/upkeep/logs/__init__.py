"""Log lines: formatting, redaction and writing."""
