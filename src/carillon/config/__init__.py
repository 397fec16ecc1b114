"""The settings: their sections and checks, and the reading of files and the environment."""
