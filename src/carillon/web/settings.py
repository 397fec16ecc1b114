"""The limits of the HTTP surface, and how callers prove who they are."""

import msgspec

from carillon.domain.keys import KeyFinder
from carillon.domain.ports import Observer
from carillon.web.auth import JwtSettings
from carillon.web.tickets import Tickets


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the HTTP surface, and how callers prove who they are; None sets no limit."""

    body_limit: int = 262_144
    body_seconds: float = 10.0
    max_in_flight: int = 1000
    requests_per_second: float | None = None
    """For each caller that a token names, or for each address where no tokens are used."""
    requests_burst: float = 200.0
    key_requests_per_second: float | None = None
    """For each API key, with the same burst."""
    anonymous_requests_per_second: float | None = None
    """For each address, for requests without the credentials that are required; the burst is twice as large."""
    auth_failures_per_minute: float | None = None
    """For each address; beyond it 429. A valid token is never refused for this reason."""
    jwt: JwtSettings | None = None
    keys: KeyFinder | None = None
    """Looks API keys up; works with and without tokens."""
    tickets: Tickets | None = None
    """Set where tickets open streams."""
    observe: Observer = lambda _: None
    """Receives an event for every refused token."""
    people_reach_tenant: bool = True
    """True: a person's token reaches everybody's notifications of the tenant, where an endpoint is shared."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names served beside loopback; if it is empty and credentials are required, every name is served."""
    docs: bool = True
    """Serves /docs and /openapi.json; where credentials are required, /openapi.json requires them too."""
    title: str = "Carillon"
    version: str = "0"

    @property
    def asks(self) -> bool:
        """Whether credentials are required."""
        return self.jwt is not None or self.keys is not None
