"""The limits of the HTTP surface and who may use it."""

import msgspec

from carillon.domain.keys import KeyFinder
from carillon.domain.ports import Observer
from carillon.web.auth import JwtSettings
from carillon.web.tickets import Tickets


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the HTTP surface and who may use it; a limit of None is none."""

    body_limit: int = 262_144
    body_seconds: float = 10.0
    max_in_flight: int = 1000
    requests_per_second: float | None = None
    """Per token's caller, or per address without tokens."""
    requests_burst: float = 200.0
    key_requests_per_second: float | None = None
    """Per API key, with the same burst."""
    anonymous_requests_per_second: float | None = None
    """Per address, of those who show nothing although everybody is asked; twice as many at once."""
    auth_failures_per_minute: float | None = None
    """Per address, 429 beyond it; a valid token is never held back by this."""
    jwt: JwtSettings | None = None
    keys: KeyFinder | None = None
    """Where API keys are found; with or without tokens."""
    tickets: Tickets | None = None
    """Where streams are opened by tickets."""
    observe: Observer = lambda _: None
    """Who is told of refused tokens."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names served beside loopback; empty where callers are asked who they are serves every name."""
    docs: bool = True
    """Serves /docs and /openapi.json, the latter to those who may call where callers are asked who they are."""
    title: str = "Carillon"
    version: str = "0"

    @property
    def asks(self) -> bool:
        """Whether callers are asked who they are."""
        return self.jwt is not None or self.keys is not None
