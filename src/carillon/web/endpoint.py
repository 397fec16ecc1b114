"""The declaration of an endpoint, and the table that finds an endpoint."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.web.about import UNDECLARED, About, Callers
from carillon.web.problems import Problem
from carillon.web.request import RawBody, Reply, Request

Call = Callable[[Request], Awaitable[Reply]]
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ufffd]")
_SLASH = re.compile("%2F", re.IGNORECASE)
"""A slash inside an id, as it arrives: callers write `%252F`, because granian decodes a path before we see it."""
_NO_SUCH_PATH = "nothing is served under this path"
_WITH_SLASH = f"{_NO_SUCH_PATH}; a slash inside an id is written %252F"
MAX_SEGMENT = 255
LONGEST_PERSON = 1024
"""A person who is known by a URL has the URL in the id; as percent escapes it still fits into the head of a request."""


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
    """Error codes of this endpoint beyond those that its declaration implies."""
    about: About = UNDECLARED
    """Who may call and whose data it touches; an endpoint without it does not start."""
    override: bool = False
    """True changes deliveries by hand: the caller must say `X-Admin-Override: true`."""
    always: bool = False
    """True answers even when the bound on requests in flight is reached."""
    by_address: bool = False
    """True limits how often one address may call an endpoint that needs no credentials."""
    ticket: Literal["no", "opens", "shows"] = "no"
    """Whether a stream's ticket is enough: `opens` uses the ticket up, `shows` names its holder afterwards."""
    longest: int = MAX_SEGMENT
    """The most characters of one segment that the path leaves open."""
    hidden: bool = False
    """True keeps it out of the OpenAPI document."""

    def __post_init__(self) -> None:
        """Refuse a declaration that the guard could not enforce."""
        about, called = self.about, f"{self.method} {self.path} ({self.name})"
        if about.callers is Callers.UNDECLARED:
            raise ConfigurationError(f"the endpoint {called} does not declare what it is about: add about=")
        if not about.asks and (about.person or about.tenant or about.owned or self.ticket != "no"):
            raise ConfigurationError(
                f"the endpoint {called} names people or tenants, but does not authenticate its callers"
            )
        places = [*about.person, *([] if about.tenant is None else [about.tenant])]
        params = [place.name for place in places if place.part == "path"]
        params += [] if about.owned is None else [about.owned.param]
        missing = [name for name in params if f"{{{name}}}" not in self.path]
        if missing:
            raise ConfigurationError(f"the endpoint {called} is about {missing[0]}, which its path does not name")
        if self.body is None and any(place.part == "body" for place in places):
            raise ConfigurationError(f"the endpoint {called} is about what its body names, but takes no body")


class Routes:
    """All endpoints by method and path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._fixed: dict[tuple[str, str], Endpoint] = {}
        self._patterns: list[tuple[re.Pattern[str], Endpoint]] = []
        for endpoint in endpoints:
            if "{" in endpoint.path:
                self._patterns.append((_pattern(endpoint.path), endpoint))
                continue
            self._fixed[endpoint.method, endpoint.path] = endpoint
            if endpoint.method == "GET":
                self._fixed["HEAD", endpoint.path] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint and its path parameters; 404 and 405 are raised."""
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, {}
        # A fixed path is never an id: GET …/send is a wrong method, not a notification called "send".
        allowed = {known for known, fixed_path in self._fixed if fixed_path == path}
        for pattern, endpoint in self._patterns if not allowed else ():
            found = pattern.match(path)
            if found is None:
                continue
            if endpoint.method == method or (endpoint.method, method) == ("GET", "HEAD"):
                return endpoint, _fit(found.groupdict(), endpoint.longest)
            allowed |= {endpoint.method, "HEAD"} if endpoint.method == "GET" else {endpoint.method}
        if not allowed:
            raise Problem("NOT_FOUND", _WITH_SLASH if self._has_slashes(method, path) else _NO_SUCH_PATH)
        methods = ", ".join(sorted(allowed))
        raise Problem("METHOD_NOT_ALLOWED", f"this path takes {methods}", headers={"Allow": methods})

    def _has_slashes(self, method: str, path: str) -> bool:
        """Whether the path looks as if an id in it had a slash."""
        for _, one in self._patterns:
            begins, ends = one.path.partition("{")[0], one.path.rpartition("}")[2]
            if one.method == method and path.startswith(begins) and path.endswith(ends):
                return True
        return False


def _pattern(path: str) -> re.Pattern[str]:
    """`{name}` stands for one segment; everything else for itself."""
    parts = re.split(r"\{(\w+)\}", path)
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)) + r"\Z"
    )


def _fit(params: dict[str, str], longest: int) -> dict[str, str]:
    for name, value in params.items():
        if "%" in value:
            params[name] = _SLASH.sub("/", value)
        # No ledger holds such an id, and some refuse the query.
        if len(value) > longest or _UNFIT.search(value):
            raise Problem("NOT_FOUND", "nothing has such an id")
    return params
