"""The limits for one address: what an address is, who is behind a proxy, and which connections must go."""

import asyncio
import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.errors import ConfigurationError
from carillon.web import peers
from carillon.web.idle import Borrowed
from carillon.web.peers import IdlePeer, Proxies, SlowBodies, grouped, surplus


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_one_customer_is_one_address(address: str, group: str) -> None:
    assert grouped(address) == group


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", b"192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", b"1.1.1.1, 192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", b"192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", b"192.0.2.1:4711", "192.0.2.1"),
        ("10.0.0.1", b"[2001:db8::1]:80", "2001:db8::1"),
        ("::ffff:10.0.0.1", b"192.0.2.1", "192.0.2.1"),
        # Nothing that can be believed: the proxy itself is the caller.
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"192.0.2.1, unknown", "10.0.0.1"),
        ("10.0.0.1", b"10.0.0.3, 10.0.0.2", "10.0.0.3"),
        # Nobody's proxy: what it says is its own word.
        ("192.0.2.7", b"192.0.2.1", "192.0.2.7"),
    ],
)
def test_a_proxy_names_its_caller(peer: str, forwarded: bytes, client: str) -> None:
    assert Proxies(["10.0.0.0/24"]).client(peer, {b"x-forwarded-for": forwarded}) == client


def test_a_proxy_must_be_an_address() -> None:
    with pytest.raises(ConfigurationError, match="trusted_proxies"):
        Proxies(["proxy.example"])
    assert not Proxies()


def peer(address: str, silent: int, *, exempt: bool = False) -> IdlePeer:
    return IdlePeer(address, silent, 0, exempt)


def test_the_longest_silent_of_an_address_go_first() -> None:
    idle = [peer("a", 5), peer("a", 9), peer("a", 7), peer("b", 99)]
    assert surplus(idle, 1, 0) == [peer("a", 9), peer("a", 7)]
    assert surplus(idle, 0, 0) == []


def test_newcomers_get_room_from_those_who_have_most() -> None:
    idle = [peer("a", 1), peer("a", 2), peer("a", 3), peer("b", 99), peer("c", 50)]
    assert surplus(idle, 0, 2) == [peer("a", 3), peer("a", 2)]


def test_a_proxy_is_only_asked_for_room() -> None:
    idle = [peer("p", number, exempt=True) for number in range(5)]
    assert surplus(idle, 2, 0) == []
    assert surplus(idle, 2, 1) == [peer("p", 4, exempt=True)]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100)), max_size=40),
    st.integers(0, 6),
    st.integers(-5, 50),
)
def test_enough_go_and_no_more(found: list[tuple[str, int]], most: int, excess: int) -> None:
    idle = [IdlePeer(address, silent, number) for number, (address, silent) in enumerate(found)]
    gone = surplus(idle, most, excess)
    assert len(set(gone)) == len(gone)
    kept = [one for one in idle if one not in gone]
    over = sum(max(0, sum(one.address == address for one in idle) - most) for address in "abc") if most else 0
    assert len(gone) == min(len(idle), max(over, excess))
    assert not most or all(sum(one.address == address for one in kept) <= most for address in "abc")


async def test_a_slow_body_that_ends_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "QUICK_SECONDS", 0.0)
    bodies = SlowBodies(1)

    async def body(address: str, over: asyncio.Event) -> bool:
        """Whether the body was refused."""
        watched = bodies.watch(address, 30)
        with suppress(TimeoutError), watched:
            await over.wait()
        return watched.refused

    # One look judges bodies in the order in which they came.
    over = asyncio.Event()
    first = asyncio.create_task(body("192.0.2.1", over))
    elsewhere = asyncio.create_task(body("192.0.2.2", over))
    await asyncio.sleep(0)
    assert await body("192.0.2.1", asyncio.Event())
    assert await body("192.0.2.2", asyncio.Event())
    over.set()
    assert not await first
    assert not await elsewhere
    second = asyncio.create_task(body("192.0.2.1", over))
    assert not await second


def test_looking_for_connections_drops_no_lock_on_a_file(tmp_path: Path) -> None:
    """A SQLite ledger without its locks is restarted by the next process that opens it, and loses what it writes."""
    path = tmp_path / "locked"
    asks = f"import fcntl; fcntl.lockf(open({str(path)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("w+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with Borrowed(file.fileno()):
            pass
        taken = subprocess.run([sys.executable, "-c", asks], check=False, capture_output=True, timeout=60)
        assert b"BlockingIOError" in taken.stderr
        # Control: a duplicate that is closed drops the lock.
        os.close(os.dup(file.fileno()))
        subprocess.run([sys.executable, "-c", asks], check=True, timeout=60)
