"""What operators may set: sections, their checks, and how files and the environment are read."""
