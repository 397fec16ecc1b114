"""The Redis Stream door: one entry becomes one intent."""
