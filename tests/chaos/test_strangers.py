"""What a stranger does to a listener costs the stranger: slow, idle, huge, half-closed and many, on both listeners."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.properties import ViolationError, hold
from tests.support.listo_stand import SECRET, token
from tests.support.process import Program
from tests.support.stranger_mutant import MUTANTS
from tests.support.strangers import HEAD, STRANGER, Stranger, asked, get, post, readable, status

SEND = {"local": "/api/v1/notifications/send", "sse": "/notifications"}
"""Blueprint to the path of a POST: local listens with granian, sse with h11."""
SHORT = 3.0
HEALTHY = get("/healthz")
CONTINUE = "Expect: 100-continue\r\n"
Scenario = Callable[[Path, str, str | None], None]


@contextmanager
def serving(folder: Path, blueprint: str, mutant: str | None, **http: object) -> Iterator[str]:
    """The real program with these settings of `[http]`; gives its address."""
    environment = {
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_SSE__MAX_CONNECTIONS": "0",
        "DATABASE_URL": f"sqlite:///{folder / 'carillon.db'}",
        "CARILLON_HTTP__HEADER_TIMEOUT_SECONDS": "600",
        **{name if name.isupper() else f"CARILLON_HTTP__{name.upper()}": str(value) for name, value in http.items()},
    }
    if blueprint != "sse":
        del environment["CARILLON_SSE__MAX_CONNECTIONS"]
    command = [sys.executable, "-m", "tests.support.stranger_mutant", mutant] if mutant else None
    with Program(
        "serve", "--blueprint", blueprint, env=environment, cwd=folder if not mutant else None, command=command
    ) as program:
        yield str(program.wait_ready()["addresses"][0])


def idle(folder: Path, blueprint: str, mutant: str | None) -> None:
    """More idle connections of one address than the listener takes."""
    few = {"max_connections": 64, "max_idle_connections_per_address": 16}
    with serving(folder, blueprint, mutant, **few) as url, Stranger(url) as stranger:
        held = stranger.hold(100)
        served = [asked(url, HEALTHY, seconds=SHORT) for _ in range(3)]
        hold("others_are_served", served == [200] * 3, served)
        closed = readable(held, len(held) - 16, SHORT)
        hold("idle_is_bounded", len(held) - len(closed) <= 16, (len(held), len(closed)))


def slow_heads(folder: Path, blueprint: str, mutant: str | None) -> None:
    """The same with a byte on each: a head that never ends is idle too, once it has been silent for a while."""
    few = {"max_connections": 64, "max_idle_connections_per_address": 16}
    with serving(folder, blueprint, mutant, **few) as url, Stranger(url) as stranger:
        stranger.hold(100, b"G")
        served = [asked(url, HEALTHY, seconds=SHORT) for _ in range(3)]
        hold("others_are_served", served == [200] * 3, served)


def slow(folder: Path, blueprint: str, mutant: str | None) -> None:
    """Bodies of which one byte came take no slot of requests in flight."""
    path = SEND[blueprint]
    with serving(folder, blueprint, mutant, max_requests_in_flight=8) as url, Stranger(url) as stranger:
        held = stranger.hold(16, post(path, 2, CONTINUE))
        # The server asks for a body once it begins to read it.
        hold("bodies_are_awaited", len(readable(held, 8, 10)) >= 8, len(held))
        served = [asked(url, post(path, 2) + b"{}") for _ in range(3)]
        hold("others_are_served", served == [400] * 3, served)


def slow_bodies(folder: Path, blueprint: str, mutant: str | None) -> None:
    """Of the slow bodies of one address only a few are waited for."""
    path = SEND[blueprint]
    with serving(folder, blueprint, mutant, max_slow_bodies_per_address=4) as url, Stranger(url) as stranger:
        held = stranger.hold(16, post(path, 2) + b"{")
        refused = readable(held, 12, SHORT)
        answers = [status(one) for one in refused]
        hold("slow_bodies_are_bounded", answers == [429] * 12, answers)
        # Those within the limit, and other addresses, may still be slow.
        patient = [one for one in held if one not in refused]
        patient[0].sendall(b"}")
        hold("patience_for_the_rest", status(patient[0]) == 400, "no answer")
        with Stranger(url, "127.0.0.4") as elsewhere:
            other = elsewhere.connect(post(path, 2) + b"{")
            hold("others_may_be_slow", not readable([other], 1, 1.5), "cut off")


def huge(folder: Path, blueprint: str, mutant: str | None) -> None:
    """A body without an end is refused long before it has filled the memory."""
    with serving(folder, blueprint, mutant) as url, Stranger(url) as stranger:
        head = f"POST {SEND[blueprint]} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n"
        connection = stranger.connect(head.encode())
        piece, sent = b"10000\r\n" + b" " * 65_536 + b"\r\n", 0
        try:
            while sent < 24 << 20 and not readable([connection], 1, 0.0001):
                connection.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        # Beside the limit of 256 KiB, the kernel's buffers take a few megabytes.
        hold("huge_is_cut", sent < 16 << 20, sent)
        served = asked(url, HEALTHY)
        hold("others_are_served", served == 200, served)


def half_closed(folder: Path, blueprint: str, mutant: str | None) -> None:
    """A client that sends no more and has asked nothing is let go at once."""
    with serving(folder, blueprint, mutant) as url, Stranger(url) as stranger:
        held = stranger.hold(16, b"GET / HT")
        for connection in held:
            connection.shutdown(1)
        closed = readable(held, 16, SHORT)
        hold("half_closed_are_let_go", len(closed) == 16, len(closed))


def many(folder: Path, blueprint: str, mutant: str | None) -> None:
    """Requests without a token are limited by address; a token is served from the same address."""
    limit = 0 if mutant else 2
    settings = {"JWT_SECRET_KEY": SECRET, "anonymous_requests_per_second": limit}
    with serving(folder, blueprint, None, **settings) as url, Stranger(url) as stranger:
        asks = get("/api/v1/notifications", "")
        flood = stranger.hold(8, asks * 20)
        answers = {status(one) for one in flood}
        hold("many_are_slowed_down", 429 in answers or status(stranger.connect(asks)) == 429, answers)
        hold("others_are_served", asked(url, asks) == 401, "not 401")
        shown = "".join(f"{name}: {value}\r\n" for name, value in token(role="admin").items())
        served = asked(url, get("/api/v1/notifications", shown), source=STRANGER)
        hold("a_token_is_served", served == 200, served)


@pytest.mark.parametrize("blueprint", SEND)
@pytest.mark.parametrize("scenario", [idle, slow_heads, slow, slow_bodies, huge, half_closed, many])
def test_what_a_stranger_does_costs_the_stranger(tmp_path: Path, scenario: Scenario, blueprint: str) -> None:
    scenario(tmp_path, blueprint, None)


CONTROLS = [
    ("no_idle_limit", idle, "local", "others_are_served"),
    ("no_idle_limit", idle, "sse", "others_are_served"),
    ("no_idle_limit", slow_heads, "local", "others_are_served"),
    ("no_idle_limit", slow_heads, "sse", "others_are_served"),
    ("slot_before_body", slow, "local", "others_are_served"),
    ("slot_before_body", slow, "sse", "others_are_served"),
    ("no_slow_limit", slow_bodies, "local", "slow_bodies_are_bounded"),
    ("no_slow_limit", slow_bodies, "sse", "slow_bodies_are_bounded"),
    ("no_body_limit", huge, "local", "huge_is_cut"),
    ("no_body_limit", huge, "sse", "huge_is_cut"),
    # Granian lets half-closed connections go by itself.
    ("half_closed_is_open", half_closed, "sse", "half_closed_are_let_go"),
    ("the limit is 0", many, "local", "many_are_slowed_down"),
    ("the limit is 0", many, "sse", "many_are_slowed_down"),
]


@pytest.mark.parametrize(("mutant", "scenario", "blueprint", "promise"), CONTROLS)
def test_a_guard_against_strangers_is_missed(
    tmp_path: Path, mutant: str, scenario: Scenario, blueprint: str, promise: str
) -> None:
    with pytest.raises(ViolationError) as caught:
        scenario(tmp_path, blueprint, mutant)
    assert caught.value.promise == promise


def test_every_guard_has_its_control() -> None:
    assert set(MUTANTS) <= {mutant for mutant, *_ in CONTROLS}
