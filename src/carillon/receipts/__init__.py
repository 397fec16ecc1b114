"""The world answers: vendors' callbacks, and the addresses they make us leave alone."""
