"""Outbound: workers claim routes, call providers and settle the outcomes."""
