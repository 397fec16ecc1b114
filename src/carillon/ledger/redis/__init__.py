"""Backlogs and leases in Redis."""
