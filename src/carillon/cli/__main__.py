"""`python -m carillon.cli` is the carillon command."""

from carillon.cli import main

main()
