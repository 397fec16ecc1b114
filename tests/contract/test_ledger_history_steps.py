"""The console's charts on both engines: what ended and what was accepted in each step of a time."""

import time

import pytest

from carillon.domain.ports import HistorySteps
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import bury, enrolment, finish, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()
MINUTE = 60_000


def last(minutes: int) -> HistorySteps:
    """So many steps of a minute, and as many before."""
    end = (int(time.time() * 1000) // MINUTE + 1) * MINUTE
    begin = end - minutes * MINUTE
    return HistorySteps(from_ms=begin - minutes * MINUTE, step_from_ms=begin, until_ms=end, step_ms=MINUTE)


async def ended(ledger: Ledger) -> None:
    """Two mails delivered and one given up, a push delivered; one waits."""
    mails = [enrolment(route(f"ann{at}"), notification_type="order.paid", tenant_id="acme") for at in range(3)]
    push = enrolment(route("bob", channel="push", address="token"), notification_type="hello")
    await ledger.enrol([*mails, push])
    claims = await ledger.claim([want()], 10, "w")
    given_up = next(claim for claim in claims if claim.channel == "email")
    await ledger.settle([bury(claim) if claim is given_up else finish(claim) for claim in claims])
    await ledger.enrol([enrolment(route("waits"))])


@pytest.mark.req("P-546")
async def test_what_ended_and_what_was_accepted_is_counted_in_its_step(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger)
    await engine.grow_old("routes", "published_at", 90)
    steps = last(10)
    rows, accepted = await ledger.history({}, steps)
    assert {
        status: sum(row["routes"] for row in rows if row["status"] == status) for status in ("published", "dead_letter")
    } == {
        "published": 3,
        "dead_letter": 1,
    }
    at = {row["status"]: row["step"] for row in rows}
    assert at["dead_letter"] - at["published"] in {1, 2}
    assert sum(row["accepted"] for row in accepted) == 5
    assert {row["step"] for row in accepted} <= {8, 9}


async def test_a_time_before_the_first_step_has_a_negative_number(engine: Engine, ledger: Ledger) -> None:
    await ended(ledger)
    await engine.grow_old("routes", "published_at", 90 + 60)
    rows, _ = await ledger.history({}, last(2))
    assert {row["step"] for row in rows if row["status"] == "published"} <= {-1, -2}
    await engine.grow_old("routes", "published_at", 3600)
    rows, _ = await ledger.history({}, last(2))
    assert [row["status"] for row in rows] == ["dead_letter"]


@pytest.mark.req("P-546")
async def test_by_channel_provider_template_and_tenant(ledger: Ledger) -> None:
    await ended(ledger)
    steps = last(5)
    told = {
        by: {row["name"]: (row["delivered"], row["failed"]) for row in await ledger.history_groups(by, steps, 10)}
        for by in ("channel", "template", "tenant")
    }
    assert told["channel"] == {"email": (2, 1), "push": (1, 0)}
    assert told["template"] == {"order.paid": (2, 1), "hello": (1, 0)}
    assert told["tenant"] == {"acme": (2, 1), "": (1, 0)}
    assert len(await ledger.history_groups("template", steps, 1)) == 1
    for filters, number, notifications in (
        ({"channel": "push"}, 1, 1),
        ({"template": "order.paid"}, 3, 3),
        ({"tenant": "acme"}, 3, 3),
        ({"tenant": ""}, 1, 2),
        ({"provider": "nobody"}, 0, 0),
    ):
        rows, accepted = await ledger.history(filters, steps)
        assert sum(row["routes"] for row in rows) == number, filters
        assert sum(row["accepted"] for row in accepted) == notifications, filters
