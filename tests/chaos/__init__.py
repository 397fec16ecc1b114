"""Processes, signals and cut connections: invariants, not examples."""
