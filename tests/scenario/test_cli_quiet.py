"""`carillon people quiet` and `holidays`: what holds for a person, and when a message sent now would go."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.process import Program, run_carillon

pytestmark = pytest.mark.req("P-634")

SETTINGS = """
extends = "local"
[http]
port = 0
[ledger]
url = "sqlite:///{folder}/c.db"
[preferences]
quiet_hours = {counts}
[preferences.holidays]
DE = ["01-01", "12-25", "12-26", "2026-12-31"]
AT = ["01-06"]
[categories.security]
urgent = true
"""
HOURS = {"enabled": True, "startTime": "22:00", "endTime": "07:00"}
PEOPLE = {
    "ada": {"timeZone": "Europe/Berlin", "quietHours": {**HOURS, "holidays": "DE"}},
    "bob": {"timeZone": "America/New_York", "quietHours": {**HOURS, "timezone": "America/New_York", "days": ["fri"]}},
    "cid": {"timeZone": "Asia/Tokyo"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("quiet")
    for name, counts in (("carillon", "true"), ("never", "false")):
        (made / f"{name}.toml").write_text(SETTINGS.format(folder=made, counts=counts))
    return made


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with Program("serve", "--config", "carillon.toml", cwd=folder) as program:
        client = Client.of(program)
        for name, wishes in PEOPLE.items():
            assert client.call("PUT", f"/api/v1/preferences/user/{name}", wishes).status == 200
        yield client


def asked(folder: Path, *words: str, config: str = "carillon") -> str:
    found = run_carillon(["people", *words, "--config", f"{config}.toml"], cwd=folder)
    assert found.returncode == 0, found.stderr
    return found.stdout


def seen(folder: Path, *words: str, config: str = "carillon") -> Any:
    return json.loads(asked(folder, *words, "--json", config=config))


@pytest.mark.usefixtures("client")
def test_at_night_it_waits_for_the_morning_and_by_day_it_goes_at_once(folder: Path) -> None:
    night = seen(folder, "quiet", "ada", "--at", "2026-11-17T23:30")
    assert (night["goesAt"], night["counts"]) == ("2026-11-18T07:00+01:00", True)
    assert night["quietHours"]["holidays"] == "DE"
    assert night["holidays"] == ["2026-12-25", "2026-12-26", "2026-12-31", "2027-01-01", "2027-12-25"]
    day = seen(folder, "quiet", "ada", "--at", "2026-11-17T12:00Z")
    assert day["at"] == day["goesAt"] == "2026-11-17T13:00+01:00"
    said = asked(folder, "quiet", "ada", "--at", "2026-11-17T23:30")
    assert "22:00 to 07:00 Europe/Berlin, every day" in said
    assert "DE: 2026-12-25, 2026-12-26" in said
    assert "would go at 2026-11-18T07:00+01:00, after 7 h 30 min: quiet hours or a holiday." in said
    assert "Never waiting: the priority high, synchronous sends, the category security." in said


@pytest.mark.usefixtures("client")
def test_holidays_that_follow_each_other_and_the_night_after_them_are_waited_for(folder: Path) -> None:
    assert seen(folder, "quiet", "ada", "--at", "2026-12-24T23:00")["goesAt"] == "2026-12-27T07:00+01:00"
    assert seen(folder, "quiet", "ada", "--at", "2026-12-31T12:00")["goesAt"] == "2027-01-02T07:00+01:00"


@pytest.mark.usefixtures("client")
def test_the_second_person_has_a_clock_and_days_of_their_own(folder: Path) -> None:
    assert seen(folder, "quiet", "bob", "--at", "2026-11-20T23:00")["goesAt"] == "2026-11-21T07:00-05:00"
    thursday = seen(folder, "quiet", "bob", "--at", "2026-11-19T23:00")
    assert thursday["at"] == thursday["goesAt"]
    for nobody in ("cid", "somebody-unknown"):
        found = seen(folder, "quiet", nobody, "--at", "2026-11-19T23:00Z")
        assert found["at"] == found["goesAt"]
        assert found["because"] == "the person has no quiet hours"
    assert seen(folder, "quiet", "cid", "--at", "2026-11-19T23:00Z")["timeZone"] == "Asia/Tokyo"


@pytest.mark.usefixtures("client")
def test_settings_that_do_not_count_quiet_hours_say_so(folder: Path) -> None:
    found = seen(folder, "quiet", "ada", "--at", "2026-11-17T23:30", config="never")
    assert (found["at"] == found["goesAt"], found["counts"]) == (True, False)
    assert found["because"] == "preferences.quiet_hours is false: nothing waits"


def steps(told: Any, name: str) -> list[Any]:
    """The gates of this name, wherever the answer has them."""
    if isinstance(told, list):
        return [step for one in told for step in steps(one, name)]
    if not isinstance(told, dict):
        return []
    return [told] if told.get("step") == name else steps(list(told.values()), name)


def test_it_is_what_explain_says(folder: Path, client: Client) -> None:
    """By the clock of this moment, for a person whose quiet hours hold all day."""
    always = {"enabled": True, "startTime": "00:00", "endTime": "23:59", "timezone": "UTC"}
    assert client.call("PUT", "/api/v1/preferences/user/dan", {"quietHours": always}).status == 200
    found = seen(folder, "quiet", "dan")
    body = {
        "templateKey": "welcome",
        "channel": "push",
        "userId": "dan",
        "recipient": "d",
        "data": {"name": "D", "link": "l"},
    }
    reply = client.call("POST", "/api/v1/notifications/explain", body).body
    (step,) = steps(reply, "quiet_hours")
    ends = dt.datetime.fromtimestamp(step["detail"]["notBefore"] / 1000, dt.UTC).isoformat(timespec="minutes")
    assert found["goesAt"] == ends


def test_calendars_are_listed(folder: Path) -> None:
    found = seen(folder, "holidays")["items"]
    assert [one["name"] for one in found] == ["DE", "AT"]
    assert found[1]["days"] == ["01-06"]
    assert [day[5:] for day in found[1]["next"]] == ["01-06"] * 5
    assert "DE: 01-01, 12-25" in asked(folder, "holidays")


def test_mistakes_are_named(folder: Path) -> None:
    wrong = run_carillon(["people", "quiet", "ada", "--at", "tomorrow", "--config", "carillon.toml"], cwd=folder)
    assert wrong.returncode == 2
    assert "--at: 'tomorrow' is not a time" in wrong.stderr
