"""No breakers: for work whose retries are all there is."""

from carillon.domain.breaker import Admission, State


class NoBreakers:
    """Satisfies Breakers: every call is let through."""

    async def admit(self, provider: str) -> Admission:  # noqa: ARG002 - whoever it is
        return Admission.GO

    async def record(self, provider: str, *, ok: bool) -> None:
        """Nothing is remembered."""

    async def states(self) -> dict[str, State]:
        return {}
