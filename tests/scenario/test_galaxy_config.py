"""The galaxy blueprint's environment variables, as a real process behaves under them."""

import asyncio
import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis as RedisClient

from tests.support.galaxy_seen import backends, exit_of, intent, monitored, sockets
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, PASSWORD, Galaxy
from tests.support.ports import free_port
from tests.support.process import run_carillon
from tests.support.vendor import Reply
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEEDED = ("REDIS_MASTER_ADDR", "REDIS_PASSWORD", "POSTGRES_PRIMARY_DSN", "USER_SERVICE_BASE_URL")
REFUSED = ("REDIS_ADDR", "REDIS_USERNAME", "REDIS_TLS_ENABLED", "REDIS_REPLICA_ADDRS", "POSTGRES_REPLICA_DSNS")
GARBAGE = {
    "PUSH_RETRY_MAX_ATTEMPTS": "0",
    "EMAIL_RETRY_MAX_ATTEMPTS": "seven",
    "ROUTE_BACKOFF_MIN": "-1s",
    "ROUTE_BACKOFF_MAX": "500ms",
    "ROUTE_LEASE_TTL": "0",
    "ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED": "ops@example.com,not an address",
}


async def refused(stand: Galaxy, **environment: str) -> str:
    """What a process says that ends before it consumes anything."""
    code, said = await asyncio.to_thread(exit_of, stand.launch(**environment))
    assert code not in {0, None}
    assert "part_started" not in said
    return said


@pytest.mark.timeout(300)
@pytest.mark.req("S1-17", "S1-18", "S1-34", "S1-36", "S1-32", "S1-22", "S1-23", "X1-4")
async def test_what_is_missing_forbidden_or_nonsense_ends_the_start(galaxy: Galaxy) -> None:
    await galaxy.publish(intent())
    cases = [(name, "") for name in NEEDED] + [(name, "x") for name in REFUSED] + list(GARBAGE.items())
    limit = asyncio.Semaphore(2)

    async def try_one(name: str, value: str) -> None:
        async with limit:
            said = await refused(galaxy, **{f"NOTIFICATION_{name}": value})
            assert f"NOTIFICATION_{name}" in said
            assert "Traceback" not in said

    await asyncio.gather(*(try_one(*case) for case in cases))
    assert await galaxy.redis.xlen(INTENTS) == 1
    assert await galaxy.offset() is None


def doctor(stand: Galaxy, **environment: str) -> tuple[int, dict[str, tuple[str, str]]]:
    given = stand.environment(**environment)
    done = run_carillon(["doctor", "--json", "--blueprint", "galaxy"], env=given, timeout=60)
    return done.returncode, {each["part"]: (each["verdict"], each["words"]) for each in json.loads(done.stdout)}


async def test_the_doctor_asks_the_streams_and_the_user_service(galaxy: Galaxy) -> None:
    galaxy.users.people["carillon-doctor"] = None
    code, told = await asyncio.to_thread(doctor, galaxy)
    assert {part: verdict for part, (verdict, _) in told.items() if verdict == "ill"} == {}
    assert code == 0
    assert {"Provider gateway", "Provider mail"} <= set(told)
    assert told["Redis"][1].endswith("streams")
    assert told["Directory"] == ("ok", f"{galaxy.users.url} answers")
    wrong = f"{galaxy.users.url}/elsewhere"
    galaxy.users.answer(Reply(404), path="/elsewhere/api/v1/internal/users/carillon-doctor")
    code, told = await asyncio.to_thread(doctor, galaxy, NOTIFICATION_USER_SERVICE_BASE_URL=wrong)
    assert (code, told["Directory"][0]) == (1, "ill")
    assert "is its URL right?" in told["Directory"][1]
    nowhere = f"http://127.0.0.1:{free_port()}"
    code, told = await asyncio.to_thread(doctor, galaxy, NOTIFICATION_USER_SERVICE_BASE_URL=nowhere)
    assert told["Directory"][1].startswith(f"{nowhere}: the directory did not answer: ")


def shown(stand: Galaxy, *arguments: str, **environment: str) -> Any:
    words = ["config", "show", "--blueprint", "galaxy", "--json", *arguments]
    env = {"PATH": "/usr/bin:/bin", **stand.environment(**environment)}
    done = run_carillon(words, env=env, check=True, timeout=90)
    return json.loads(done.stdout)


@pytest.mark.req(
    "S1-19", "S1-20", "S1-21", "S1-22", "S1-23", "S1-24", "S1-25", "S1-26", "S1-27", "S1-28", "S1-29", "S1-31"
)
async def test_defaults_are_the_documents(galaxy: Galaxy) -> None:
    found = shown(galaxy, NOTIFICATION_INTERNAL_HTTP_ADDR="")
    http, ledger, retry = found["http"], found["ledger"], found["policy"]["retry"]
    assert (http["host"], http["port"]) == ("0.0.0.0", 8092)  # noqa: S104 - the document's default
    assert [http[f"{name}_timeout_seconds"] for name in ("header", "read", "idle")] == [2, 10, 60]
    assert (found["redis"]["db"], found["redis"]["operation_timeout_seconds"]) == (0, 2)
    assert (ledger["operation_timeout_seconds"], ledger["connection_lifetime_seconds"]) == (5, 1800)
    assert (ledger["max_connections"], ledger["max_idle_connections"], ledger["lease_seconds"]) == (25, 5, 5)
    assert (found["stream"]["name"], found["stream"]["block_seconds"]) == (INTENTS, 2)
    gateway, mail = found["providers"]["gateway"], found["providers"]["mail"]
    assert (gateway["stream"], gateway["max_len"], mail["stream"]) == (GATEWAY, 1024, MAIL)
    assert (retry["*/push"]["max_attempts"], retry["*/email"]["max_attempts"]) == (3, 7)
    for policy in retry.values():
        assert (policy["base_delay_seconds"], policy["max_delay_seconds"], policy["jitter"]) == (1, 300, "none")
    kept = found["retention"]
    assert [kept[f"{name}_seconds"] / 3600 for name in ("record", "malformed", "interval")] == [720, 2160, 1]
    assert (found["idempotency_ttl_seconds"], found["directory"]["timeout_seconds"]) == (168 * 3600, 1)
    assert (found["work"]["drain_seconds"], found["log"]["level"]) == (5, "info")
    assert set(map(tuple, found["admin_emails"].values())) == {()}
    assert PASSWORD not in json.dumps(found)


POOLED = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'carillon-%'"
    " AND application_name NOT IN ('carillon-listen', 'carillon-notify')"
)
"""Those who listen and who ring never lie idle."""


async def pooled(stand: Galaxy) -> set[int]:
    return {row["pid"] for row in await stand.rows(POOLED)}


async def used_since(stand: Galaxy, moment: Any) -> set[int]:
    return {row["pid"] for row in await stand.rows(f"{POOLED} AND query_start > $1", moment)}


OTHERWISE = {
    "NOTIFICATION_REDIS_DB": "3",
    "NOTIFICATION_REDIS_OPERATION_TIMEOUT": "1s",
    "NOTIFICATION_INTENTS_STREAM": "other:intents",
    "NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT": "700ms",
    "NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM": "other:events",
    "NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN": "77",
    "NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM": "other:mails",
    "NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS": "5",
    "NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS": "9",
    "NOTIFICATION_ROUTE_LEASE_TTL": "90s",
    "NOTIFICATION_IDEMPOTENCY_TTL": "1h30m",
    "NOTIFICATION_POSTGRES_MAX_OPEN_CONNS": "4",
    "NOTIFICATION_POSTGRES_CONN_MAX_LIFETIME": "2s",
    "NOTIFICATION_DEAD_LETTER_TTL": "1h",
    "NOTIFICATION_RECORD_TTL": "1h",
}


@pytest.mark.req("S1-22", "S1-23", "S1-24", "S1-25", "S1-26", "S1-27", "S1-28", "S1-30", "S1-64")
async def test_everything_otherwise(galaxy: Galaxy) -> None:
    port = galaxy.port
    program = galaxy.start(**OTHERWISE, NOTIFICATION_INTERNAL_HTTP_ADDR=f":{port}")
    assert sockets(program.pid)[0] == {port}
    redis: Any = RedisClient.from_url(galaxy.server.url(3), username="default", password=PASSWORD)
    async with redis, monitored(redis) as commands:
        entry_id = (await redis.xadd("other:intents", intent())).decode()
        routes = await galaxy.routes(entry_id, status="published")
        assert {row["channel"]: row["max_attempts"] for row in routes.values()} == {"push": 5, "email": 9}
        (read, *_) = await commands.until(["XREAD"])
        assert read[read.index("BLOCK") + 1] == "700"
        push = (await commands.until(["XADD", "other:events"]))[0]
        assert push[2:6] == ["MAXLEN", "~", "77", "*"]
        taken = await commands.until_some(lambda words: words[0].upper() == "SET" and "route_leases" in words[1], 4)
        assert all(60_000 < int(words[words.index("PX") + 1]) <= 90_000 for words in taken)
        assert len(taken) == 4
        assert await redis.xlen("other:mails") == 2
        assert await redis.ttl("notification:stream_offsets:b3RoZXI6aW50ZW50cw") == -1
        first = await pooled(galaxy)

        async def renewed() -> bool:
            """A connection that is too old is replaced when it is needed next; one that nobody needs may lie there."""
            (began,) = await galaxy.rows("SELECT clock_timestamp() AS moment")
            await galaxy.routes((await redis.xadd("other:intents", intent())).decode(), status="published")
            used = await used_since(galaxy, began["moment"])
            return bool(used) and not first & used

        await until(renewed, timeout=60, what="other connections after their lifetime")
    # Nothing of it is anywhere else.
    assert await galaxy.redis.dbsize() == 0
    (row,) = await galaxy.rows("SELECT DISTINCT idempotency_expires_at - accepted_at AS kept FROM records")
    assert row["kept"] == timedelta(minutes=90)
    warned = {line["setting"] for line in program.events("setting_ignored")}
    assert warned == {"NOTIFICATION_DEAD_LETTER_TTL", "NOTIFICATION_RECORD_TTL"}
    assert await backends(galaxy) <= 4


@pytest.mark.req("S1-22")
async def test_redis_has_its_time_to_answer(galaxy: Galaxy) -> None:
    asked = asyncio.Semaphore(0)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.release()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    longer = {"NOTIFICATION_REDIS_OPERATION_TIMEOUT": "10m", "NOTIFICATION_ROUTE_LEASE_TTL": "20m"}
    patient = galaxy.launch(NOTIFICATION_REDIS_MASTER_ADDR=address, **longer)
    await asked.acquire()
    brief = galaxy.launch(NOTIFICATION_REDIS_MASTER_ADDR=address, NOTIFICATION_REDIS_OPERATION_TIMEOUT="500ms")
    code, said = await asyncio.to_thread(exit_of, brief)
    assert code not in {0, None}
    assert f"Redis at {address} cannot be reached: " in said
    assert patient.returncode is None, "it waits longer where it may"
    patient.kill()
    server.close()


@pytest.mark.req("S1-23")
async def test_no_more_connections_than_allowed_under_load(galaxy: Galaxy) -> None:
    galaxy.start(NOTIFICATION_POSTGRES_MAX_OPEN_CONNS="8", NOTIFICATION_POSTGRES_MAX_IDLE_CONNS="2")
    async with galaxy.redis.pipeline() as pipe:
        for _ in range(300):
            pipe.xadd(INTENTS, intent())
        last = (await pipe.execute())[-1].decode()
    seen = 0
    while not await galaxy.rows("SELECT 1 FROM records WHERE notification_id = $1", last):
        seen = max(seen, await backends(galaxy))
    await galaxy.published(MAIL, 600)
    assert 1 <= max(seen, await backends(galaxy)) <= 8

    async def few() -> bool:
        """Two may lie idle; two more are asked every second, for what is due and for the gauges."""
        return 0 < len(await pooled(galaxy)) <= 2 + 2

    await until(few, timeout=60, what="no more idle connections than allowed")


@pytest.mark.req("S1-31")
async def test_the_user_service_has_a_second(galaxy: Galaxy) -> None:
    program = galaxy.start(NOTIFICATION_LOG_LEVEL="debug")
    await galaxy.routes(await galaxy.publish(intent()), status="published")
    silence = threading.Event()
    # Silent every time: a question that was slow to arrive is asked again.
    galaxy.users.answer(*[Reply(gate=silence)] * 100, path="/api/v1/internal/users/slow")
    mark = program.mark()
    entry_id = await galaxy.publish(intent(recipient_user_ids_json='["slow"]'))
    await galaxy.users.until(1, lambda entry: entry["path"].endswith("/slow"))
    stopped = await program.until("door_stopped", since=mark)
    assert stopped["reason"].endswith("no answer within 1 s")
    # By its own clock, which no wait of this test belongs to.
    sought = await program.until("person_sought", lambda line: line["result"] == "failed", since=mark)
    assert 900 <= sought["duration_ms"] < 10_000
    galaxy.users.forget()
    silence.set()
    await galaxy.routes(entry_id, status="published")


@pytest.mark.req("S1-19", "S1-31")
async def test_quiet_and_quick_to_end(galaxy: Galaxy) -> None:
    settings = {"LOG_LEVEL": "error", "SHUTDOWN_TIMEOUT": "300ms", "USER_SERVICE_TIMEOUT": "60s"}
    program = galaxy.start(**{f"NOTIFICATION_{name}": value for name, value in settings.items()})
    await galaxy.routes(await galaxy.publish(intent()), status="published")
    assert {line["event"] for line in program.lines} == {"ready"}
    silence = threading.Event()
    galaxy.users.answer(Reply(gate=silence), path="/api/v1/internal/users/slow")
    await galaxy.publish(intent(recipient_user_ids_json='["slow"]'))
    await galaxy.users.until(1, lambda entry: entry["path"].endswith("/slow"))
    began = time.monotonic()
    program.terminate()
    assert await asyncio.to_thread(program.wait) == 0
    assert time.monotonic() - began < 40
    silence.set()


@pytest.mark.req("S1-19")
async def test_debug_says_more(galaxy: Galaxy) -> None:
    program = galaxy.start(NOTIFICATION_LOG_LEVEL="debug")
    await galaxy.publish(intent())
    await program.until("person_sought")
