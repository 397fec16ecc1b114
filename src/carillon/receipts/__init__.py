"""Receipts: vendors' callbacks, and the suppressions that they cause."""
