"""The page on which a person chooses, and what one click there does."""
