"""One suite per port, run over every implementation."""
