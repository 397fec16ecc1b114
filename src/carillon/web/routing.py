"""Finding the endpoint of a request: a dictionary for fixed paths, patterns only for the rest."""

import re
from collections.abc import Iterable

from carillon.web.declare import Endpoint
from carillon.web.problems import Problem

_UNFIT = re.compile(r"[\x00-\x1f\x7f\ufffd]")
_MAX_SEGMENT = 255


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
        # A fixed path is never also somebody's id: GET …/send is a wrong method, not a notification called "send".
        allowed = {known for known, fixed_path in self._fixed if fixed_path == path}
        for pattern, endpoint in self._patterns if not allowed else ():
            found = pattern.match(path)
            if found is None:
                continue
            if endpoint.method == method or (endpoint.method, method) == ("GET", "HEAD"):
                return endpoint, _fit(found.groupdict())
            allowed |= {endpoint.method, "HEAD"} if endpoint.method == "GET" else {endpoint.method}
        if not allowed:
            raise Problem("NOT_FOUND", "nothing is served under this path")
        methods = ", ".join(sorted(allowed))
        raise Problem("METHOD_NOT_ALLOWED", f"this path takes {methods}", headers={"Allow": methods})


def _pattern(path: str) -> re.Pattern[str]:
    """`{name}` stands for one segment; everything else for itself."""
    parts = re.split(r"\{(\w+)\}", path)
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)) + r"\Z"
    )


def _fit(params: dict[str, str]) -> dict[str, str]:
    for value in params.values():
        # No store holds such an id, and some refuse even to be asked for it.
        if len(value) > _MAX_SEGMENT or _UNFIT.search(value):
            raise Problem("NOT_FOUND", "nothing has such an id")
    return params
