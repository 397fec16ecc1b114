"""What the console and `top` say needs attention: one rule for both, made by the server."""

import pytest

from carillon.domain.breaker import State
from carillon.upkeep.api.pauses import PauseView
from carillon.upkeep.api.targets import TargetInfo
from carillon.upkeep.console.attention import (
    Attention,
    Counts,
    Failing,
    LaneView,
    Seen,
    attention,
    failing,
    newest_errors,
)

pytestmark = pytest.mark.req("P-980")

CALM = Counts(routes={"published": 7}, waiting=0)
CHAINS = {"sms": ["north", "south"], "push": ["north"]}


def said(figures: Counts = CALM, **seen: object) -> list[tuple[str, str, str | None]]:
    found = attention(figures, Seen(chains=CHAINS, **seen))  # type: ignore[arg-type]
    return [(note.mood, note.text, note.page) for note in found.notes]


def figures(**changes: object) -> Counts:
    return Counts(**{"routes": {"published": 7}, "waiting": 0, **changes})  # type: ignore[arg-type]


def a_failing(provider: str = "north", outcome: str = "unavailable") -> Failing:
    rows = [
        {"channel": "sms", "provider": provider, "outcome": outcome, "error": f"20003 {at}", "started_at": 1000.0}
        for at in range(20)
    ]
    (found,) = failing(rows, 2.0)
    return found


def disabled(**changes: object) -> TargetInfo:
    given: dict[str, object] = {
        "provider": "webhook",
        "endpoint": "hooks.example.org:443",
        "tenant_id": None,
        "state": "disabled",
        "failures": 9,
        "failing_since": "2026-11-15T09:30:00.000Z",
        "next_probe_at": None,
        "per_second": None,
        "paused_until": None,
    }
    return TargetInfo(**{**given, **changes})  # type: ignore[arg-type]


def paused(scope: str, name: str) -> PauseView:
    return PauseView(
        scope=scope,  # type: ignore[arg-type]
        name=name,
        provider=None,
        what=f"{scope} {name}",
        by="root",
        reason="the printer burns",
        since="2026-11-18T09:30:00.000Z",
    )


@pytest.mark.parametrize(
    ("published", "waiting", "text"),
    [
        (0, 0, "Nothing has been sent yet. Every accepted notification will be delivered, skipped, or shown here."),
        (7, 0, "Every accepted notification is delivered, skipped or on its way."),
        (7, 1, "Every accepted notification is delivered, skipped or on its way; 1 route waits for its turn."),
        (0, 1200, "Every accepted notification is delivered, skipped or on its way; 1,200 routes wait for their turn."),
    ],
)
def test_calm(published: int, waiting: int, text: str) -> None:
    found = attention(figures(routes={"published": published}, waiting=waiting), Seen())
    assert found == Attention(state="calm", text=text, notes=[])


def test_a_server_that_is_away_and_one_that_limps() -> None:
    checks = {
        "postgres": {"status": "healthy"},
        "redis": {"status": "degraded", "error": "ConnectionError"},
        "kafka": {"status": "unhealthy"},
        "directory": {"status": "degraded"},
    }
    assert said(checks=checks) == [
        ("bad", "redis does not answer: ConnectionError", None),
        ("bad", "kafka does not answer", None),
        ("bad", "directory is degraded", None),
    ]


@pytest.mark.req("P-785")
def test_a_failing_provider_is_named_once_with_its_breaker() -> None:
    text = "sms fails: 100 % of 20 calls to north in 5 min, the newest with “20003 19”"
    seen = {"states": {"north": State.HALF_OPEN, "south": State.CLOSED}}
    waits = figures(failing=[a_failing()], routes={"failed": 20}, waiting=20)
    assert said(waits, **seen) == [
        ("bad", f"{text}; its breaker is half open", "notifications?status=queued&channel=sms")
    ]


@pytest.mark.req("P-1243")
def test_who_is_not_connected_is_no_failure_of_the_stream() -> None:
    away = {"channel": "sse", "provider": "sse", "outcome": "throttled", "error": "not connected", "started_at": 1000.0}
    here = away | {"outcome": "sent", "error": None}
    fails = away | {"outcome": "unavailable", "error": "no live connection accepted the notification"}
    assert failing([away] * 95 + [here] * 5, 2.0) == []
    (found,) = failing([away] * 90 + [here] * 5 + [fails] * 5 + [away], 2.0)
    assert (found.calls, found.failed, found.error) == (10, 5, fails["error"])
    assert newest_errors([fails, away]) == {"sse": fails["error"]}
    # Where the settings count it as a failure, it is one.
    (found,) = failing([away | {"outcome": "unavailable"}] * 5, 2.0)
    assert found.error == "not connected"


@pytest.mark.req("P-1024")
def test_what_fails_leads_to_those_that_it_has_hit() -> None:
    def leads(failing: Failing, **routes: int) -> list[str | None]:
        found = said(figures(failing=[failing], routes={"published": 7, **routes}))
        return [page for mood, _, page in found if mood == "bad"]

    waits, dead = "notifications?status=queued&channel=sms", "dead-letters?channel=sms"
    assert leads(a_failing(), failed=20, dead_letter=3) == [waits]
    assert leads(a_failing(), dead_letter=3) == [dead]
    # Nothing that was refused waits, although messages of other channels do.
    assert leads(a_failing(outcome="refused"), failed=20, dead_letter=3) == [dead]
    # Another provider took over all of them: neither list has one.
    assert leads(a_failing(outcome="refused"), failed=20) == ["notifications?channel=sms&q=20003%2019"]
    assert leads(a_failing()) == ["notifications?channel=sms&q=20003%2019"]


def test_a_breaker_is_named_once_however_many_channels_it_serves() -> None:
    seen = {"states": {"north": State.OPEN, "south": State.HALF_OPEN, "template_service": State.OPEN}}
    assert said(figures(errors={"north": "503"}), **seen) == [
        ("bad", "The breaker of north (sms, push) is open, after “503”", "providers"),
        ("bad", "The breaker of template_service is open", "providers"),
        ("wait", "The breaker of south (sms) is half open", "providers"),
    ]


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        (None, []),
        (60.0, []),
        (61.0, [("wait", "3 routes wait in bulk, the oldest for 61 s", "notifications?status=queued")]),
        (601.0, [("bad", "3 routes wait in bulk, the oldest for 10 min", "notifications?status=queued")]),
        (7200.0, [("bad", "3 routes wait in bulk, the oldest for 2 h", "notifications?status=queued")]),
        (200_000.0, [("bad", "3 routes wait in bulk, the oldest for 2 d", "notifications?status=queued")]),
    ],
)
def test_late_work(seconds: float | None, found: list[tuple[str, str, str]]) -> None:
    lane = LaneView(name="bulk", due=3, leased=0, oldest_due_seconds=seconds)
    assert said(figures(lanes=[lane])) == found


def test_what_somebody_has_stopped_and_what_was_given_up() -> None:
    endpoint = paused("endpoint", "webhook hooks.example.org:443")
    found = said(
        figures(routes={"published": 7, "dead_letter": 1}),
        pauses=[paused("lane", "bulk"), endpoint],
        targets=[disabled(), disabled(state="open"), disabled(endpoint="b.example:1", failing_since=None)],
    )
    assert found == [
        ("wait", "lane bulk is paused by root since 2026-11-18 09:30 UTC: the printer burns", "providers"),
        ("wait", f"{endpoint.what} is paused by root since 2026-11-18 09:30 UTC: the printer burns", "endpoints"),
        ("wait", "hooks.example.org:443 (webhook) fails since 2026-11-15 09:30 UTC and is disabled", "endpoints"),
        ("wait", "b.example:1 (webhook) is disabled", "endpoints"),
        ("wait", "1 dead letter waits for a decision", "dead-letters"),
    ]


def test_the_worst_comes_first_and_is_the_sentence_about_the_whole() -> None:
    late = LaneView(name="bulk", due=1, leased=0, oldest_due_seconds=90.0)
    found = attention(
        figures(lanes=[late], routes={"dead_letter": 2}), Seen(states={"north": State.OPEN}, chains=CHAINS)
    )
    assert found.state == "needed"
    assert found.text == found.notes[0].text == "The breaker of north (sms, push) is open"
    assert [note.about for note in found.notes] == ["breaker", "lane", "dead-letters"]
    assert attention(figures(lanes=[late]), Seen()).state == "watch"
    places = [(note.about, note.name) for note in found.notes]
    assert len(places) == len(set(places)), "the console keeps the focus by them"
