"""Everything that leaves over HTTP leaves through one client, to an address that a setting can change."""

import ast

import msgspec
import pytest

from carillon.providers import kinds, settings_of
from tests.support.sources import syntax_trees

CLIENTS = {"pycurl", "aiohttp", "httpx", "requests", "urllib3", "http.client", "urllib.request"}
THE_ONE = {"src/carillon/providers/curl.py", "src/carillon/providers/transfer.py"}
TO_CARILLON = ("src/carillon/cli/", "src/carillon/client/")
"""Programs that call us are not we who call out."""
ADDRESS = ("base_url", "endpoint", "endpoint_url", "url")
NO_ADDRESS = {
    "apprise",  # its recipients are URLs, sent by its own library
    "inbox",
    "redis_stream",
    "sandbox",
    "smtp",  # its address is `url`, checked below; it is no HTTP
    "sse",
    "webhook",  # its recipients are URLs
}


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.req("G-11")
def test_one_client_for_everything_outbound() -> None:
    using = {name for name, tree in syntax_trees(("src",)) if imported(tree) & CLIENTS}
    assert {name for name in using if not name.startswith(TO_CARILLON)} == THE_ONE


@pytest.mark.req("G-11")
@pytest.mark.parametrize("kind", sorted(set(kinds()) - NO_ADDRESS))
def test_every_vendor_can_be_somebody_on_loopback(kind: str) -> None:
    fields = {field.name for field in msgspec.structs.fields(settings_of(kind))}
    assert fields & set(ADDRESS), f"{kind} has no setting for where its vendor is"
