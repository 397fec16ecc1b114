"""What a caller may want to react to: it was refused, or nobody answered."""

from typing import Any

from carillon.domain.errors import CarillonError


class Rejected(CarillonError):
    """Carillon answered and will not do it; asking again the same way is of no use."""

    def __init__(self, status: int, code: str, message: str, problem: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        """The stable word, e.g. `TEMPLATE_NOT_FOUND`."""
        self.problem = problem
        """The whole problem document."""


class Unreachable(CarillonError):
    """No usable answer came, in all the time there was; what was asked may have been done.

    Sending again with the same `idempotency_key` is safe: it is accepted once.
    """

    def __init__(self, message: str, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
