"""The one place that knows every room: it builds the program from its settings and decides nothing."""

from carillon.compose.parts import Ledger, open_ledger
from carillon.compose.program import Program, Role

__all__ = ["Ledger", "Program", "Role", "open_ledger"]
