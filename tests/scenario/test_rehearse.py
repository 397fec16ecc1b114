"""`carillon rehearse`: outages in virtual time, played through the real policies of a user's own settings."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from carillon.cli import app
from carillon.cli.rehearse import verdict
from carillon.config.reading import load
from carillon.config.settings import Settings
from carillon.domain import decide
from carillon.rehearsal import rehearse
from carillon.upkeep.rehearsals.figures import Figures
from carillon.upkeep.rehearsals.plan import RehearsalPlan, read_outage, read_traffic

pytestmark = pytest.mark.req("P-574")

TWO_PROVIDERS = """
extends = "local"

[channels]
sms = ["first", "second"]

[providers.first]
kind = "sandbox"

[providers.second]
kind = "sandbox"

[policy.retry."*/*"]
max_attempts = 6
base_delay_seconds = 5
backoff_factor = 2.0
max_delay_seconds = 600
timeout_seconds = 10
failover_after_attempts = 2
on_open = "{on_open}"
on_unknown = "retry"
"""


def settings(folder: Path, on_open: str = "defer", more: str = "") -> Settings:
    path = folder / f"{on_open}.toml"
    path.write_text(TWO_PROVIDERS.format(on_open=on_open) + more, encoding="utf-8")
    return load(None, path, {})


def played(config: Settings, *outages: str, per_second: float = 0.5, seconds: float = 1200.0, **more: Any) -> Figures:
    plan = RehearsalPlan(
        per_second=per_second,
        seconds=seconds,
        traffic=read_traffic(["sms"], ["sms"]),
        outages=tuple(read_outage(text, ["first", "second"]) for text in outages),
        **more,
    )
    return rehearse(config, plan)


def test_without_an_outage_everybody_is_told_in_time(tmp_path: Path) -> None:
    found = played(settings(tmp_path))
    assert 500 < found.accepted == found.delivered
    assert (found.late, found.failed_over, found.given_up, found.repeated, found.waiting) == (0, 0, 0, 0, 0)
    assert found.by_provider == {"first": found.accepted, "second": 0}
    assert found.breakers == []


def test_the_same_seed_gives_the_same_figures_and_another_one_others(tmp_path: Path) -> None:
    config = settings(tmp_path)
    seen = [played(config, "first 5m at 2m", seconds=600.0, seed=seed) for seed in (7, 7, 8)]
    assert seen[0] == seen[1] != seen[2]
    assert seen[0].failed_over > 0


def test_while_the_first_provider_is_down_the_second_tells_people(tmp_path: Path) -> None:
    found = played(settings(tmp_path), "first 10m at 5m", prices={"first": 0.01, "second": 0.02})
    assert found.accepted == found.delivered == found.by_provider["first"] + found.by_provider["second"]
    assert 200 < found.failed_over == found.by_provider["second"] < 400
    (breaker,) = found.breakers
    assert breaker.provider == "first"
    assert 300 <= breaker.begins < 360
    assert breaker.ends is not None
    assert 900 <= breaker.ends < 1000
    assert found.cost == pytest.approx(0.01 * found.by_provider["first"] + 0.02 * found.by_provider["second"])


def test_what_the_policy_says_about_an_open_breaker_decides_between_late_and_lost(tmp_path: Path) -> None:
    both = ("first 10m at 5m", "second 10m at 5m")
    waiting, buried = (played(settings(tmp_path, on_open), *both) for on_open in ("defer", "bury"))
    assert (waiting.delivered, waiting.given_up) == (waiting.accepted, 0)
    assert waiting.late > 200
    assert waiting.lateness is not None
    assert 500 < waiting.lateness.longest < 900
    assert waiting.caught_up is not None
    assert 0 < waiting.caught_up < 300
    assert waiting.peak > 200
    assert buried.given_up > 200
    assert buried.reasons["circuit_open"] > 200
    assert buried.delivered + buried.given_up == buried.accepted


SELDOM = "[work]\npoll_seconds = 10\n"
"""Hours of looking in vain would cost the test more than the outage."""
SIX_HOURS = ("first 6h at 5m", "second 6h at 5m")


def outlived(config: Settings, *outages: str) -> Figures:
    """Few people, who wait for hours: so each of them is a probe about ten times, and has six attempts."""
    return played(config, *outages, per_second=0.05, seconds=1200.0)


@pytest.mark.req("P-570")
@pytest.mark.parametrize("kind", ["", " hanging"])
def test_nobody_is_given_up_in_an_outage_of_six_hours_that_ends(tmp_path: Path, kind: str) -> None:
    found = outlived(settings(tmp_path, more=SELDOM), *(f"{outage}{kind}" for outage in SIX_HOURS))
    assert found.accepted > 40
    assert (found.delivered, found.given_up, found.waiting) == (found.accepted, 0, 0)
    assert found.calls > found.accepted + 300, "probes were made all the time"
    assert found.calls > 6 * found.accepted, "more often than people have attempts"


def test_control_probes_that_spend_attempts_give_people_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "_spends_nothing", lambda _policy, _standing: False)
    assert outlived(settings(tmp_path, more=SELDOM), *SIX_HOURS).given_up > 0


def test_a_vendor_that_accepts_and_does_not_answer_makes_people_get_messages_twice(tmp_path: Path) -> None:
    found = played(settings(tmp_path), "first 5m at 2m silent")
    assert found.repeated > 0
    assert found.calls > found.accepted


def test_a_large_load_is_played_by_a_sample_that_stands_for_all(tmp_path: Path) -> None:
    found = played(settings(tmp_path), "first 5m at 2m", per_second=50.0, most=500)
    assert found.scale == 120
    assert found.accepted == pytest.approx(60_000, rel=0.1)
    assert found.accepted % found.scale == 0
    assert found.delivered == found.accepted


def test_the_command_prints_the_figures_and_draws_the_chart(tmp_path: Path) -> None:
    settings(tmp_path)
    drawn = tmp_path / "chart.svg"
    asked = ["rehearse", "--config", str(tmp_path / "defer.toml"), "--load", "30/min", "--for", "20m", "--mix", "sms"]
    asked += ["--outage", "first 5m at 5m", "--outage", "second 5m at 5m slow 2s", "--chart", str(drawn)]
    seen = CliRunner().invoke(app, asked)
    assert seen.exit_code == 0, seen.output
    assert "Everybody would have been told" in seen.output
    assert "The breaker of first was open or half open from 5 min" in seen.output
    svg = drawn.read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "first down" in svg
    assert "second slow" in svg
    again = CliRunner().invoke(app, [*asked[:-2], "--json"])
    told = json.loads(again.stdout)
    assert told["delivered"] == told["accepted"] > 500
    assert told["failedOver"] > 0
    assert len(told["slices"]) >= 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--load", "fast"], "is not a rate such as 500/s"),
        (["--outage", "twilio 2h"], "the providers are"),
        (["--outage", "sandbox"], "write"),
        (["--outage", "sandbox 2h at noon"], "is not a duration"),
        (["--outage", "sandbox 2h exploding"], "write"),
        (["--outage", "sandbox 2h failing 300%"], "is not a share"),
        (["--mix", "pigeon=3"], "have no channel 'pigeon'"),
        (["--mix", "sms=0"], "write CHANNEL"),
        (["--price", "sandbox=cheap"], "is not a price"),
        (["--latency", "nobody=3s"], "write NAME=VALUE"),
        (["--blueprint", "billing"], "cannot be rehearsed"),
        (["--blueprint", "push-worker"], "cannot be rehearsed"),
        (["--chart", "/nowhere/chart.svg"], "there is no folder /nowhere"),
        (["--for", "10m", "--outage", "sandbox 5m at 10m"], "after the last notification"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(arguments: list[str], said: str) -> None:
    seen = CliRunner().invoke(app, ["rehearse", *arguments])
    assert seen.exit_code != 0
    assert said in str(seen.exception) + seen.output


@pytest.mark.req("P-874")
def test_of_overlapping_outages_the_worst_holds_in_any_order(tmp_path: Path) -> None:
    both = ("first 20m slow 1s", "first 5m at 5m")
    found = [played(settings(tmp_path), *texts) for texts in (both, both[::-1])]
    assert found[0] == found[1]
    assert found[0].failed_over > 0
    assert any(300 <= one.begins < 360 for one in found[0].breakers)


@pytest.mark.req("P-874")
@pytest.mark.parametrize("more", ['[sms]\ncountries = ["DE"]', '[sms]\ncheck = "valid"'])
def test_the_numbers_of_a_rehearsal_are_nobodys(tmp_path: Path, more: str) -> None:
    """Rules about countries and numbers are about real people; they refuse no notification that is played."""
    found = played(settings(tmp_path, more=more), seconds=60.0)
    assert found.delivered == found.accepted > 0


@pytest.mark.req("P-874")
def test_a_rehearsal_in_which_nothing_arrives_says_so(tmp_path: Path) -> None:
    found = played(settings(tmp_path), per_second=0.0001, seconds=1.0)
    assert found.accepted == 0
    assert verdict(found).startswith("No notification arrived")
    assert verdict(msgspec.structs.replace(found, accepted=5, skipped=5)) == "5 notifications would have been skipped."


@pytest.mark.req("P-874")
def test_an_outage_from_the_very_beginning_may_say_so() -> None:
    assert read_outage("first 2h at 0m", ["first"]) == read_outage("first 2h", ["first"])
