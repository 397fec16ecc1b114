"""History in ClickHouse: each ended route once, a partition per day, old partitions deleted, and the queries."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from carillon.config.sections import HistorySettings
from carillon.domain.errors import ArchiveUnavailable, ConfigurationError
from carillon.upkeep.history.copier import ArchiveAddress, ClickHouse
from tests.support.clickhouse import ClickHouse as Server
from tests.support.clickhouse import clickhouse_fixture, ending, place_fixture
from tests.support.waiting import until

pytestmark = pytest.mark.slow

server = clickhouse_fixture()
place = place_fixture()

COUNT = "SELECT count() AS n FROM notification_history FINAL"


async def test_a_table_that_does_not_replace_counts_twice(place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=60)
    plain = archive._sql["table"].replace("ReplacingMergeTree(version)", "MergeTree")  # noqa: SLF001 - the guard itself
    assert plain != archive._sql["table"]  # noqa: SLF001 - as above
    archive._sql["table"] = plain  # noqa: SLF001 - as above
    for statement in archive._sql:  # noqa: SLF001 - as above
        archive._sql[statement] = archive._sql[statement].replace(" FINAL", "")  # noqa: SLF001 - as above
    repeated = ending()
    for _ in range(2):
        await archive.add([repeated])
    (hour,) = await archive.ask("volume", by="hour", seconds=3600, channel="", type="")
    assert hour["total"] == 2


async def test_what_ended_again_replaces_its_line(place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=60)
    first = ending(timedelta(seconds=5), status="dead_letter", error="timeout")
    again = msgspec.structs.replace(first, status="published", error=None, changed_us=first.changed_us + 1)
    await archive.add([again])
    # Copied late, as after a rewind: the later word stays.
    await archive.add([first])
    (hour,) = await archive.ask("volume", by="day", seconds=3600, channel="", type="")
    assert (hour["total"], hour["published"], hour["dead_letter"]) == (1, 1, 0)


async def test_what_is_asked_is_answered(place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=60)
    fast = [ending(notification_id=f"f-{number}") for number in range(98)]
    slow = [ending(notification_id=f"s-{number}", accepted_us=0, wanted_us=None) for number in range(2)]
    slow = [msgspec.structs.replace(one, accepted_us=one.ended_us - 7_000_000) for one in slow]
    other: dict[str, Any] = {
        "provider": "twilio",
        "channel": "sms",
        "notification_type": "code",
        "status": "dead_letter",
    }
    lost = [ending(notification_id=f"l-{number}", error="timeout", **other) for number in range(3)]
    await archive.add([*fast, *slow, *lost])
    asked = {"seconds": 3600, "channel": "", "type": ""}
    volume = await archive.ask("volume", by="hour", **asked)
    assert sum(hour["total"] for hour in volume) == 103
    (spread,) = await archive.ask("latency", by="provider", **asked)
    assert (spread["name"], spread["published"], spread["slowest"]) == ("sse", 100, 7000)
    assert list(spread["percentiles"])[:3] == [40, 40, 40]
    assert list(spread["percentiles"])[3] == 7000
    for by, name in (("provider", "twilio"), ("type", "code"), ("channel", "sms")):
        (failed,) = await archive.ask("failures", by=by, **asked)
        assert (failed["name"], failed["failed"], failed["total"], list(failed["causes"])) == (name, 3, 3, ["timeout"])
    assert not await archive.ask("failures", by="hour", **(asked | {"channel": "sse"}))
    assert not await archive.ask("latency", by="hour", **(asked | {"type": "code"}))


@pytest.mark.req("X4-5", "S4-14")
async def test_days_are_partitions_and_old_lines_leave(place: Server) -> None:
    archive = ClickHouse(place.url, keep_days=HistorySettings().keep_days, timeout_seconds=60)
    ages = [timedelta(), timedelta(days=1), timedelta(days=29), timedelta(days=32)]
    await archive.add([ending(age, notification_id=f"n-{age.days}") for age in ages])
    parts = "SELECT uniqExact(partition) AS n FROM system.parts WHERE table = 'notification_history' AND active"
    assert (await asyncio.to_thread(place.rows, parts))[0]["n"] >= 3
    await asyncio.to_thread(place.command_of, "OPTIMIZE TABLE notification_history FINAL")
    ids = await asyncio.to_thread(place.rows, "SELECT notification_id FROM notification_history FINAL")
    assert {row["notification_id"] for row in ids} == {"n-0", "n-1", "n-29"}
    shorter = ClickHouse(place.url, keep_days=7, timeout_seconds=60)
    await shorter.add([ending(notification_id="new")])

    async def older_left() -> bool:
        await asyncio.to_thread(place.command_of, "OPTIMIZE TABLE notification_history FINAL")
        ids = await asyncio.to_thread(place.rows, "SELECT notification_id FROM notification_history FINAL")
        return {row["notification_id"] for row in ids} == {"n-0", "n-1", "new"}

    await until(older_left, timeout=30, what="what is older than the new limit gone")


async def test_a_server_that_lost_its_table_gets_a_new_one(place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=60)
    await archive.add([ending()])
    await asyncio.to_thread(place.command_of, "DROP TABLE notification_history SYNC")
    with pytest.raises(ArchiveUnavailable, match="notification_history"):
        await archive.add([ending()])
    await archive.add([ending()])
    assert (await asyncio.to_thread(place.rows, COUNT))[0]["n"] == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("clickhouse.example:8123", "must begin with"),
        ("http://", "must begin with"),
        ("ftp://x", "must begin with"),
        ("chdb://data", "names no folder"),
        ("chdb:///", "names no folder"),
        ("http://host:port", "is not a URL"),
    ],
)
def test_a_wrong_url_is_told(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ArchiveAddress.parse(url)


def test_urls_are_read() -> None:
    served = ArchiveAddress.parse("https://me:s%40crt@ch.example:8443/notes")
    assert (served.scheme, served.host, served.port, served.database) == ("https", "ch.example", 8443, "notes")
    assert (served.username, served.password) == ("me", "s@crt")
    assert ArchiveAddress.parse("chdb:////var/lib/history").folder == "/var/lib/history"


@pytest.mark.req("P-220")
async def test_an_erased_person_leaves_no_line_and_others_keep_theirs(place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=60)
    await archive.forget(None, "canary")
    people = [("canary", None), ("canary", "acme"), ("other", None)]
    for number, (user, tenant) in enumerate(people):
        line = ending(notification_id=f"n-{number}", user_id=user, tenant_id=tenant)
        # A line that is copied again lies in a second part until ClickHouse merges: both must go.
        await archive.add([line])
        await archive.add([line])
    await archive.forget(None, "canary")
    left = "SELECT user_id, tenant_id FROM notification_history"
    rows = await asyncio.to_thread(place.rows, left)
    assert {(row["user_id"], row["tenant_id"]) for row in rows} == {("canary", "acme"), ("other", "")}
    await archive.forget("acme", "canary")
    await archive.forget("acme", "canary")
    assert {row["user_id"] for row in await asyncio.to_thread(place.rows, left)} == {"other"}


async def test_a_line_that_was_being_copied_goes_too(place: Server) -> None:
    archive = ClickHouse(place.url, timeout_seconds=60)
    await archive.add([ending(notification_id=f"n-{number}") for number in range(3)])
    await archive.forget_notifications(["n-0", "n-2", "it's not there"])
    rows = await asyncio.to_thread(place.rows, "SELECT notification_id FROM notification_history")
    assert [row["notification_id"] for row in rows] == ["n-1"]
