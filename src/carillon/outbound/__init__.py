"""Room 4: a worker claims routes, calls providers and settles the outcomes."""
