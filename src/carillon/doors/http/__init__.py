"""The HTTP door: one request becomes one intent."""
