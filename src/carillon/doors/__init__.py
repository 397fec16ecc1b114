"""Doors: one folder for each transport by which intents arrive."""
