"""Hostile input for every parser, door and endpoint: `make fuzz` runs it for long, `make test` a short slice of it."""
