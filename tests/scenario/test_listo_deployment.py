"""The listo blueprint's templates at deployment: gaps stop it, folders are pushed, and knobs do what they say."""

import datetime as dt
import json
import subprocess
from pathlib import Path

import pytest

from tests.support.listo_stand import EMAIL, SECRET, Listo, stand_fixture, token
from tests.support.listo_templates import post, text
from tests.support.process import run_carillon

listo = stand_fixture(start=False, JWT_SECRET_KEY=SECRET)

ADMIN = token("root", role="admin")


def command(listo: Listo, *args: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", **listo.environment()}
    return run_carillon([*args], env=environment, cwd=listo.folder, timeout=60)


def write(folder: Path, place: str, body: str) -> None:
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(body)


def configure(listo: Listo, text: str) -> Path:
    config = listo.folder / "listo.toml"
    config.write_text(f"{config.read_text()}{text}")
    return config


@pytest.mark.req("S2-105")
def test_the_shipped_templates_have_no_gap(listo: Listo) -> None:
    done = command(listo, "listo", "validate-templates", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"supported": ["en-US", "es-MX"], "missing": []}


@pytest.mark.req("S2-105")
def test_a_gap_in_a_folder_or_in_the_ledger_is_listed_and_stops_a_strict_start(listo: Listo) -> None:
    own = listo.folder / "own"
    write(own, "receipt/en-US/email/text.tmpl", "Your receipt")
    config = configure(listo, f'[templates]\nfolders = ["blueprint:templates", "{own}"]\nstrict = true\n')
    gap = command(listo, "listo", "validate-templates", "--config", str(config))
    assert gap.returncode == 1
    assert "missing: receipt/es-MX/email\n" in gap.stdout
    refused = listo.launch()
    assert refused.wait() == 2
    assert "receipt/es-MX/email" in refused.tail()

    write(own, "receipt/es-MX/email/text.tmpl", "Su recibo")
    assert command(listo, "listo", "validate-templates", "--config", str(config)).returncode == 0
    listo.start()
    post(listo, "alone", channel="sms")
    listo.programs[-1].terminate()
    assert listo.programs[-1].wait() == 0
    stored = command(listo, "listo", "validate-templates", "--config", str(config))
    assert (stored.returncode, "missing: alone/es-MX/sms\n" in stored.stdout) == (1, True)
    refused = listo.launch()
    assert refused.wait() == 2
    assert "alone/es-MX/sms" in refused.tail()


@pytest.mark.req("S2-105")
def test_strictness_needs_to_know_the_locales(listo: Listo) -> None:
    configure(listo, "[locale]\nsupported = []\n[templates]\nstrict = true\n")
    refused = listo.launch()
    assert refused.wait() == 2
    assert "templates.strict" in refused.tail()


@pytest.mark.req("S2-110")
@pytest.mark.req("P-1084")
def test_a_folder_is_pushed_and_used_by_a_running_process(listo: Listo) -> None:
    listo.start()
    own = listo.folder / "own"
    write(own, "receipt/en-US/email/text.tmpl", "Dear {{name}}\n")
    write(own, "receipt/en-US/email/subject.tmpl", "Receipt\n")
    dry = command(listo, "templates", "push", str(own), "-b", "listo", "--dry-run")
    assert "1 written, 0 unchanged (dry run)" in dry.stdout, dry.stderr
    assert listo.send("receipt", "email", data={"name": "Ada"}, headers=ADMIN).status == 404
    done = command(listo, "templates", "push", str(own), "-b", "listo", "--json")
    assert json.loads(done.stdout)["items"] == [
        {"templateKey": "receipt", "channel": "email", "locale": "en-US", "version": 1, "written": True}
    ]
    listo.until_rows("SELECT version FROM templates", lambda rows: len(rows) == 1)
    assert _said(listo) == "Dear Ada", "a push returns when every process has read it"
    again = command(listo, "templates", "push", str(own), "-b", "listo")
    assert "0 written, 1 unchanged" in again.stdout
    write(own, "receipt/en-US/email/text.tmpl", "Hello {{name}}\n")
    assert _said(listo) == "Dear Ada"
    assert "version 2" in command(listo, "templates", "push", str(own), "-b", "listo").stdout
    assert _said(listo) == "Hello Ada"
    listed = json.loads(command(listo, "templates", "list", "-b", "listo", "--json").stdout)
    assert [(one["templateKey"], one["version"]) for one in listed["items"]] == [("receipt", 2)]
    assert "receipt" in command(listo, "templates", "list", "-b", "listo").stdout


def _said(listo: Listo) -> str:
    reply = listo.send("receipt", "email", data={"name": "Ada"}, headers=ADMIN)
    assert reply.status == 202, reply.body
    return str(listo.story(reply.body["notificationId"], ADMIN)["routes"][0]["message"]["text"])


@pytest.mark.req("S2-110")
def test_a_folder_is_checked_before_it_is_pushed(listo: Listo) -> None:
    own = listo.folder / "own"
    write(own, "receipt/en-US/email/text.tmpl", "Dear {{name}}")
    checked = command(listo, "templates", "check", str(own), "-b", "listo", "--json")
    assert checked.returncode == 1
    assert json.loads(checked.stdout) == {
        "templates": 1,
        "unfit": [],
        "missing": ["receipt/es-MX/email"],
        "untranslated": [],
    }
    write(own, "receipt/es-MX/email/text.tmpl", "Hola {{name}}")
    assert command(listo, "templates", "check", str(own), "-b", "listo").returncode == 0
    write(own, "Receipt/en/email/text.tmpl", "x")
    assert command(listo, "templates", "check", str(own), "-b", "listo").returncode == 1
    refused = command(listo, "templates", "push", str(own), "-b", "listo")
    assert (refused.returncode, "Receipt/en/email" in refused.stderr) == (1, True)
    write(own, "receipt/en-US/emial/text.tmpl", "x")
    misspelt = command(listo, "templates", "check", str(own), "-b", "listo")
    assert "receipt/en-US/emial: there is no channel emial; there are email" in misspelt.stdout
    write(own, "broken/en-US/email/text.tmpl", "{% if %}")
    broken = command(listo, "templates", "check", str(own), "-b", "listo")
    assert (broken.returncode, "logic-free" in broken.stderr) == (2, True)
    assert command(listo, "templates", "check", str(own / "nowhere"), "-b", "listo").returncode == 2


@pytest.mark.req("S2-45", "S2-44")
def test_the_waits_are_the_documents(listo: Listo) -> None:
    done = command(listo, "listo", "backoff", "--policy", "auth/sms", "--json")
    waits = json.loads(done.stdout)["auth/sms"]
    assert [(row["attempt"], row["from"], row["to"]) for row in waits] == [
        (0, 3, 4),
        (1, 6, 7),
        (2, 12, 13),
        (3, 24, 25),
    ]
    assert "auth/sms" in command(listo, "listo", "backoff").stdout
    assert command(listo, "listo", "backoff", "--policy", "no/such").returncode == 2


@pytest.mark.req("S2-107")
def test_a_chain_of_languages_is_a_setting(listo: Listo) -> None:
    configure(listo, '[locale]\non_missing = "chain"\n')
    listo.start()
    post(listo, "greeting", locale="es", bodyTemplate="Hola {{name}}")
    post(listo, "greeting", bodyTemplate="Hi {{name}}")
    assert text(listo, "greeting", {**ADMIN, "Accept-Language": "es-MX"}) == "Hola Ada"
    assert text(listo, "greeting", {**ADMIN, "Accept-Language": "ja"}) == "Hi Ada"


@pytest.mark.req("S2-116")
def test_quiet_hours_put_off_what_is_not_urgent_where_they_are_switched_on(listo: Listo) -> None:
    configure(listo, "[preferences]\nquiet_hours = true\n")
    listo.start()
    now = dt.datetime.now(dt.UTC)
    begins, ends = ((now + dt.timedelta(hours=hours)).strftime("%H:%M") for hours in (-1, 2))
    body = {"quietHours": {"startTime": begins, "endTime": ends}, "contacts": {"email": EMAIL}}
    assert listo.client.call("PATCH", "/api/v1/preferences", body, ADMIN).status == 200
    late = listo.sent("order_confirmed", "email", recipient=None, headers=ADMIN)
    assert listo.story(late, ADMIN)["scheduledFor"].endswith(f"T{ends}:00.000Z")
    urgent = listo.sent("order_confirmed", "email", recipient=None, priority="high", headers=ADMIN)
    assert listo.story(urgent, ADMIN)["scheduledFor"] is None
