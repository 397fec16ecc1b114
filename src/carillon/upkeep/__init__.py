"""Upkeep: API, console, health, logs, metrics, history and retention."""
