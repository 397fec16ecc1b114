"""The environment: CARILLON_* names, the blueprints' names, durations, and what production refuses."""

import tomllib
import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.config.environment import apply, steps
from carillon.config.reading import blueprint_folder, blueprint_names, load, variables
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.providers import settings_of
from tests.support.examples import examples

PROPERTY = examples(200)


@pytest.mark.parametrize(
    ("variable", "value", "path", "held"),
    [
        ("CARILLON_HTTP__PORT", "9000", "http.port", 9000),
        ("CARILLON_HTTP__HOST", "0.0.0.0", "http.host", "0.0.0.0"),  # noqa: S104 - read, not bound
        ("CARILLON_ALLOW_SANDBOX", "true", "allow_sandbox", True),
        ("CARILLON_ALLOW_SANDBOX", "1", "allow_sandbox", True),
        ("CARILLON_LEDGER__LEASE_SECONDS", "2m", "ledger.lease_seconds", 120.0),
        ("CARILLON_WORK__STRICT_LANES", "false", "work.strict_lanes", False),
        ("CARILLON_LOG__LEVEL", "debug", "log.level", "debug"),
        ("CARILLON_SERVICE", "bells", "service", "bells"),
        ("DATABASE_URL", "postgresql://db/x", "ledger.url", "postgresql://db/x"),
        ("REDIS_URL", "redis://cache:6379/0", "redis.url", "redis://cache:6379/0"),
        ("JWT_SECRET_KEY", "s" * 32, "auth.secret", "s" * 32),
        ("JWT_ISSUER", "us", "auth.issuer", "us"),
        ("DATABASE_URL", "", "ledger.url", "sqlite:///carillon.db"),
    ],
)
def test_a_variable_fills_its_setting(variable: str, value: str, path: str, held: object) -> None:
    found: object = load(environ={variable: value})
    for name in path.split("."):
        found = getattr(found, name)
    assert found == held


def test_lists_are_words_separated_by_commas() -> None:
    loaded = load(environ={"WEBHOOK_SIGNING_SECRET": "whsec_a, whsec_b,", "CARILLON_CHANNELS__SMS": "smtp,sandbox"})
    assert loaded.providers["webhook"]["secrets"] == ["whsec_a", "whsec_b"]
    assert loaded.channels["sms"] == ["smtp", "sandbox"]


def _lists(kind: type[msgspec.Struct], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in msgspec.structs.fields(kind):
        if field.type is not None and typing.get_origin(field.type) is list:
            yield (*above, field.name)
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _lists(field.type, (*above, field.name))


@pytest.mark.req("P-1188")
@pytest.mark.parametrize("path", sorted(_lists(Settings)), ids=".".join)
@pytest.mark.parametrize("text", ["webhook", "webhook,log"])
def test_every_list_is_words_separated_by_commas(path: tuple[str, ...], text: str) -> None:
    tree: dict[str, typing.Any] = {}
    apply(tree, {}, {f"CARILLON_{'__'.join(path).upper()}": text})
    found: object = tree
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    assert found == text.split(",")


@pytest.mark.req("P-1188")
@pytest.mark.parametrize("blueprint", ["local", "listo", "sse"])
def test_lists_of_settings_that_no_blueprint_names(blueprint: str) -> None:
    environ = {
        "CARILLON_HTTP__TRUSTED_PROXIES": "10.0.0.0/8, 192.168.0.1",
        "CARILLON_CONSENT__KEYS": "k" * 32,
        "CARILLON_ALERTS__SINKS": "log",
        "CARILLON_TENANT__ACME__SMS_COUNTRIES": "DE,AT",
        "CARILLON_PREFERENCES__HOLIDAYS__DE": "12-25,12-26",
        "CARILLON_PROVIDERS__WEBHOOK__ALLOW_HOSTS": "hooks.example.org",
    }
    loaded = load(blueprint, environ=environ)
    assert loaded.http.trusted_proxies == ["10.0.0.0/8", "192.168.0.1"]
    assert (loaded.consent.keys, loaded.alerts.sinks) == (["k" * 32], ["log"])
    assert loaded.tenant["acme"].sms_countries == ["DE", "AT"]
    assert loaded.preferences.holidays == {"de": ["12-25", "12-26"]}
    assert loaded.providers["webhook"]["allow_hosts"] == ["hooks.example.org"]


def test_the_order_is_blueprint_file_documents_name_own_name(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[ledger]\nurl = "sqlite:///from-file.db"')
    both = {"DATABASE_URL": "sqlite:///from-document.db", "CARILLON_LEDGER__URL": "sqlite:///from-own.db"}
    document = {"DATABASE_URL": both["DATABASE_URL"]}
    assert load(config=file, environ={}).ledger.url == "sqlite:///from-file.db"
    assert load(config=file, environ=document).ledger.url == "sqlite:///from-document.db"
    assert load(config=file, environ=both).ledger.url == "sqlite:///from-own.db"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CARILLON_HTTP__PROT", "1", "http.prot"),
        ("CARILLON_COLOUR", "red", "colour"),
        ("CARILLON_HTTP__PORT", "eighty", "http.port"),
        ("CARILLON_HTTP", "1", "http"),
        ("CARILLON_POLICY", "1", "policy"),
        ("CARILLON_POLICY__RETRY", "1", "policy.retry"),
        ("CARILLON_SERVICE__NAME", "1", "service holds a value, not a section"),
        ("CARILLON_LEDGER__LEASE_SECONDS", "5 parsecs", "ledger.lease_seconds"),
        ("CARILLON_LEDGER__LEASE_SECONDS", "-5s", "ledger.lease_seconds"),
        ("CARILLON_LEDGER__LEASE_SECONDS", "nan", "ledger.lease_seconds"),
        ("CARILLON_DRILL__TIME_SCALE", "-1", "drill.time_scale"),
    ],
)
def test_a_mistake_names_its_setting(variable: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environ={variable: value})
    assert said in str(caught.value)


@pytest.mark.parametrize("variable", ["CARILLON_FAULTPOINTS", "CARILLON_CONFIG", "CARILLON_BLUEPRINT", "PATH", "HOME"])
def test_other_variables_are_left_alone(variable: str) -> None:
    assert load(environ={variable: "anything"}) == load(environ={})


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        *[("250ms", 0.25), ("3s", 3.0), ("5m", 300.0), ("168h", 604_800.0), ("1d", 86_400.0), ("1.5s", 1.5)],
        # As requests write them.
        *[
            ("40", 40.0),
            ("1w", 604_800.0),
            ("PT10M", 600.0),
            ("P1DT2H", 93_600.0),
            ("1h30m", 5400.0),
            ("1500us", 0.0015),
        ],
    ],
)
def test_durations(written: str, seconds: float) -> None:
    loaded = load(environ={"CARILLON_IDEMPOTENCY_TTL_SECONDS": written})
    assert loaded.idempotency_ttl_seconds == pytest.approx(seconds)


def test_durations_in_a_file_and_only_where_seconds_are_meant(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('service = "5m"\n[policy.retry."*/*"]\ntimeout_seconds = "3s"\nmax_delay_seconds = "5m"')
    loaded = load(config=file, environ={})
    assert (loaded.service, loaded.policy.retry["*/*"].timeout_seconds) == ("5m", 3.0)
    assert loaded.policy.retry["*/*"].max_delay_seconds == 300.0


def test_a_policy_in_the_documents_own_words(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        """
        [policy.retry."auth/sms"]
        maxAttempts = 4
        baseDelaySeconds = 3
        backoffFactor = 2.0
        maxBackoffSeconds = 120
        jitterMs = 1000
        timeoutSeconds = 20
        [policy.retry."billing/pay"]
        max_retries = 5
        base_delay_seconds = 60
        backoff_multiplier = 2.0
        max_delay_seconds = 3600
        jitter_seconds = 10
        """
    )
    tables = load(config=file, environ={}).policy.retry
    sms, pay = tables["auth/sms"], tables["billing/pay"]
    assert (sms.max_attempts, sms.timeout_seconds) == (4, 20.0)
    assert [sms.delay(attempt, 0.5) for attempt in (1, 2, 3, 4)] == [3.5, 6.5, 12.5, 24.5]
    assert pay.budget == 6
    assert [pay.delay(attempt, 0.0) for attempt in (1, 2)] == [60.0, 120.0]


@pytest.mark.req("G-19")
def test_production_refuses_time_scaling_and_a_test_does_not() -> None:
    scaled = {"CARILLON_DRILL__TIME_SCALE": "0.01"}
    assert load(environ=scaled).drill.time_scale == 0.01
    assert load(environ={**scaled, "ENV": "staging"}).drill.time_scale == 0.01
    with pytest.raises(ConfigurationError, match=r"drill\.time_scale: .*ENV=production"):
        load(environ={**scaled, "ENV": "production"})
    assert load(environ={"ENV": "production"}).drill.time_scale == 1.0


def test_production_refuses_faultpoints() -> None:
    armed = {"CARILLON_FAULTPOINTS": "after_claim=exit9"}
    assert load(environ=armed) == load(environ={})
    with pytest.raises(ConfigurationError, match=r"CARILLON_FAULTPOINTS is refused when ENV=production"):
        load(environ={**armed, "ENV": "production"})


words = st.text(alphabet="ABCXYZ_019", max_size=12)


@PROPERTY
@given(st.dictionaries(st.builds("CARILLON_{}".format, words), st.text(max_size=12), max_size=3))
def test_any_environment_loads_or_is_refused_by_name(environ: dict[str, str]) -> None:
    with suppress(ConfigurationError):
        load(environ=environ)


def test_everything_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load("billing", None, {})
    assert [part.partition(":")[0] for part in str(refused.value).split("; ")] == [
        "REDIS_URL",
        "WEBHOOK_SIGNING_SECRET",
    ]


def paths_to_nowhere(blueprint: str, paths: Iterable[str]) -> list[str]:
    """Paths below `providers` that name no option of a provider of the blueprint."""
    providers = tomllib.loads((blueprint_folder(blueprint) / "blueprint.toml").read_text())["providers"]
    options = {
        (name, field.name)
        for name, table in providers.items()
        for field in msgspec.structs.fields(settings_of(table["kind"]))
    }
    return [path for path in paths if path.startswith("providers.") and tuple(steps(path)[1:]) not in options]


@pytest.mark.parametrize("blueprint", [name for name in blueprint_names() if name != "billing"])
def test_every_variable_fills_an_option_that_its_provider_has(blueprint: str) -> None:
    assert not paths_to_nowhere(blueprint, variables(blueprint))


def test_control_a_variable_for_an_option_that_does_not_exist_is_seen() -> None:
    wrong = ["providers.smtper", "providers.smtp.sendr", "providers.nobody.url"]
    assert paths_to_nowhere("local", [*wrong, "providers.smtp.sender", "ledger.url"]) == wrong


@pytest.mark.req("P-821")
@pytest.mark.parametrize("blueprint", ["local", "listo"])
def test_a_broker_s_variable_serves_its_door_and_its_alerts(blueprint: str) -> None:
    bus = "Endpoint=sb://bells.example.org/;SharedAccessKeyName=a;SharedAccessKey=Yg=="
    given = {"RABBITMQ_URL": "amqp://rabbit/", "SERVICEBUS_CONNECTION_STRING": bus, "CARILLON_ALLOW_SANDBOX": "1"}
    settings = load(blueprint, environ=given)
    assert settings.rabbitmq_door.url == settings.alerts.rabbitmq_url == "amqp://rabbit/"
    assert settings.servicebus_door.connection_string == settings.alerts.servicebus_connection_string == bus
