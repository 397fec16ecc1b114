"""The declaration of an endpoint: the one place that says what it takes, gives and is called."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.web.about import UNDECLARED, About, Callers
from carillon.web.body import RawBody
from carillon.web.request import Reply, Request

Call = Callable[[Request], Awaitable[Reply]]


class Header(msgspec.Struct, frozen=True):
    """A header an endpoint reads or answers with."""

    name: str
    description: str
    pattern: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer an endpoint can give on success."""

    status: int
    description: str
    kind: Any = None
    """The wire type of the body; None for no body."""
    example: Any = None
    headers: tuple[Header, ...] = ()
    media_type: str = "application/json"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    """May hold `{name}` for one segment."""
    call: Call
    name: str
    """The operation's id in OpenAPI."""
    summary: str
    answers: tuple[Answer, ...]
    tag: str = "Notifications"
    description: str = ""
    body: Any = None
    """The wire type of a JSON body; the web room reads it before the handler runs."""
    body_optional: bool = False
    """True: a request without a body is one with an empty object."""
    raw: RawBody | None = None
    """A body that the handler wants as bytes, instead of `body`."""
    body_examples: dict[str, Any] = {}
    query: type[msgspec.Struct] | None = None
    headers: tuple[Header, ...] = ()
    path_examples: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    """Codes this endpoint answers with beyond those its shape implies."""
    about: About = UNDECLARED
    """Who may call and whose data it touches; an endpoint without it does not start."""
    override: bool = False
    """True changes deliveries by hand: the caller must say `X-Admin-Override: true`."""
    always: bool = False
    """True answers even when the bound on requests in flight is reached."""
    by_address: bool = False
    """True limits how often one address may ask an endpoint that serves everybody."""
    ticket: Literal["no", "opens", "shows"] = "no"
    """Whether a stream's ticket is enough: `opens` uses the ticket up, `shows` names its holder afterwards."""
    hidden: bool = False
    """True keeps it out of the OpenAPI document."""

    def __post_init__(self) -> None:
        """Refuse a declaration that the guard could not enforce."""
        about, called = self.about, f"{self.method} {self.path} ({self.name})"
        if about.callers is Callers.UNDECLARED:
            raise ConfigurationError(f"the endpoint {called} does not declare what it is about: give it about=")
        if not about.asks and (about.person or about.tenant or about.owned or self.ticket != "no"):
            raise ConfigurationError(f"the endpoint {called} names people or tenants, but asks nobody who they are")
        places = [*about.person, *([] if about.tenant is None else [about.tenant])]
        params = [place.name for place in places if place.part == "path"]
        params += [] if about.owned is None else [about.owned.param]
        missing = [name for name in params if f"{{{name}}}" not in self.path]
        if missing:
            raise ConfigurationError(f"the endpoint {called} is about {missing[0]}, which its path does not name")
        if self.body is None and any(place.part == "body" for place in places):
            raise ConfigurationError(f"the endpoint {called} is about what its body names, but takes no body")
