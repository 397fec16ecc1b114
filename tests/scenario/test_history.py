"""History as an operator meets it: the composed program, a real ClickHouse, and `carillon history`."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from carillon.cli import app
from tests.support.clickhouse import ClickHouse
from tests.support.client import Client
from tests.support.process import Program, run_carillon
from tests.support.waiting import wait_until

COUNT = "SELECT count() AS n FROM notification_history FINAL"


@pytest.fixture(scope="module")
def server() -> Iterator[ClickHouse]:
    with ClickHouse() as server:
        yield server


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/carillon.db"


@pytest.fixture
def environment(database: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database,
        "CARILLON_HTTP__PORT": "0",
        "CARILLON_LEDGER__ALLOW_UNSAFE": "1",
        "CARILLON_DRILL__TIME_SCALE": "0.001",
        "CARILLON_HISTORY__POLL_SECONDS": "0.1",
        "CARILLON_HISTORY__LAG_SECONDS": "0.05",
        "CARILLON_LOG__LEVEL": "debug",
    }


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest, environment: dict[str, str]) -> dict[str, str]:
    """The same on each engine."""
    if request.param == "postgres":
        environment["DATABASE_URL"] = str(request.getfixturevalue("postgres_dsn"))
    return environment


@pytest.fixture
def place(server: ClickHouse, environment: dict[str, str]) -> ClickHouse:
    server.command_of("DROP TABLE IF EXISTS notification_history SYNC")
    environment["CLICKHOUSE_URL"] = server.url
    return server


def carillon(*args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    shown = {"PATH": os.environ["PATH"], "COLUMNS": "160", **env}
    return run_carillon([*args], env=shown, timeout=100)


def typed(*args: str, env: dict[str, str]) -> str:
    """As `carillon`, without the second that a process takes to start."""
    done = CliRunner().invoke(app, ["history", *args], env={"COLUMNS": "160", **env})
    assert done.exit_code == 0, done.output
    return done.output


def asked(*args: str, env: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(typed(*args, "--json", env=env))
    return found


def sent(program: Program, number: int, **changes: Any) -> list[str]:
    client = Client.of(program)
    ids = [client.send(**changes).body["notificationId"] for _ in range(number)]
    for one in ids:
        client.settled(one)
    return ids


def kept(place: ClickHouse, number: int) -> None:
    def there() -> bool:
        exists = place.rows("EXISTS TABLE notification_history")[0]["result"]
        return bool(exists) and place.rows(COUNT)[0]["n"] >= number

    wait_until(there, timeout=60, what=f"{number} endings in ClickHouse")
    assert place.rows(COUNT)[0]["n"] == number


def told_of(program: Program, number: int) -> None:
    """So many copied, and remembered as copied."""

    def told() -> bool:
        return sum(int(event["endings"]) for event in program.events("history_kept")) == number

    wait_until(told, timeout=60, what=f"{number} ended routes in the archive")


@pytest.mark.req("S4-12")
def test_an_operator_looks_back(environment: dict[str, str], place: ClickHouse, tmp_path: Path) -> None:
    with Program("serve", env=environment, cwd=tmp_path) as program:
        program.wait_ready()
        sent(program, 5)
        sent(program, 2, channel="sms", recipient="+4915112345678", metadata={"sandbox": {"outcome": "refused"}})
        kept(place, 7)
        told_of(program, 7)
    volume = asked("volume", env=environment)
    assert sum(hour["total"] for hour in volume) == 7
    assert sum(hour["deadLetter"] for hour in volume) == 2
    (spread,) = asked("latency", "--by", "provider", env=environment)
    assert (spread["name"], spread["published"]) == ("sandbox", 5)
    assert 0 <= spread["p50"] <= spread["p99"] <= spread["max"]
    (failed,) = asked("failures", "--by", "channel", env=environment)
    assert (failed["name"], failed["failed"], failed["total"]) == ("sms", 2, 2)
    # Also around midnight.
    assert sum(day["total"] for day in asked("volume", "--channel", "sms", "--by", "day", env=environment)) == 2
    wait_until(
        lambda: "History: ClickHouse 2" in carillon("doctor", env=environment).stdout,
        timeout=90,
        what="a healthy ClickHouse",
    )
    for question in ("volume", "latency", "failures"):
        assert "█" in typed(question, env=environment)


@pytest.mark.timeout(300)
@pytest.mark.req("S4-12")
@pytest.mark.parametrize(
    ("either", "point"), [("sqlite", "before_history"), ("postgres", "after_history")], indirect=["either"]
)
def test_a_process_that_dies_while_copying_loses_and_doubles_nothing(
    either: dict[str, str], place: ClickHouse, tmp_path: Path, point: str
) -> None:
    # Short patience is a short lease: the heir need not wait for a minute.
    either["CARILLON_HISTORY__TIMEOUT_SECONDS"] = "4"
    with Program("serve", env=either, cwd=tmp_path) as program:
        program.wait_ready()
        sent(program, 3)
        told_of(program, 3)
        program.terminate()
        assert program.wait() == 0
    with Program("serve", env={**either, "CARILLON_FAULTPOINTS": f"{point}=exit9"}, cwd=tmp_path) as program:
        program.wait_ready()
        with suppress(OSError, HTTPException):
            # Written down, whether or not the answer leaves before the end.
            Client.of(program).send()
        wait_until(lambda: program.returncode is not None, timeout=60, what="the process killed while it copied")
    with Program("serve", env=either, cwd=tmp_path) as heir:
        heir.wait_ready()
        kept(place, 4)
        sent(heir, 2)
        kept(place, 6)


@pytest.mark.req("S4-12")
def test_a_clickhouse_that_hangs_slows_no_delivery(either: dict[str, str], place: ClickHouse, tmp_path: Path) -> None:
    either["CARILLON_HISTORY__TIMEOUT_SECONDS"] = "3"
    with Program("serve", env=either, cwd=tmp_path) as program:
        program.wait_ready()
        sent(program, 1)
        kept(place, 1)
        place.pause()
        try:
            sent(program, 20)
            program.wait_for("trouble", lambda line: line["where"] == "history", timeout=60)
            sent(program, 20)
            assert Client.of(program).get("/readyz").status == 200
        finally:
            place.resume()
        kept(place, 41)


@pytest.mark.timeout(300)
def test_a_folder_can_be_asked_while_it_is_written(environment: dict[str, str], tmp_path: Path) -> None:
    environment["CLICKHOUSE_URL"] = f"chdb://{tmp_path}/history"
    with Program("serve", env=environment, cwd=tmp_path) as program:
        program.wait_ready()
        sent(program, 3)
        program.wait_for("history_kept", timeout=60)
        found: list[int] = []

        def all_there() -> bool:
            done = carillon("history", "volume", "--json", env=environment)
            # Busy at this very moment is said in one line, and the next question is answered.
            assert done.returncode == 0 or "ClickHouse" in done.stderr, done.stderr
            found[:] = [sum(hour["total"] for hour in json.loads(done.stdout))] if done.returncode == 0 else []
            return found == [3]

        wait_until(all_there, timeout=100, what="all endings in the folder")
        mark = program.mark()
        rewound = carillon("history", "rewind", "--since", "1h", env=environment)
        assert rewound.returncode == 0, rewound.stderr
        wait_until(
            lambda: any(line.get("event") == "history_kept" for line in program.lines[mark:]),
            timeout=60,
            what="history copied once more",
        )
        wait_until(all_there, timeout=100, what="still three")


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (("volume",), {}, "history.url: no history is kept"),
        (("volume", "--since", "soon"), {"CLICKHOUSE_URL": "http://127.0.0.1:1"}, "'soon' is not a duration"),
        (("latency",), {"CLICKHOUSE_URL": "http://127.0.0.1:1"}, "ClickHouse: [Errno 111] Connection refused"),
    ],
)
def test_what_cannot_be_asked_is_one_line(args: tuple[str, ...], env: dict[str, str], said: str) -> None:
    done = carillon("history", *args, env=env)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
