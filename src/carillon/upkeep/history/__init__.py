"""Copies of ended notifications for later analysis."""
