"""What the galaxy blueprint's environment refuses: the start ends, and the variable is named."""

import pytest

from tests.unit.test_config_galaxy import ADMINS, command, mistake, variables


@pytest.mark.req("S1-36")
@pytest.mark.parametrize(
    ("variable", "said"),
    [
        *(
            (name, said)
            for name in sorted(variables())
            if name.endswith(("_TIMEOUT", "_TTL", "_RETENTION", "_INTERVAL", "_LIFETIME", "_MIN", "_MAX"))
            for said in ("soon", "0s", "-1s", "nan")
        ),
        *(
            (name, said)
            for name in sorted(variables())
            if name.endswith(("_ATTEMPTS", "_MAX_LEN", "_OPEN_CONNS"))
            for said in ("many", "0", "-1", "1.5")
        ),
        ("NOTIFICATION_SHUTDOWN_TIMEOUT", "5 parsecs"),
        ("NOTIFICATION_SHUTDOWN_TIMEOUT", "1h-30m"),
        ("NOTIFICATION_SHUTDOWN_TIMEOUT", "inf"),
        ("NOTIFICATION_SHUTDOWN_TIMEOUT", "9999999999h"),
        ("NOTIFICATION_POSTGRES_MAX_IDLE_CONNS", "-1"),
        ("NOTIFICATION_POSTGRES_MAX_IDLE_CONNS", "few"),
        ("NOTIFICATION_REDIS_DB", "-1"),
        ("NOTIFICATION_REDIS_DB", "first"),
        ("NOTIFICATION_REDIS_DB", "9" * 40),
        ("NOTIFICATION_ROUTE_BACKOFF_MIN", "6m"),
        ("NOTIFICATION_ROUTE_BACKOFF_MAX", "999ms"),
        ("NOTIFICATION_LOG_LEVEL", "loud"),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", "8092"),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", ":http"),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", ":65536"),
        ("NOTIFICATION_INTERNAL_HTTP_ADDR", "::1:8092"),
        ("NOTIFICATION_REDIS_MASTER_ADDR", "localhost"),
        ("NOTIFICATION_REDIS_MASTER_ADDR", ":6379"),
        ("NOTIFICATION_USER_SERVICE_BASE_URL", "users:8090"),
        ("NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED", "maybe"),
        ("NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED", "2"),
    ],
)
def test_what_cannot_be_meant_stops_the_start_by_the_variables_name(variable: str, said: str) -> None:
    assert mistake(**{variable: said}).startswith(variable)


@pytest.mark.req("S1-36")
@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("NOTIFICATION_CLEANUP_INTERVAL", "-1h"),
        ("NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS", "0"),
        ("NOTIFICATION_ROUTE_BACKOFF_MIN", "10m"),
        ("NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN", "lots"),
    ],
)
def test_the_process_itself_ends(variable: str, said: str) -> None:
    done = command("serve", **{variable: said})
    assert done.returncode != 0
    assert variable in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.req("S1-34")
@pytest.mark.parametrize(
    "said",
    [
        "ops",
        "ops@",
        "@example.com",
        "a b@example.com",
        "Ops <ops@example.com>",
        "a@b@c",
        "a@-x.com",
        "a@x..com",
        "a@x.com;b@x.com",
        "x" * 65 + "@x.com",
        "a@" + "x" * 64 + ".com",
    ],
)
def test_an_administrator_who_has_no_address_stops_the_start(said: str) -> None:
    variable = ADMINS + "LOBBY_APPLICATION_SUBMITTED"
    assert mistake(**{variable: f"ops@example.com,{said}"}).startswith(variable)
