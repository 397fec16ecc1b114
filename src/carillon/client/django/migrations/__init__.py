"""Migrations of the one table."""
