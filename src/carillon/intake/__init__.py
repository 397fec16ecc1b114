"""Room 2: an intent is accepted."""
