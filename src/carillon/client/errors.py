"""The two errors of the client: Carillon refused, or did not answer."""

from typing import Any

from carillon.domain.errors import CarillonError


class Rejected(CarillonError):
    """Carillon refused the request; sending it again unchanged does not help."""

    def __init__(self, status: int, code: str, message: str, problem: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        """The stable word, e.g. `TEMPLATE_NOT_FOUND`."""
        self.problem = problem
        """The whole problem document."""


class Unreachable(CarillonError):
    """No usable answer came in time; Carillon may have accepted the request all the same.

    Sending again with the same `idempotency_key` is safe: it is accepted once.
    """

    def __init__(self, message: str, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key
