"""The HTTP API of operators and people."""
