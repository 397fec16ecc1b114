"""Commands that work on the ledger ask for no other server's address, whatever the blueprint."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import run_carillon
from tests.support.template_folders import lay

BLUEPRINTS = {
    "push-worker": "DATABASE_URL",
    "billing": "DATABASE_URL",
    "galaxy": "NOTIFICATION_POSTGRES_PRIMARY_DSN",
    "listo": "DATABASE_URL",
    "sse": "DATABASE_URL",
}
"""Each with the variable that names its ledger."""
COMMANDS = {
    "keys": ("keys", "list"),
    "suppressions": ("suppressions", "list"),
    "dead letters": ("dead-letters", "list"),
    "a person": ("people", "export", "ada"),
    "templates": ("templates", "list"),
}


def told(blueprint: str, dsn: str) -> dict[str, str]:
    schema = f"{'&' if '?' in dsn else '?'}search_path=notification" if blueprint == "galaxy" else ""
    return {BLUEPRINTS[blueprint]: f"{dsn}{schema}", "CARILLON_LEDGER__ALLOW_UNSAFE": "1"}


@pytest.mark.req("P-1086")
@pytest.mark.parametrize("blueprint", BLUEPRINTS)
def test_tables_are_made_and_read_with_the_ledgers_address_alone(
    blueprint: str, postgres_dsn: str, tmp_path: Path
) -> None:
    ledger = told(blueprint, postgres_dsn)
    migrated = run_carillon(["migrate", "--blueprint", blueprint, "--json"], env=ledger, cwd=tmp_path)
    assert migrated.returncode == 0, migrated.stderr
    assert json.loads(migrated.stdout)["applied"]
    absent = {"keys", "templates"} if blueprint == "galaxy" else set()
    for name in COMMANDS.keys() - absent:
        words = COMMANDS[name]
        ran = run_carillon([*words, "--blueprint", blueprint], env=ledger, cwd=tmp_path)
        assert ran.returncode == 0, f"{name}: {ran.stderr}"


@pytest.mark.req("P-1086")
@pytest.mark.parametrize("blueprint", ["push-worker", "galaxy"])
def test_a_command_that_calls_others_still_asks_for_them(blueprint: str, postgres_dsn: str, tmp_path: Path) -> None:
    ledger = told(blueprint, postgres_dsn)
    erase = run_carillon(["people", "erase", "ada", "--yes", "--blueprint", blueprint], env=ledger, cwd=tmp_path)
    assert erase.returncode == 2
    assert "is needed and not set" in erase.stderr
    without = run_carillon(["migrate", "--blueprint", blueprint], env={}, cwd=tmp_path)
    assert without.returncode == 2
    named = without.stderr.split(": ")[1:]
    assert BLUEPRINTS[blueprint] in named[0], "the ledger has no stand-in"
    assert without.stderr.count("is needed and not set") == 1, without.stderr


@pytest.mark.req("P-1086", "P-1189")
@pytest.mark.parametrize("blueprint", ["listo", "push-worker"])
def test_what_changes_the_ledger_needs_no_vendor_either(blueprint: str, postgres_dsn: str, tmp_path: Path) -> None:
    ledger = told(blueprint, postgres_dsn)
    assert run_carillon(["migrate", "--blueprint", blueprint], env=ledger, cwd=tmp_path).returncode == 0
    provider = {"listo": "Twilio", "push-worker": "fcm"}[blueprint]
    for words in (
        ["suppressions", "add", "push", "device-1"],
        ["dead-letters", "redrive", "--all", "--provider", provider],
    ):
        ran = run_carillon([*words, "--blueprint", blueprint], env=ledger, cwd=tmp_path)
        assert ran.returncode == 0, f"{words}: {ran.stderr}"
    unknown = ["dead-letters", "redrive", "--all", "--provider", "nobody", "--blueprint", blueprint]
    refused = run_carillon(unknown, env=ledger, cwd=tmp_path)
    assert (refused.returncode, provider in refused.stderr) == (1, True), refused.stderr


@pytest.mark.req("P-1227")
def test_suppressions_are_added_and_lifted_in_a_ledger_without_an_audit_trail(
    postgres_dsn: str, tmp_path: Path
) -> None:
    ledger = told("galaxy", postgres_dsn)

    def suppressions(*words: str) -> Any:
        ran = run_carillon(["suppressions", *words, "--blueprint", "galaxy", "--json"], env=ledger, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    for address in ("ada@example.org", "bob@example.org"):
        assert suppressions("add", "email", address)["address"] == address
    assert suppressions("lift", "--all") == {"found": 2, "lifted": 2, "dryRun": False}
    assert suppressions("list")["total"] == 0


@pytest.mark.req("P-1232")
@pytest.mark.parametrize("nothing", ["", " "])
def test_a_variable_that_is_set_to_nothing_is_not_set(tmp_path: Path, nothing: str) -> None:
    environ = {"DATABASE_URL": "sqlite:///audit.db", "RABBITMQ_URL": nothing, "REDIS_URL": nothing}
    ran = run_carillon(["migrate", "--blueprint", "push-worker"], env=environ, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    unnamed = run_carillon(["migrate", "--blueprint", "push-worker"], env={"DATABASE_URL": nothing}, cwd=tmp_path)
    assert (unnamed.returncode, "DATABASE_URL: is needed" in unnamed.stderr) == (2, True), unnamed.stderr


@pytest.mark.req("P-1233")
@pytest.mark.parametrize("days", ["36501", "1e8", "1e12", "inf"])
def test_a_suppression_ends_at_a_time_that_can_be_shown(tmp_path: Path, days: str) -> None:
    assert run_carillon(["migrate"], env={}, cwd=tmp_path).returncode == 0
    ran = run_carillon(["suppressions", "add", "email", "ada@example.org", "--days", days], env={}, cwd=tmp_path)
    said = "carillon: --days: at most 36,500; without it, it holds until it is lifted\n"
    assert (ran.returncode, ran.stderr) == (1, said)
    listed = run_carillon(["suppressions", "list"], env={}, cwd=tmp_path)
    assert (listed.returncode, listed.stdout) == (0, "0 of 0 suppressions\n"), listed.stderr


@pytest.mark.req("P-1229")
@pytest.mark.parametrize("url", ["sqlite:///my%20ledger.db", "sqlite:///my ledger.db?kept=here"])
def test_a_ledger_is_there_however_its_address_is_written(tmp_path: Path, url: str) -> None:
    def told(*words: str) -> Any:
        ran = run_carillon([*words, "--json"], env={"DATABASE_URL": url}, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    key = told("keys", "create", "shop")["id"]
    assert [one["id"] for one in told("keys", "list")] == [key]
    assert told("keys", "revoke", key)["id"] == key
    assert told("dead-letters", "list")["total"] == 0
    assert (tmp_path / "my ledger.db").is_file()


@pytest.mark.req("P-1086")
@pytest.mark.parametrize("blueprint", BLUEPRINTS)
def test_the_calendars_of_the_settings_need_no_server(blueprint: str, tmp_path: Path) -> None:
    ran = run_carillon(["people", "holidays", "--blueprint", blueprint, "--json"], env={}, cwd=tmp_path)
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"items": []}), ran.stderr


@pytest.mark.req("P-1270")
@pytest.mark.parametrize("blueprint", BLUEPRINTS)
def test_a_folder_of_templates_is_checked_and_shown_without_any_server(blueprint: str, tmp_path: Path) -> None:
    channel = "sse" if blueprint == "sse" else "push"
    lay(tmp_path, {f"ours/note/en/{channel}/text.jinja": "Hi", f"ours/note/en/{channel}/subject.jinja": "x"})
    check, preview = (
        run_carillon(["templates", *words, "--blueprint", blueprint], env={}, cwd=tmp_path)
        for words in (["check", "ours"], ["preview", "ours", "note", "--part", "text"])
    )
    assert "1 templates read" in check.stdout, check.stderr
    assert (preview.returncode, preview.stdout) == (0, "Hi\n"), preview.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["ours"]


@pytest.mark.req("P-1086")
def test_a_history_is_not_copied_again_from_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    environ = {"CLICKHOUSE_URL": "http://127.0.0.1:1/carillon"}
    ran = run_carillon(["history", "rewind", "--since", "1h"], env=environ, cwd=tmp_path)
    assert ran.returncode == 1
    assert "there is no ledger at carillon.db yet" in ran.stderr
    assert list(tmp_path.iterdir()) == []
