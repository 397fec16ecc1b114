"""Builds the program from its settings; the only place that knows every room."""

from carillon.compose.ledger import open_ledger
from carillon.compose.part import Role
from carillon.compose.program import Program
from carillon.ledger.opening import Ledger

__all__ = ["Ledger", "Program", "Role", "open_ledger"]
