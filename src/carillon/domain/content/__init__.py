"""What messages carry beside their text, and to whom."""
