"""The environment of the galaxy blueprint: every variable, its default, and what stops the start."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from carillon.config.reading import blueprint_folder, ignored, load, secrets
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from tests.support.process import run_carillon
from tests.unit import test_config

NEEDED = {name: value for name, value in test_config.NEEDED.items() if name.startswith("NOTIFICATION_")}
REDIS_TIMEOUT = "NOTIFICATION_REDIS_OPERATION_TIMEOUT"
ADMINS = "NOTIFICATION_ADMIN_EMAILS_"
ANYWHERE = "0.0.0.0"  # noqa: S104 - read, not bound


def galaxy(**environment: str) -> Settings:
    return load("galaxy", environ={**NEEDED, **environment})


def mistake(**environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        galaxy(**environment)
    assert "\n" not in str(caught.value), "one clear line"
    return str(caught.value)


def command(*arguments: str, without: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command, with nothing of this process's environment but its path."""
    given = {**NEEDED, **environment, "PATH": os.environ["PATH"]}
    given.pop(without, None)
    return run_carillon([*arguments, "--blueprint", "galaxy"], env=given, timeout=60)


def held(settings: object, path: str) -> Any:
    """`policy.retry."*/push".max_attempts` of the settings."""
    for step in path.replace('"', "").split("."):
        settings = settings[step] if isinstance(settings, dict) else getattr(settings, step)
    return settings


@pytest.mark.req("S1-17")
@pytest.mark.parametrize("variable", NEEDED)
def test_a_start_without_what_is_needed_ends_and_names_it(variable: str) -> None:
    for arguments in (["config", "show"], ["serve"]):
        done = command(*arguments, without=variable)
        assert done.returncode != 0
        assert variable in done.stdout + done.stderr
    assert variable in mistake(**{variable: ""}), "empty is missing too"


@pytest.mark.req("S1-17")
def test_with_all_four_and_nothing_else_the_settings_hold(tmp_path: Path) -> None:
    done = command("config", "show", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["blueprint"], shown["service"]) == ("galaxy", "notification")
    assert shown["redis"]["address"] == NEEDED["NOTIFICATION_REDIS_MASTER_ADDR"]
    assert NEEDED["NOTIFICATION_REDIS_PASSWORD"] not in done.stdout
    file = tmp_path / "c.toml"
    file.write_text('[redis]\npassword = "from-file"')
    without = {name: value for name, value in NEEDED.items() if name != "NOTIFICATION_REDIS_PASSWORD"}
    assert load("galaxy", file, without).redis.password == "from-file", "a file may say it as well"


@pytest.mark.req("S1-18")
@pytest.mark.parametrize(
    "variable", ["NOTIFICATION_REDIS_ADDR", "NOTIFICATION_REDIS_USERNAME", "NOTIFICATION_REDIS_TLS_ENABLED"]
)
def test_a_variable_of_the_past_is_refused_unless_it_is_empty(variable: str) -> None:
    done = command("serve", **{variable: "false"})
    assert done.returncode != 0
    assert variable in done.stdout + done.stderr
    assert galaxy(**{variable: ""}).blueprint == "galaxy"


@pytest.mark.req(
    "S1-19", "S1-20", "S1-21", "S1-22", "S1-23", "S1-24", "S1-25", "S1-26", "S1-27", "S1-28", "S1-29", "S1-31"
)
@pytest.mark.parametrize(
    ("variable", "path", "default", "said", "then"),
    [
        ("NOTIFICATION_SHUTDOWN_TIMEOUT", "work.drain_seconds", 5.0, "1m", 60.0),
        ("NOTIFICATION_LOG_LEVEL", "log.level", "info", "WARN", "warning"),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", "http.port", 8092, ":9000", 9000),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", "http.host", ANYWHERE, "127.0.0.1:9000", "127.0.0.1"),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", "http.host", ANYWHERE, "[::1]:9000", "::1"),
        ("NOTIFICATION_INTERNAL_HTTP_READ_HEADER_TIMEOUT", "http.header_timeout_seconds", 2.0, "250ms", 0.25),
        ("NOTIFICATION_INTERNAL_HTTP_READ_TIMEOUT", "http.read_timeout_seconds", 10.0, "1.5s", 1.5),
        ("NOTIFICATION_INTERNAL_HTTP_IDLE_TIMEOUT", "http.idle_timeout_seconds", 60.0, "1h30m", 5400.0),
        ("NOTIFICATION_REDIS_DB", "redis.db", 0, "3", 3),
        (REDIS_TIMEOUT, "redis.operation_timeout_seconds", 2.0, "500ms", 0.5),
        (REDIS_TIMEOUT, 'policy.retry."*/push".timeout_seconds', 2.0, "500ms", 0.5),
        ("NOTIFICATION_POSTGRES_OPERATION_TIMEOUT", "ledger.operation_timeout_seconds", 5.0, "2s", 2.0),
        ("NOTIFICATION_POSTGRES_MAX_OPEN_CONNS", "ledger.max_connections", 25, "9", 9),
        ("NOTIFICATION_POSTGRES_MAX_IDLE_CONNS", "ledger.max_idle_connections", 5, "0", 0),
        ("NOTIFICATION_POSTGRES_CONN_MAX_LIFETIME", "ledger.connection_lifetime_seconds", 1800.0, "10m", 600.0),
        ("NOTIFICATION_INTENTS_STREAM", "stream.name", "notification:intents", "other", "other"),
        ("NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT", "stream.block_seconds", 2.0, "100ms", 0.1),
        ("NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM", "providers.gateway.stream", "gateway:client-events", "g", "g"),
        ("NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN", "providers.gateway.max_len", 1024, "16", 16),
        ("NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM", "providers.mail.stream", "mail:delivery_commands", "m", "m"),
        ("NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS", 'policy.retry."*/push".max_attempts', 3, "1", 1),
        ("NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS", 'policy.retry."*/email".max_attempts', 7, "2", 2),
        ("NOTIFICATION_ROUTE_BACKOFF_MIN", 'policy.retry."*/push".base_delay_seconds', 1.0, "20ms", 0.02),
        ("NOTIFICATION_ROUTE_BACKOFF_MIN", 'policy.retry."*/email".base_delay_seconds', 1.0, "20ms", 0.02),
        ("NOTIFICATION_ROUTE_BACKOFF_MAX", 'policy.retry."*/push".max_delay_seconds', 300.0, "10m", 600.0),
        ("NOTIFICATION_ROUTE_BACKOFF_MAX", 'policy.retry."*/email".max_delay_seconds', 300.0, "10m", 600.0),
        ("NOTIFICATION_ROUTE_LEASE_TTL", "ledger.lease_seconds", 5.0, "30s", 30.0),
        ("NOTIFICATION_IDEMPOTENCY_TTL", "idempotency_ttl_seconds", 604_800.0, "1h", 3600.0),
        ("NOTIFICATION_RECORD_RETENTION", "retention.record_seconds", 2_592_000.0, "1s", 1.0),
        ("NOTIFICATION_MALFORMED_INTENT_RETENTION", "retention.malformed_seconds", 7_776_000.0, "48h", 172_800.0),
        ("NOTIFICATION_CLEANUP_INTERVAL", "retention.interval_seconds", 3600.0, "1m30s", 90.0),
        ("NOTIFICATION_USER_SERVICE_TIMEOUT", "directory.timeout_seconds", 1.0, "3s", 3.0),
        ("NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED", "traces.stdout", False, "true", True),
        ("NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED", "metrics.stdout", False, "1", True),
    ],
)
def test_a_variable_has_its_default_and_fills_its_setting(
    variable: str, path: str, default: object, said: str, then: object
) -> None:
    assert held(galaxy(), path) == default
    assert held(galaxy(**{variable: ""}), path) == default
    assert held(galaxy(**{variable: said}), path) == then


def test_every_variable_of_the_blueprint_is_in_the_table_above_or_tested_by_itself() -> None:
    [table] = [
        mark.args[1]
        for mark in test_a_variable_has_its_default_and_fills_its_setting.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    ]
    admins = {name for name in variables() if name.startswith(ADMINS)}
    assert {row[0] for row in table} | set(NEEDED) | admins == variables()


def variables() -> set[str]:
    return set(tomllib.loads((blueprint_folder("galaxy") / "blueprint.toml").read_text(encoding="utf-8"))["env"])


@pytest.mark.req("S1-28")
def test_waits_double_from_the_least_to_the_most_without_chance() -> None:
    for channel in ("push", "email", "*"):
        policy = galaxy().policy.retry[f"*/{channel}"]
        waits = [policy.delay(failed, 0.99) for failed in range(1, 11)]
        assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


@pytest.mark.req("S1-27")
def test_no_lane_caps_a_budget() -> None:
    settings = galaxy()
    assert {lane.max_attempts for lane in settings.lanes.values()} == {None}
    assert {lane.timeout_seconds for lane in settings.lanes.values()} == {None}


def test_a_lease_shorter_than_a_call_shortens_the_call() -> None:
    settings = galaxy(NOTIFICATION_ROUTE_LEASE_TTL="1s")
    timeout = settings.policy.retry["*/push"].timeout_seconds
    assert 0.5 < timeout < 0.9
    assert settings.redis.operation_timeout_seconds == 2.0


@pytest.mark.req("S1-30")
def test_old_knobs_change_nothing_and_are_told() -> None:
    old = {"NOTIFICATION_DEAD_LETTER_TTL": "1s", "NOTIFICATION_RECORD_TTL": "garbage"}
    assert galaxy(**old) == galaxy()
    assert [name for name, _ in ignored("galaxy", old)] == list(old)
    assert ignored("galaxy", {**NEEDED, "NOTIFICATION_RECORD_TTL": ""}) == []


@pytest.mark.req("S1-30")
def test_the_log_says_which_old_knobs_have_no_effect() -> None:
    # Nothing listens on port 1, so the start ends soon after the line.
    done = command("serve", NOTIFICATION_RECORD_TTL="1h", NOTIFICATION_REDIS_MASTER_ADDR="127.0.0.1:1")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    [line] = [line for line in lines if line["event"] == "setting_ignored"]
    assert (line["level"], line["setting"]) == ("warning", "NOTIFICATION_RECORD_TTL")


@pytest.mark.req("S1-32", "S1-33")
@pytest.mark.parametrize(
    ("variable", "kind"),
    [
        ("GEO_REVIEW_RECOMMENDED", "geo.review_recommended"),
        ("GAME_GENERATION_FAILED", "game.generation_failed"),
        ("LOBBY_RUNTIME_PAUSED_AFTER_START", "lobby.runtime_paused_after_start"),
        ("LOBBY_APPLICATION_SUBMITTED", "lobby.application.submitted"),
    ],
)
def test_a_list_of_administrators_belongs_to_exactly_one_type(variable: str, kind: str) -> None:
    nobody = galaxy().admin_emails
    assert len(nobody) == 4
    assert not any(nobody.values())
    assert galaxy(**{ADMINS + variable: "ops@example.com,b@example.com"}).admin_emails == {
        **nobody,
        kind: ["ops@example.com", "b@example.com"],
    }
    assert galaxy(**{ADMINS + variable: " , "}).admin_emails == nobody


@pytest.mark.req("S1-34")
def test_administrators_are_trimmed_lower_cased_and_named_once() -> None:
    variable = ADMINS + "GEO_REVIEW_RECOMMENDED"
    found = galaxy(**{variable: " A@X.com, a@x.com ,b+tag@mail.example.org,a@x.com"}).admin_emails
    assert found["geo.review_recommended"] == ["a@x.com", "b+tag@mail.example.org"]


def test_the_redis_address_becomes_one_url_and_its_password_a_secret() -> None:
    settings = galaxy(NOTIFICATION_REDIS_PASSWORD="p@ss/w:rd", NOTIFICATION_REDIS_DB="3")
    assert settings.redis.location() == "redis://:p%40ss%2Fw%3Ard@127.0.0.1:6379/3"
    assert "p@ss/w:rd" in secrets(settings)
