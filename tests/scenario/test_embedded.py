"""Carillon inside somebody's own asyncio program: the same engine and the same durability."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import carillon
from carillon.client import Rejected, Unreachable
from carillon.domain.errors import CarillonError, ConfigurationError
from tests.support.proxy import FaultProxy

WELCOME = {"channel": "email", "recipient": "ada@example.org", "data": {"name": "Ada", "link": "https://example.org/"}}
ENGINES = ("sqlite", "postgres")


@pytest.fixture(params=ENGINES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "app.db")
    return str(request.getfixturevalue("postgres_dsn"))


ENVIRON = {"CARILLON_LEDGER__ALLOW_UNSAFE": "1", "CARILLON_DRILL__TIME_SCALE": "0.001"}


async def test_send_and_be_delivered(where: str) -> None:
    async with carillon.open(where, environ=ENVIRON) as c:
        accepted = await c.send("welcome", **WELCOME)
        finished = await c.wait(accepted.notification_id)
        assert finished.status == "delivered"
        assert [attempt.outcome for attempt in finished.routes[0].attempts] == ["sent"]
        assert await c.get("nobody") is None
    async with carillon.open(where, environ=ENVIRON) as c:
        again = await c.get(accepted.notification_id)
        assert again is not None
        assert again.status == "delivered"


async def test_one_key_is_one_notification(where: str) -> None:
    async with carillon.open(where, environ=ENVIRON) as c:
        first = await c.send("welcome", idempotency_key="once", **WELCOME)
        second = await c.send("welcome", idempotency_key="once", **WELCOME)
    assert (second.notification_id, second.replayed) == (first.notification_id, True)


@pytest.mark.parametrize(
    ("template", "about", "code"),
    [
        ("there.is.no.such", WELCOME, "TEMPLATE_NOT_FOUND"),
        ("welcome", {**WELCOME, "recipient": "no address"}, "VALIDATION_ERROR"),
        ("welcome", {**WELCOME, "channel": "pigeon"}, "VALIDATION_ERROR"),
        ("welcome", {**WELCOME, "data": {}}, "TEMPLATE_RENDER_ERROR"),
    ],
)
async def test_what_is_refused_says_why(tmp_path: Path, template: str, about: dict[str, str], code: str) -> None:
    async with carillon.open(str(tmp_path / "app.db"), environ=ENVIRON) as c:
        with pytest.raises(Rejected) as refused:
            await c.send(template, **about)
    assert refused.value.code == code


@pytest.mark.req("P-1181")
@pytest.mark.parametrize("variable", ["DATABASE_URL", "CARILLON_LEDGER__URL"])
async def test_the_ledger_that_is_named_is_opened(tmp_path: Path, variable: str) -> None:
    here, other = tmp_path / "app.db", tmp_path / "other.db"
    async with carillon.open(str(here), environ={**ENVIRON, variable: f"sqlite:///{other}"}) as c:
        await c.wait((await c.send("welcome", **WELCOME)).notification_id)
    assert (here.exists(), other.exists()) == (True, False)


@pytest.mark.req("P-1185")
async def test_a_call_that_its_caller_cancels_is_cancelled(tmp_path: Path) -> None:
    async with carillon.open(str(tmp_path / "app.db"), environ=ENVIRON) as c:
        for call in (c.search(), c.export_person("ada"), c.suppress("email", "ada@example.org", "asked")):
            running = asyncio.create_task(call)
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await c.search()).total_count == 0, "the engine goes on"


async def test_it_speaks_into_the_hosts_log_and_not_to_stdout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="carillon")
    async with carillon.open(str(tmp_path / "app.db"), environ=ENVIRON) as c:
        accepted = await c.send("welcome", **WELCOME)
        await c.wait(accepted.notification_id)
    assert capsys.readouterr() == ("", "")
    named = [record for record in caplog.records if record.name == "carillon"]
    assert any(vars(record)["carillon"].get("notification_id") == accepted.notification_id for record in named)
    assert "ada@example.org" not in caplog.text


@pytest.mark.req("P-1229")
@pytest.mark.parametrize("name", ["100%25.db", "what?.db", "two words.db"])
async def test_the_file_that_is_named_is_opened(tmp_path: Path, name: str) -> None:
    async with carillon.open(str(tmp_path / name), environ=ENVIRON):
        assert (tmp_path / name).is_file()


@pytest.mark.req("P-1230")
async def test_a_host_makes_as_many_calls_at_once_as_it_likes(tmp_path: Path) -> None:
    async with carillon.open(str(tmp_path / "app.db"), environ=ENVIRON) as c:
        await asyncio.gather(*(c.prefer(f"u-{n}", time_zone="Asia/Tokyo") for n in range(1100)))
        assert (await c.preferences("u-1099"))["timeZone"] == "Asia/Tokyo"


@pytest.mark.req("P-1224")
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1])
async def test_a_host_that_gives_up_while_it_opens_leaves_nothing_running(tmp_path: Path, seconds: float) -> None:
    where, before = str(tmp_path / "app.db"), asyncio.all_tasks()

    async def serve() -> None:
        async with carillon.open(where, environ=ENVIRON):
            await asyncio.Event().wait()

    opening = asyncio.create_task(serve())
    await asyncio.sleep(seconds)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() <= before
    async with carillon.open(where, environ=ENVIRON) as c:
        assert (await c.send("welcome", **WELCOME)).status == "queued"


@pytest.mark.req("P-1225")
async def test_a_send_whose_answer_the_ledger_could_not_give_is_repeated_under_its_key(postgres_dsn: str) -> None:
    parts = urlsplit(postgres_dsn)
    assert parts.hostname
    assert parts.port
    async with FaultProxy(parts.hostname, parts.port) as proxy:
        through = parts._replace(netloc=parts.netloc.replace(f"{parts.hostname}:{parts.port}", proxy.address))
        async with carillon.open(through.geturl(), environ=ENVIRON) as c:
            for after in range(30, 600, 30):
                # At one of these lengths the ledger has committed, and the program does not hear of it.
                mine = {**WELCOME, "user_id": f"ada-{after}"}
                proxy.cut(after=after)
                try:
                    await c.send("welcome", **mine)
                except Unreachable as lost:
                    proxy.heal()
                    key = lost.idempotency_key
                    again = await patiently(c.send, "welcome", idempotency_key=key, **mine)
                    found = await patiently(c.search, user_id=mine["user_id"])
                    assert found.total_count == 1
                    if again.replayed:
                        return
                proxy.heal()
    raise AssertionError("no answer was lost")


async def patiently(call: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
    """Until connections that were cut are replaced."""
    for _ in range(100):
        try:
            return await call(*given, **named)
        except Unreachable:
            await asyncio.sleep(0.1)
    raise AssertionError("the ledger stays away")


async def test_it_is_opened_again(tmp_path: Path) -> None:
    c = carillon.open(str(tmp_path / "app.db"), environ=ENVIRON)
    for number in (1, 2):
        async with c:
            sent = await c.send("welcome", **WELCOME)
            assert (await c.wait(sent.notification_id)).status == "delivered"
            assert (await c.search()).total_count == number


async def test_several_programs_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "app.db")
    async with carillon.open(path, environ=ENVIRON) as first, carillon.open(path, environ=ENVIRON) as second:
        sent = [await one.send("welcome", **WELCOME) for one in (first, second) for _ in range(5)]
        for accepted in sent:
            for one in (first, second):
                finished = await one.wait(accepted.notification_id)
                assert (finished.status, finished.attempt_count) == ("delivered", 1)


async def test_it_is_used_inside_its_block(tmp_path: Path) -> None:
    c = carillon.open(str(tmp_path / "app.db"), environ=ENVIRON)
    with pytest.raises(CarillonError, match="async with"):
        await c.send("welcome", **WELCOME)


async def test_a_wrong_setting_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="time_scale"):
        carillon.open(str(tmp_path / "app.db"), environ={"CARILLON_DRILL__TIME_SCALE": "soon"})
    assert not (tmp_path / "app.db").exists()


SHORT = {**ENVIRON, "CARILLON_LEDGER__LEASE_SECONDS": "3", "CARILLON_LEDGER__SHORTEN_CALLS": "1"}
KILLED = """
import asyncio, os, sys, carillon
async def main():
    async with carillon.open(sys.argv[1], environ=dict(os.environ)) as c:
        for n in range(50):
            accepted = await c.send("welcome", channel="email", recipient=f"p{n}@example.org", idempotency_key=str(n),
                                    data={"name": "Ada", "link": "https://example.org/"})
            print(accepted.notification_id, flush=True)
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_what_was_accepted_survives_the_host_being_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "app.db")
    child = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KILLED, path], capture_output=True, text=True, check=False, env=SHORT
    )
    assert child.returncode == -9, child.stderr
    accepted = child.stdout.split()
    assert len(accepted) == 50
    async with carillon.open(path, environ=SHORT) as c:
        ends = await asyncio.gather(*(c.wait(notification_id, 90) for notification_id in accepted))
    assert {one.status for one in ends} == {"delivered"}
