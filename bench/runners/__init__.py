"""Programs that the parts start as processes of their own, so that each has an interpreter to itself."""
