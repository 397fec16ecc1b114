"""The console: its pages and the data they show."""
