"""Pure values and pure decisions, without I/O, clock or randomness."""
