"""The house rules, executable."""
