"""The store of accepted notifications, in which they wait for delivery."""
