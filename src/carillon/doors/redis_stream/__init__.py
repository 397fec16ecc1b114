"""The Redis stream door: one entry becomes one intent."""
