"""Where accepted notifications are written down, wait, and are looked after."""
