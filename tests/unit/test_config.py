"""Settings from a blueprint, a file and the environment, each over the one before."""

from pathlib import Path

import pytest

from carillon.config.reading import blueprint_folder, blueprint_names, load, masked, secrets
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError

NOTHING: dict[str, str] = {}
NEEDED = {
    "NOTIFICATION_REDIS_MASTER_ADDR": "127.0.0.1:6379",
    "NOTIFICATION_REDIS_PASSWORD": "invented",
    "NOTIFICATION_POSTGRES_PRIMARY_DSN": "postgresql://127.0.0.1/notification",
    "NOTIFICATION_USER_SERVICE_BASE_URL": "http://127.0.0.1:8090",
    "RABBITMQ_URL": "amqp://127.0.0.1/",
    "REDIS_URL": "redis://127.0.0.1/",
    "DATABASE_URL": "postgresql://127.0.0.1/audit",
    "TEMPLATE_SERVICE_URL": "http://127.0.0.1:8084",
    "WEBHOOK_SIGNING_SECRET": "invented",
}
"""What the blueprints cannot know."""


def from_file(folder: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    file = folder / "carillon.toml"
    file.write_text(text, encoding="utf-8")
    return load(config=file, environ=environ or NOTHING)


def mistake(folder: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        from_file(folder, text, environ)
    assert "\n" not in str(caught.value), "one clear line"
    return str(caught.value)


@pytest.mark.parametrize("name", blueprint_names())
def test_every_shipped_blueprint_loads_and_says_its_name(name: str) -> None:
    settings = load(name, environ=NEEDED)
    assert settings.blueprint == name
    assert settings.channels or settings.billing
    assert settings.lanes


def test_the_local_blueprint_without_anything_else() -> None:
    settings = load(environ=NOTHING)
    assert settings.blueprint == "local"
    assert settings.ledger.url == "sqlite:///carillon.db"
    assert settings.http.host == "127.0.0.1"
    assert {lane.rank: lane.max_attempts for lane in settings.lanes.values()} == {1: 3, 2: None, 3: None}
    default = settings.policy.retry["*/*"]
    assert (default.max_attempts, default.base_delay_seconds, default.max_delay_seconds) == (6, 5.0, 600.0)
    assert settings.policy.retry["*/webhook"].max_attempts == 10, "no lane but the urgent one has a smaller cap"


@pytest.mark.parametrize("name", ["nowhere", "../local", "Local", "lo cal", "", "local/../local", "local\x00"])
def test_a_blueprint_that_is_not_there_lists_those_that_are(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"known: .*local"):
        blueprint_folder(name)


@pytest.mark.parametrize("extends", ['"nowhere"', "3", '["local"]', "true"])
def test_a_file_that_extends_nothing_there_is(tmp_path: Path, extends: str) -> None:
    assert "known: " in mistake(tmp_path, f"extends = {extends}")


def test_the_argument_wins_over_the_files_extends(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('extends = "nowhere"\n')
    assert load("local", tmp_path / "c.toml", NOTHING).blueprint == "local"


def test_a_file_changes_only_what_it_says(tmp_path: Path) -> None:
    settings = from_file(
        tmp_path,
        """
        extends = "local"
        [lanes.priority]
        weight = 60
        [policy.retry."*/*"]
        max_attempts = 9
        [policy.retry."auth/sms"]
        max_attempts = 4
        [channels]
        sms = ["smtp", "sandbox"]
        """,
    )
    before = load(environ=NOTHING)
    assert (settings.lanes["priority"].weight, settings.lanes["priority"].max_attempts) == (60, 3)
    assert settings.lanes["bulk"] == before.lanes["bulk"]
    assert settings.policy.retry["*/*"].max_attempts == 9
    assert settings.policy.retry["*/*"].base_delay_seconds == 5.0
    assert settings.policy.retry["*/webhook"] == before.policy.retry["*/webhook"]
    assert settings.policy.retry["auth/sms"].max_attempts == 4
    assert settings.channels["sms"] == ["smtp", "sandbox"]
    assert settings.channels["email"] == ["smtp"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("colour = 1", "colour"),
        ("[http]\nprot = 1", "http.prot"),
        ('[http]\nport = "eighty"', "http.port"),
        ("[http]\nport = []", "http.port"),
        ("http = 3", "http"),
        ("policy = 3", "policy"),
        ("[policy]\nretry = 3", "policy.retry"),
        ('[policy.retry."*/*"]\nmax_tries = 3', "max_tries"),
        ('[policy.retry."*/*"]\njitterMs = "many"', "jitterMs"),
        ('[policy.retry."*/*"]\njitter = "some"', "jitter"),
        ("[policy.breaker.smtp]\nthreshold = 3", "threshold"),
        ("[lanes.priority]\nspeed = 3", "speed"),
        ("[lanes.new]\nweight = 3", "rank"),
        ('[locale]\non_missing = "guess"', "locale.on_missing"),
        ("[env]\nX = 'http.port'", "env"),
        ("[log]\nlevel = 'loud'", "log.level"),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, text: str, path: str) -> None:
    assert path in mistake(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[http]\nport = 70000", "http.port"),
        ("[http]\nmax_body_bytes = 10", "http.max_body_bytes"),
        ("[work]\nconcurrency = 0", "work.concurrency"),
        ("[work]\nbatch = 0", "work.batch"),
        ("[ledger]\nlease_seconds = 0", "ledger.lease_seconds"),
        ("[ledger]\nlease_seconds = nan", "ledger.lease_seconds"),
        ("[ledger]\nlease_seconds = inf", "ledger.lease_seconds"),
        ("[drill]\ntime_scale = 0", "drill.time_scale"),
        ("[drill]\ntime_scale = nan", "drill.time_scale"),
        ('[channels]\nsms = ["pigeon"]', "channels.sms: there is no [providers.pigeon]"),
        ('[policy.retry."*/*"]\nmax_attempts = 0', 'policy.retry."*/*"'),
        ('[policy.retry."*/*"]\nmax_retries = 3', "either max_attempts or max_retries"),
        pytest.param(
            '[policy.retry."a/b"]\ntimeout_seconds = 3',
            "set max_attempts or max_retries; a policy takes nothing over",
            marks=pytest.mark.req("P-1022"),
        ),
        ('[policy.retry."*/*"]\nbackoff_factor = 0.5', 'policy.retry."*/*"'),
        ('[policy.retry."*/*"]\nbackoff_factor = nan', 'policy.retry."*/*"'),
        ('[policy.retry."*/*"]\nmax_delay_seconds = -1', 'policy.retry."*/*"'),
        ('[policy.retry."*/*"]\njitter_seconds = -1', 'policy.retry."*/*"'),
        ('[policy.retry."*/*"]\ntimeout_seconds = nan', 'policy.retry."*/*"'),
        (
            '[policy.retry."*/*"]\nfailover_after_attempts = 0',
            'policy.retry."*/*".failover_after_attempts: 0 is not at',
        ),
        ('[policy.retry."*/*"]\nfailover_after_attempts = -1', "failover_after_attempts: -1 is not at least 1"),
        ("[lanes.bulk]\nweight = 0", "lanes.bulk.weight"),
        ("[lanes.bulk]\nmax_attempts = 0", "lanes.bulk.max_attempts: must be at least 1"),
        ("[lanes.bulk]\ntimeout_seconds = nan", "lanes.bulk.timeout_seconds: must be more than 0"),
        ("[policy.breaker.smtp]\nhalf_open_max_probes = 0", 'policy.breaker."smtp"'),
        ("[policy.breaker.smtp]\nfailure_threshold = 0", 'policy.breaker."smtp"'),
    ],
)
def test_a_value_that_cannot_work_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistake(tmp_path, text)


@pytest.mark.req("P-700")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[groups.nobody]\ncap = 3", "groups.nobody: there is no [providers.nobody]"),
        ("[groups.sandbox]\ncap = 0", "groups.sandbox.cap: must be at least 1"),
        ("[groups.sandbox.members.acme]\nweight = -1", "weight: -1 is not between 1 and 1000"),
        ('[groups.sandbox.members.""]\ncap = 1', "write the name of a tenant"),
        ('[groups.sandbox.members.acme]\ntenant = "acme"', "the name is the tenant"),
        ('[groups.sandbox]\nby = "none"\n[groups.sandbox.members.acme]', "only tenants and endpoints"),
        ('[groups.webhook.members."hooks.example.org"]', "write the endpoint as host:port"),
        ('[groups.webhook.members."https://hooks.example.org/x"]', "write the endpoint as host:port"),
        ('[groups.webhook.members."a:1"]\n[groups.webhook.members."A:1"]', 'is the same group as members."a:1"'),
        ("[work.max_in_flight]\nsandbox = 0", "work.max_in_flight.sandbox: must be at least 1"),
        ("[work.max_in_flight]\nnobody = 3", "work.max_in_flight.nobody: there is no [providers.nobody]"),
        ("[policy.rate.sandbox]\nendpoint_per_second = 3", "endpoint_per_second: sandbox calls no endpoints of others"),
        ('extends = "push-worker"\n[groups.fcm]\ncap = 3', "groups.fcm: a push worker takes messages as its queue has"),
        ("[policy.rate.nobody]\nper_second = 3", 'policy.rate."nobody": there is no [providers.nobody]'),
        ("[policy.breaker.nobody]\nfailure_threshold = 3", 'policy.breaker."nobody": there is no [providers.nobody]'),
    ],
)
def test_a_limit_that_would_limit_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistake(tmp_path, text, NEEDED)


@pytest.mark.parametrize(
    ("timeout", "lease", "fits"), [(26, 30, True), (27, 30, False), (30, 30, False), (30, 60, True)]
)
def test_a_call_must_end_well_inside_its_lease(tmp_path: Path, timeout: int, lease: int, *, fits: bool) -> None:
    text = f'[ledger]\nlease_seconds = {lease}\n[policy.retry."*/*"]\ntimeout_seconds = {timeout}'
    if fits:
        assert from_file(tmp_path, text).ledger.lease_seconds == lease
    else:
        assert "nine tenths of ledger.lease_seconds" in mistake(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigurationError, match=r"missing\.toml: there is no such file"):
        load(config=missing, environ=NOTHING)
    assert "carillon.toml" in mistake(tmp_path, "[http\n")
    (tmp_path / "latin.toml").write_bytes(b"service = '\xe9'")
    with pytest.raises(ConfigurationError, match=r"latin\.toml"):
        load(config=tmp_path / "latin.toml", environ=NOTHING)
    with pytest.raises(ConfigurationError):
        load(config=tmp_path, environ=NOTHING)


SECRETS = {
    "auth": '[auth]\nsecret = "PLANTED"',
    "ledger": '[ledger]\nurl = "postgresql://carillon:PLANTED@db.example/carillon"',
    "at": '[ledger]\nurl = "postgresql://carillon:with@PLANTED@db.example/carillon"',
    "slash": '[ledger]\nurl = "postgresql://carillon:with/PLANTED@db.example/carillon"',
    "query": '[ledger]\nurl = "postgresql://db.example/carillon?user=carillon&password=PLANTED"',
    "redis": '[redis]\nurl = "redis://:PLANTED@cache.example:6379/0"',
    "list": '[providers.webhook]\nsecrets = ["PLANTED", "PLANTED-2"]',
    "table": '[providers.webhook.secrets]\ntenant-1 = "PLANTED"',
    "api key": '[providers.sendgrid]\nkind = "sendgrid"\napi_key = "PLANTED"',
    "header": '[providers.vendor.headers]\nAuthorization = "Bearer PLANTED"',
    "password": '[providers.vendor]\nSmtpPassword = "PLANTED"',
    "content of a file": '[providers.fcm]\nkind = "fcm"\ncredentials_file = \'{"private_key": "PLANTED"}\'',
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS.keys())
def test_nothing_secret_is_shown(tmp_path: Path, text: str) -> None:
    shown = str(masked(from_file(tmp_path, text)))
    assert "PLANTED" not in shown
    assert "********" in shown


def test_what_is_not_secret_is_shown(tmp_path: Path) -> None:
    shown = masked(from_file(tmp_path, SECRETS["ledger"]))
    assert shown["ledger"]["url"] == "postgresql://********@db.example/carillon"
    assert shown["http"]["port"] == 8080
    assert shown["auth"]["secret"] is None
    assert shown["providers"]["smtp"]["kind"] == "smtp"


def test_the_path_of_a_key_file_is_not_secret(tmp_path: Path) -> None:
    """The error shows the operator which name was looked up."""
    found = from_file(tmp_path, '[providers.fcm]\nkind = "fcm"\ncredentials_file = "/etc/carillon/account.json"')
    assert masked(found)["providers"]["fcm"]["credentials_file"] == "/etc/carillon/account.json"
    assert "/etc/carillon/account.json" not in secrets(found)
    pasted = from_file(tmp_path, SECRETS["content of a file"])
    assert '{"private_key": "PLANTED"}' in secrets(pasted)


def test_several_blueprints_are_for_serve_alone() -> None:
    with pytest.raises(ConfigurationError, match="only `serve` takes several"):
        load("listo,sse", environ={})


def test_a_setting_that_moved_says_where_it_went() -> None:
    with pytest.raises(
        ConfigurationError, match=r"set suppressions\.bounced_seconds and suppressions\.invalid_seconds"
    ):
        load("local", environ={"CARILLON_RECEIPTS__SILENCE_SECONDS": "5"})
