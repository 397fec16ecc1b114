"""The declaration of an endpoint: the one place that says what it takes, gives and is called."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

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
    """The wire type of the body, for the document; the endpoint itself decodes."""
    body_optional: bool = False
    """True takes no body for one that says nothing."""
    body_examples: dict[str, Any] = {}
    query: type[msgspec.Struct] | None = None
    headers: tuple[Header, ...] = ()
    path_examples: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    """Codes this endpoint answers with beyond those its shape implies."""
    guarded: bool = True
    """False serves everybody, token or not."""
    role: str | None = None
    every_tenant: bool = False
    """True concerns all tenants at once: callers who have one are refused."""
    always: bool = False
    """True answers even when the bound on requests in flight is reached."""
    by_address: bool = False
    """True limits how often one address may ask, where it serves everybody and others are asked who they are."""
    ticket: Literal["no", "opens", "shows"] = "no"
    """Whether a stream's ticket is enough: it is used up by what it opens, and says afterwards whose answers come."""
    hidden: bool = False
    """True keeps it out of the OpenAPI document."""
