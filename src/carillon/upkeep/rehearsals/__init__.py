"""Rehearsals: what can be asked of one, what it answers, and the child process that plays it for the console."""
