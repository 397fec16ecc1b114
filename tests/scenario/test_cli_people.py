"""Consent and timing on the command line: every wish of a send, and a person's preferences and page."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.test_timing_doors import prefer, routes
from tests.support.client import Client
from tests.support.process import Program, run_carillon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
SETTINGS = """extends = "local"
[consent]
url = "https://example.org"
keys = ["a key of this test, thirty-two characters"]
[categories.offers]
[preferences.holidays]
ALL = ["12-25"]
"""
DATA = {"name": "Ada", "link": "https://example.org/"}


def environment(folder: Path) -> dict[str, str]:
    return {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("people")
    (made / "c.toml").write_text(SETTINGS)
    return made


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    with Program("serve", "--config", str(folder / "c.toml"), env=environment(folder), cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture
def client(program: Program) -> Client:
    return Client.of(program)


def command(folder: Path, *words: str) -> Any:
    """What a command answers as JSON, or the words in which it refuses."""
    ran = run_carillon([*words, "--json"], env=environment(folder), cwd=folder)
    return json.loads(ran.stdout) if ran.stdout.startswith("{") else ran.stderr


def is_expired(client: Client, notification: str) -> bool:
    return bool(routes(client, notification)["push"]["gate"] == "expired")


@pytest.mark.req("P-853")
def test_the_command_line_has_every_wish(client: Client, program: Program, folder: Path) -> None:
    user = "cleo"
    prefer(client, user, timeZone="Pacific/Auckland")
    words = ["send", "welcome", "--channel", "push", "--user", user, "-d", "name=A", "-d", "link=x", "--wait", "0"]
    words += ["--url", str(program.wait_ready(60)["addresses"][0])]
    later = ("--at", "2096-01-31T18:00:00", "--time-zone", "recipient")
    for _ in range(2):
        replaced = command(folder, *words, *later, "--collapse-key", "score")
    first, second = (client.get(f"/api/v1/notifications?userId={user}").body["items"][at]["id"] for at in (1, 0))
    assert routes(client, first)["push"]["gate"] == "collapsed"
    assert (replaced["notificationId"], replaced["status"]) == (second, "queued")
    assert routes(client, second)["push"]["nextAttemptAt"].startswith("2096-01-31T05:00:00")
    for digest in ("key=comments,window=1h,max=9", '{"key": "comments", "window": "0 9 * * 1,3"}'):
        gathered = command(folder, *words, "--digest", digest)
        assert routes(client, gathered["notificationId"])["push"]["gate"] == "digest"
    # What expires before its time is never tried; without a time, a quick machine sends within a millisecond.
    for end in (("--expires-at", "2020-01-01T00:00:00Z"), ("--ttl", "PT0.001S", "--at", "2096-01-31T18:00:00Z")):
        over = command(folder, *words, *end)["notificationId"]
        wait_until(partial(is_expired, client, over), timeout=30, what="its end")
    wrong: dict[tuple[str, str], dict[str, Any]] = {
        ("--ttl", "soon"): {"ttl": "soon"},
        ("--digest", "key=a,window=soon"): {"digest": {"key": "a", "window": "soon"}},
        ("--time-zone", "Europe/Berlin"): {"timeZone": "Europe/Berlin"},
        ("--collapse-key", "a\nb"): {"collapseKey": "a\nb"},
    }
    for options, fields in wrong.items():
        body = {"templateKey": "welcome", "channel": "push", "userId": user, "data": DATA, **fields}
        refused = client.call("POST", "/api/v1/notifications/send", body).body["error"]["message"]
        assert refused in " ".join(str(command(folder, *words, *options)).split())
    assert "write it as key=comments" in str(command(folder, *words, "--digest", "comments"))


@pytest.mark.req("P-945")
@pytest.mark.parametrize("width", ["80", "200"])
@pytest.mark.parametrize("more", [(), ("--all",)])
def test_the_list_of_digests_can_be_read(
    client: Client, program: Program, folder: Path, width: str, more: tuple[str, ...]
) -> None:
    prefer(client, "fay")
    wish = {"digest": {"key": "[bold]comments", "window": "1h"}}
    body = {"templateKey": "welcome", "channel": "push", "userId": "fay", "data": DATA, **wish}
    assert client.call("POST", "/api/v1/notifications/send", body).status == 202
    open_ = client.get("/api/v1/digests?open=true").body["items"]
    (digest,) = [one for one in open_ if one["recipient"] == "user:fay"]
    address = str(program.wait_ready(60)["addresses"][0])
    environ = {**environment(folder), "COLUMNS": width}
    shown = run_carillon(["digests", "list", "--url", address, *more], env=environ, cwd=folder, check=True).stdout
    closes = digest["closesAt"]
    for whole in (digest["id"], "user:fay", "[bold]comments", f"{closes[:10]} {closes[11:16]} UTC"):
        assert any(whole in line for line in shown.splitlines()), shown
    assert max(len(line) for line in shown.splitlines()) <= int(width)


@pytest.mark.req("P-854")
def test_the_command_line_shows_and_changes_preferences(client: Client, folder: Path) -> None:
    prefer(client, "dana", timeZone="Europe/Berlin")
    path, config = "/api/v1/preferences/user/dana", ("--config", str(folder / "c.toml"))
    words = ("people", "preferences", "dana", *config)
    assert command(folder, *words) == client.get(path).body
    quiet = {"from": "22:00", "to": "07:00", "holidays": "ALL"}
    wish = {"categories": {"offers": {"email": False}}, "quietHours": quiet}
    changed = command(folder, *words, "--change", json.dumps(wish))
    assert changed == client.get(path).body
    assert (changed["categories"]["offers"]["email"], changed["quietHours"]["holidays"]) == (False, "ALL")
    assert command(folder, "people", "preferences", "dana", "--tenant", "acme", *config)["contacts"] == {}
    for wrong in ({"timeZone": "Mars/Base"}, {"categories": {"noise": {"email": False}}}, {"holydays": 1}):
        said = client.call("PATCH", path, wrong).body["error"]["message"]
        assert said in " ".join(str(command(folder, *words, "--change", json.dumps(wrong))).split())
    assert client.get(path).body == changed
    assert command(folder, *words, "--change", "{}", "--replace")["contacts"] == {}
    made = command(folder, "people", "link", "dana", *config)["url"]
    page = client.get(f"/u/{made.rpartition('/u/')[2]}")
    assert page.status == 200
    elsewhere = str(command(folder.parent, "people", "link", "dana"))
    assert "there is no ledger at" in elsewhere, "a link made with the settings of nobody opens no page"


@pytest.mark.req("P-1191")
def test_a_link_that_the_running_process_does_not_open_is_said(program: Program, folder: Path) -> None:
    address = program.wait_ready(60)["addresses"][0]
    environ = {**environment(folder), "CARILLON_CONSENT__URL": "https://messages.example.org"}
    words = ["people", "link", "dana"]
    other = run_carillon(words, env=environ, cwd=folder)
    assert other.stdout.startswith("https://messages.example.org/u/")
    assert other.stderr.startswith(f"warning: {address} does not open this link"), other.stderr
    right = run_carillon([*words, "--config", str(folder / "c.toml")], env=environ, cwd=folder)
    assert (right.returncode, right.stderr) == (0, "")


def test_a_change_that_is_no_json_is_named(program: Program, folder: Path) -> None:
    assert program.wait_ready(60)
    ran = run_carillon(["people", "preferences", "dana", "--change", "{no"], env=environment(folder), cwd=folder)
    assert (ran.returncode, ran.stderr.startswith("carillon: --change: is not valid JSON")) == (2, True), ran.stderr
