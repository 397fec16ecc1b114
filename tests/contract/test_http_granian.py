"""What the API's server needs from granian: after an upgrade, the failing line names what granian changed."""

import ast
import inspect
from importlib.metadata import version
from pathlib import Path

import pytest
from granian import rsgi
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server import embed

import carillon.web

GRANIAN = f"granian {version('granian')}"
OPTIONS = (
    "target",
    "address",
    "port",
    "interface",
    "http",
    "websockets",
    "backlog",
    "backpressure",
    "http1_settings",
    "log_level",
    "log_dictconfig",
)


@pytest.mark.parametrize("option", OPTIONS)
def test_the_embedded_server_takes_the_option(option: str) -> None:
    taken = inspect.signature(embed.Server.__init__).parameters
    assert option in taken, f"{GRANIAN}: embed.Server has no option {option!r}; web/server.py passes it"


def test_the_embedded_server_runs_in_our_loop_and_stops_at_our_word() -> None:
    assert inspect.iscoroutinefunction(embed.Server.serve), f"{GRANIAN}: embed.Server.serve is no coroutine any more"
    assert not inspect.iscoroutinefunction(embed.Server.stop), f"{GRANIAN}: embed.Server.stop must be awaited now"
    assert not [
        name
        for name, parameter in inspect.signature(embed.Server.stop).parameters.items()
        if name != "self" and parameter.default is inspect.Parameter.empty
    ], f"{GRANIAN}: embed.Server.stop wants an argument"


@pytest.mark.parametrize("field", ["header_read_timeout", "max_buffer_size"])
def test_heads_have_a_deadline_and_a_size(field: str) -> None:
    taken = inspect.signature(HTTP1Settings).parameters
    assert field in taken, f"{GRANIAN}: HTTP1Settings has no {field!r}; slow or huge heads are no longer bounded"


@pytest.mark.parametrize(
    "name",
    ["__call__", "__aiter__", "client_disconnect", "response_bytes", "response_stream"],
)
def test_a_request_is_read_and_answered_by_these_calls(name: str) -> None:
    assert hasattr(rsgi.HTTPProtocol, name), f"{GRANIAN}: rsgi.HTTPProtocol has no {name}; web/server.py calls it"


@pytest.mark.parametrize("name", ["method", "path", "query_string", "client", "authority"])
def test_a_request_says_these_things(name: str) -> None:
    assert name in rsgi.Scope.__annotations__, f"{GRANIAN}: rsgi.Scope has no {name}; web/server.py reads it"


def test_a_client_that_leaves_is_an_error_of_its_own() -> None:
    assert issubclass(rsgi.ProtocolClosed, Exception), f"{GRANIAN}: rsgi.ProtocolClosed is no exception"


def test_the_constants_are_there() -> None:
    assert (Interfaces.RSGI.value, HTTPModes.http1.value, LogLevels.error.value) == ("rsgi", "1", "error"), GRANIAN


def test_nothing_private_of_granian_is_used() -> None:
    private = []
    for path in Path(carillon.web.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "granian":
                words = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                private += [f"{path.name}:{node.lineno} {word}" for word in words if word.startswith("_")]
    assert not private
