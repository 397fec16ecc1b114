"""The command line, as an operator uses it."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carillon.cli.send import variables
from carillon.config.reading import blueprint_names
from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.process import Program, run_carillon
from tests.support.servers import Redis

Run = subprocess.CompletedProcess[str]


def carillon(*args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Run:
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", **(env or {})}
    return run_carillon([*args], env=environment, cwd=cwd, timeout=100)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "DATABASE_URL": f"sqlite:///{tmp_path}/carillon.db",
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_DRILL__TIME_SCALE": "0.001",
    }


@pytest.fixture
def program(environment: dict[str, str], tmp_path: Path) -> Iterator[Program]:
    with Program("serve", env=environment, cwd=tmp_path) as program:
        program.wait_ready()
        yield program


def test_send_shows_what_becomes_of_it(program: Program) -> None:
    url = program.wait_ready()["addresses"][0]
    sent = carillon(
        *("send", "welcome", "--channel", "push", "--to", "device-1", "-d", "name=Ada", "-d", "link=https://x.example"),
        env={"CARILLON_URL": url},
    )
    assert sent.returncode == 0, sent.stderr
    assert "delivered" in sent.stdout
    assert "#1 sandbox sent" in sent.stdout


def test_a_variable_inside_another_is_given_by_its_path() -> None:
    given = variables(["name=Ada", "order.day=a=b", "order.lines.first=bell"])
    assert given == {"name": "Ada", "order": {"day": "a=b", "lines": {"first": "bell"}}}


def test_send_for_machines_repeats_under_one_key(program: Program) -> None:
    url = program.wait_ready()["addresses"][0]
    args = ("send", "welcome", "--channel", "push", "--to", "d", "-d", "name=A", "-d", "link=l", "--key", "k", "--json")
    first, second = (json.loads(carillon(*args, "--url", url).stdout) for _ in range(2))
    assert first["id"] == second["id"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nowhere", "--channel", "push", "--to", "d"), "TEMPLATE_NOT_FOUND"),
        (("welcome", "--channel", "push", "--to", "d"), "missing template variables: link, name"),
        (("welcome", "--to", "d", "-d", "name"), "write it as name=value"),
        (("welcome", "--to", "d", "-d", "order.=x"), "write it as name=value"),
        (("welcome", "--to", "d", "-d", "order.day=x", "-d", "order=y"), "order cannot be a value and hold others"),
        (("welcome", "--to", "d", "-d", "order=y", "-d", "order.day=x"), "order.day cannot be a value and hold others"),
        (("welcome", "--channel", "fax", "--to", "d"), "channel"),
    ],
)
def test_send_says_what_is_wrong(program: Program, args: tuple[str, ...], words: str) -> None:
    sent = carillon("send", *args, "--url", program.wait_ready()["addresses"][0])
    assert sent.returncode == 1
    assert words in sent.stderr
    assert "Traceback" not in sent.stderr


WELCOME = ("send", "welcome", "--channel", "push", "--to", "d", "-d", "name=A", "-d", "link=l")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_send_ends_with_one_when_its_delivery_failed(program: Program, flags: tuple[str, ...]) -> None:
    url = program.wait_ready()["addresses"][0]
    refused = json.dumps({"sandbox": {"outcome": "refused", "times": 1}})
    sent = carillon(*WELCOME, "--metadata", refused, "--wait", "40", "--url", url, *flags)
    assert sent.returncode == 1
    assert "drill: refused" in sent.stdout, "the reason is told"
    assert sent.stderr == ""
    if flags:
        assert json.loads(sent.stdout)["status"] == "failed"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_send_says_what_is_queued_still(program: Program, flags: tuple[str, ...]) -> None:
    url = program.wait_ready()["addresses"][0]
    sent = carillon(*WELCOME, "--at", "2096-01-01T00:00:00Z", "--wait", "0.1", "--url", url, *flags)
    assert (sent.returncode, sent.stderr) == (
        0,
        "still queued after 0.1 s; it is accepted and goes on without this command\n",
    )
    assert "queued" in sent.stdout
    at_once = carillon(*WELCOME, "--wait", "0", "--url", url, *flags)
    assert (at_once.returncode, at_once.stderr) == (0, ""), "nobody waited for an outcome"


def test_send_without_a_server_says_what_to_start() -> None:
    sent = carillon("send", "welcome", "--url", f"http://127.0.0.1:{free_port()}")
    assert sent.returncode == 1
    assert "carillon serve" in sent.stderr


@pytest.mark.req("P-1030")
def test_dead_letters_from_the_terminal(program: Program, environment: dict[str, str]) -> None:
    client = Client.of(program)
    accepted = client.send(metadata={"sandbox": {"outcome": "refused", "times": 1}}).body["notificationId"]
    client.settled(accepted)
    listed = carillon("dead-letters", "list", env=environment)
    assert accepted in listed.stdout
    narrow = carillon("dead-letters", "list", env={**environment, "COLUMNS": "80"})
    assert accepted in narrow.stdout, "an id in pieces cannot be copied"
    assert "push:token:" in narrow.stdout
    assert re.search(r"1 of \d", narrow.stdout)
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", narrow.stdout), "nor a time"
    none = carillon("dead-letters", "list", "--channel", "sms", env=environment)
    assert none.stdout == "0 of 0 dead letters\n", "no table without a row"
    shown = carillon("dead-letters", "show", accepted, env=environment)
    assert "refused" in shown.stdout
    assert "drill: drill" not in shown.stdout, "the cause is said once"
    counted = carillon("dead-letters", "redrive", "--all", "--dry-run", env=environment)
    assert "1 dead letter found, 0 redriven" in counted.stdout
    mark = program.mark()
    redriven = carillon("dead-letters", "redrive", accepted, env=environment)
    assert "1 redriven" in redriven.stdout
    program.wait_for("route_attempted", lambda line: line["verdict"] == "finish", since=mark)
    unknown = carillon("dead-letters", "show", "nobody", env=environment)
    assert unknown.returncode == 1
    assert "has no dead letter" in unknown.stderr
    assert carillon("dead-letters", "redrive", env=environment).returncode == 1


@pytest.mark.req("P-1322")
def test_suppressions_from_the_terminal(program: Program, environment: dict[str, str]) -> None:
    client = Client.of(program)
    for tenant in ("acme", "globex"):
        added = carillon(
            "suppressions", "add", "email", "ann@example.org", "--tenant", tenant, "--days", "3", env=environment
        )
        assert "nothing more is sent to ann@example.org by email until 20" in added.stdout, added.stderr
    everybody = carillon("suppressions", "add", "email", "ann@example.org", "--reason", "asked", env=environment)
    assert "until it is lifted" in everybody.stdout
    unknown = carillon("suppressions", "add", "emial", "ann@example.org", env=environment)
    assert (unknown.returncode, "no such channel" in unknown.stderr) == (1, True)
    listed = carillon("suppressions", "list", env=environment).stdout
    assert all(word in listed for word in ("3 of 3", "acme", "globex", "every tenant", "manual", "asked"))
    assert "1 of 1" in carillon("suppressions", "list", "--shared", env=environment).stdout
    body: dict[str, Any] = {"channel": "email", "recipient": "ann@example.org"}
    sent = client.send(**body)
    number = str(sent.body["skipped"][0]["suppressionId"])
    assert (sent.body["status"], sent.body["skipped"][0]["kind"]) == ("skipped", "manual")
    url = program.wait_ready()["addresses"][0]
    told = carillon(*WELCOME, "--channel", "email", "--to", "ann@example.org", "--url", url, env=environment)
    assert (told.returncode, "the address is suppressed (manual) until it is lifted" in told.stdout) == (1, True)
    asked = (*WELCOME, "--channel", "email", "--to", "ann@example.org", "--dry-run", "--url", url)
    explained = carillon(*asked, env=environment)
    assert (explained.returncode, "would be skipped" in explained.stdout) == (1, True)
    # One tenant's filter lifts nothing of the others, nor what holds for every tenant.
    flags = ("--all", "--tenant", "acme", "--address", "ann@example.org")
    assert (
        "1 suppression found, 0 lifted (dry run)"
        in carillon("suppressions", "lift", *flags, "--dry-run", env=environment).stdout
    )
    assert "1 lifted" in carillon("suppressions", "lift", *flags, env=environment).stdout
    assert "2 of 2" in carillon("suppressions", "list", env=environment).stdout
    assert "1 lifted" in carillon("suppressions", "lift", number, env=environment).stdout
    assert client.send(**body).body["status"] == "queued"
    again = carillon("suppressions", "lift", number, env=environment)
    assert (again.returncode, "no suppression in force" in again.stderr) == (1, True)
    assert carillon("suppressions", "lift", env=environment).returncode == 1
    both = carillon("suppressions", "list", "--shared", "--tenant", "acme", env=environment)
    assert (both.returncode, "exclude each other" in both.stderr) == (1, True)


def test_migrate_can_be_run_twice(environment: dict[str, str]) -> None:
    assert carillon("migrate", env=environment).returncode == 0
    assert carillon("migrate", env=environment).returncode == 0


@pytest.mark.req("G-20")
def test_doctor_names_what_is_ill(environment: dict[str, str]) -> None:
    healthy = carillon("doctor", env=environment)
    assert healthy.returncode == 0, healthy.stdout
    with Redis() as server:
        environment["REDIS_URL"] = server.url()
        assert carillon("doctor", env=environment).returncode == 0
        server.stop()
        ill = carillon("doctor", "--json", env=environment)
    assert ill.returncode == 1
    assert [finding["part"] for finding in json.loads(ill.stdout) if finding["verdict"] == "ill"] == ["Redis"]


def test_doctor_asks_a_redis_that_is_named_by_its_address(environment: dict[str, str]) -> None:
    environment["CARILLON_REDIS__ADDRESS"] = f"127.0.0.1:{free_port()}"
    redis_address = carillon("doctor", "--json", env=environment)
    assert redis_address.returncode == 1
    ill = [finding["part"] for finding in json.loads(redis_address.stdout) if finding["verdict"] == "ill"]
    assert ill == ["Redis"]


@pytest.mark.req("P-970")
def test_doctor_names_a_vendor_that_hangs_and_asks_the_others(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "carillon.toml").write_text(
            f"""
            [channels]
            email = ["smtp"]
            sms = ["sandbox"]
            [providers.smtp]
            kind = "smtp"
            url = "smtp://127.0.0.1:{silent.getsockname()[1]}"
            sender = "bells@example.org"
            [providers.sandbox]
            kind = "sandbox"
            """
        )
        hangs = carillon("doctor", "--json", "--config", str(tmp_path / "carillon.toml"), env=environment)
    assert hangs.returncode == 1
    found = {finding["part"]: finding for finding in json.loads(hangs.stdout)}
    assert [part for part, finding in found.items() if finding["verdict"] == "ill"] == ["Provider smtp"]
    assert "no answer within" in found["Provider smtp"]["words"]
    assert {"Provider sandbox", "Channel sms", "Channel email"} <= found.keys()


def test_doctor_names_the_mail_server_that_does_not_answer(environment: dict[str, str]) -> None:
    environment |= {"SMTP_URL": f"smtp://127.0.0.1:{free_port()}", "EMAIL_FROM": "bells@example.org"}
    ill = carillon("doctor", "--json", env=environment)
    assert ill.returncode == 1
    assert [finding["part"] for finding in json.loads(ill.stdout) if finding["verdict"] == "ill"] == ["Provider smtp"]


@pytest.mark.req("G-02")
def test_config_show_masks_secrets(environment: dict[str, str]) -> None:
    environment |= {
        "JWT_SECRET_KEY": "planted-secret-planted-secret-planted",
        "SMTP_URL": "smtp://bell:planted-password@mail.example.org:25",
        "WEBHOOK_SIGNING_SECRET": "whsec_cGxhbnRlZC1wbGFudGVkLXBsYW50ZWQ=",
    }
    for flags in ([], ["--json"]):
        shown = carillon("config", "show", *flags, env=environment)
        assert shown.returncode == 0, shown.stderr
        assert "planted" not in shown.stdout
        assert "cGxhbnRlZC" not in shown.stdout
        assert "mail.example.org" in shown.stdout
    settings = json.loads(carillon("config", "show", "--json", env=environment).stdout)
    assert settings["ledger"]["lease_seconds"] == 30
    assert settings["policy"]["breaker"]["*"]["failure_threshold"] == 5


@pytest.mark.req("G-03")
@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("DATABASE_URL", "mysql://nobody", "database URL"),
        ("CARILLON_HTTP__PORT", "eighty", "http.port"),
        ("CARILLON_HTTP__PORT", "70000", "http.port"),
        ("CARILLON_HTTP__HOST", "0.0.0.0", "JWT_SECRET_KEY"),  # noqa: S104 - refused is what is expected
        ("CARILLON_WORK__CONCURRENCY", "0", "work.concurrency"),
        ("CARILLON_NO__SUCH", "1", "no"),
        ("CARILLON_LEDGER__LEASE_SECONDS", "1s", "timeout_seconds"),
        ("JWT_SECRET_KEY", "short", "JWT_SECRET_KEY"),
        ("CARILLON_BLUEPRINT", "nowhere", f"known: {', '.join(blueprint_names())}"),
        ("CARILLON_CONFIG", "/no/such.toml", "no such file"),
    ],
)
def test_a_wrong_setting_stops_the_start(
    environment: dict[str, str], tmp_path: Path, variable: str, value: str, named: str
) -> None:
    environment[variable] = value
    started = carillon("serve", env=environment, cwd=tmp_path)
    assert started.returncode != 0
    assert named in started.stdout + started.stderr
    assert "Traceback" not in started.stdout + started.stderr
    assert "ready" not in started.stdout


@pytest.mark.req("G-19")
@pytest.mark.parametrize("variable", ["CARILLON_DRILL__TIME_SCALE", "CARILLON_FAULTPOINTS"])
def test_production_refuses_drills(tmp_path: Path, variable: str) -> None:
    values = {"CARILLON_DRILL__TIME_SCALE": "0.5", "CARILLON_FAULTPOINTS": "after_claim=exit9"}
    started = carillon("serve", env={"ENV": "production", variable: values[variable]}, cwd=tmp_path)
    assert started.returncode == 2
    assert "ENV=production" in started.stderr


@pytest.mark.parametrize(
    ("shared", "said"), [("1", "the ledger shares breakers"), ("0", "each process keeps its own breakers")]
)
def test_doctor_says_who_shares_breakers(shared: str, said: str, tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_LEDGER__SHARE_BREAKERS": shared}
    assert f"not configured; {said}" in carillon("doctor", env=environment).stdout


@pytest.mark.parametrize(
    ("command", "code"), [("serve", 2), ("serve --roles doors,upkeep", 2), ("serve --roles upkeep", 2), ("doctor", 1)]
)
def test_a_worker_without_its_client_says_what_to_install(tmp_path: Path, command: str, code: int) -> None:
    stub = tmp_path / "aio_pika"
    stub.mkdir()
    (stub / "__init__.py").write_text('raise ModuleNotFoundError("none", name="aio_pika")\n')
    servers = {
        "RABBITMQ_URL": "amqp://127.0.0.1:1/",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "DATABASE_URL": "postgresql://127.0.0.1:1/push",
        "TEMPLATE_SERVICE_URL": "http://127.0.0.1:1",
        "FCM_API": "legacy",
        "FCM_SERVER_KEY": "key",
    }
    started = carillon(
        *command.split(), "--blueprint", "push-worker", env={**servers, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path
    )
    assert started.returncode == code
    assert "pip install 'carillon[rabbitmq]'" in started.stdout + started.stderr
    assert "Traceback" not in started.stdout + started.stderr
