"""`carillon load`: bounded, measured, and never through a real vendor by default."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carillon.cli.plots import bar, histogram, percentile, sparkline
from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.process import Program, carillon_command, run_carillon
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until


def carillon(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "120", **env}
    return run_carillon([*args], env=environment, timeout=180)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Email goes to a mail server here, everything else to the sandbox."""
    folder = tmp_path_factory.mktemp("load")
    environment = {
        "DATABASE_URL": f"sqlite:///{folder}/c.db",
        "CARILLON_HTTP__PORT": "0",
        "SMTP_URL": f"smtp://127.0.0.1:{free_port()}",
        "EMAIL_FROM": "bells@example.org",
    }
    with Program("serve", env=environment, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture(scope="module")
def url(program: Program) -> str:
    return str(program.wait_ready()["addresses"][0])


def total(program: Program) -> Any:
    return Client.of(program).get("/api/v1/notifications").body["totalCount"]


def test_a_throwaway_instance_is_tested_with_nothing_of_the_callers(program: Program, url: str) -> None:
    before = total(program)
    environment = {"CARILLON_URL": url, "SMTP_URL": "smtp://127.0.0.1:9", "EMAIL_FROM": "bells@example.org"}
    done = carillon("load", "--count", "40", "--channel", "email", "--json", **environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["against"], told["accepted"], told["delivered"]) == ("a throw-away instance", 40, 40)
    assert told["acceptMs"]["p50"] <= told["acceptMs"]["p99"] <= told["acceptMs"]["max"]
    assert told["deliveredPerSecond"] > 0
    assert total(program) == before


def test_a_terminal_sees_bars_and_a_plot() -> None:
    with Terminal("load", "--count", "30", env={}) as terminal:
        terminal.wait_for("30 of 30 delivered, 0 failed, 0 still waiting", 120)
        for words in ("accepted", "30/30", "delivered after  p50", "█", "ms"):
            assert words in terminal.seen


def test_an_address_is_tested_through_its_sandbox(program: Program, url: str) -> None:
    before = total(program)
    done = carillon("load", "--count", "25", "--concurrency", "3", "--url", url, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["against"] == url
    assert total(program) == before + 25


def test_real_vendors_are_left_alone(program: Program, url: str) -> None:
    before = total(program)
    refused = carillon("load", "--count", "5", "--channel", "email", "--url", url)
    assert refused.returncode == 1
    assert "email goes to smtp there, not to the sandbox" in refused.stderr
    nobody = carillon("load", "--count", "5", "--channel", "email", "--url", url, "--any-provider")
    assert nobody.returncode == 1
    assert "with --to" in nobody.stderr
    assert total(program) == before


@pytest.mark.req("P-862")
def test_what_is_not_delivered_is_told(program: Program, url: str) -> None:
    client = Client.of(program)
    drill = {"outcome": "refused"}
    assert client.call("PUT", "/api/v1/sandbox/drills/sms", drill).status < 300
    try:
        failed = carillon("load", "--count", "5", "--channel", "sms", "--url", url)
    finally:
        client.call("DELETE", "/api/v1/sandbox/drills/sms")
    assert failed.returncode == 1
    assert "0 of 5 delivered, 5 failed" in failed.stdout
    # What came to an end is not what was delivered.
    assert "ended 5 of 5" in failed.stderr
    assert "delivered" not in failed.stderr
    unknown = carillon("load", "--count", "2", "--template", "nowhere", "--url", url)
    assert unknown.returncode == 1
    assert "TEMPLATE_NOT_FOUND" in unknown.stdout


def test_its_time_is_bounded(url: str, program: Program) -> None:
    client = Client.of(program)
    assert client.call("PUT", "/api/v1/sandbox/drills/sms", {"outcome": "unavailable"}).status < 300
    try:
        cut = carillon("load", "--count", "3", "--channel", "sms", "--seconds", "1", "--url", url, "--json")
    finally:
        client.call("DELETE", "/api/v1/sandbox/drills/sms")
    assert cut.returncode == 1
    assert json.loads(cut.stdout)["delivered"] < 3


@pytest.mark.req("P-622", "P-1033")
@pytest.mark.parametrize(
    ("sent", "named"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
)
def test_what_was_seen_before_the_signal_is_told(program: Program, url: str, sent: signal.Signals, named: str) -> None:
    before = total(program)
    # Tests that run in the background inherit an ignored SIGINT; a user's terminal does not ignore it.
    words = ["env", "--default-signal=INT", *carillon_command(), "load", "--count", "1000000", "--url", url, "--json"]
    with subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True) as running:
        wait_until(lambda: bool(total(program) > before + 50), timeout=60, what="fifty notifications of the load")
        running.send_signal(sent)
        said, _ = running.communicate(timeout=60)
    told = json.loads(said)
    assert (running.returncode, told["cutShort"]) == (1, f"stopped by {named}")
    # Calls under way were finished and counted: the ledger has as many, and no more.
    assert told["accepted"] == total(program) - before
    assert told["accepted"] == told["sent"] >= 50
    assert told["accepted"] >= told["delivered"] > 0
    assert told["acceptedPerSecond"] > 0


@pytest.mark.req("P-622")
def test_a_log_gets_lines_instead_of_bars(url: str) -> None:
    done = carillon("load", "--count", "30", "--url", url)
    assert "accepted 30 of 30" in done.stderr, done
    assert "read 30 of 30" in done.stderr
    assert carillon("load", "--count", "3", "--url", url, "--json").stderr == ""


@pytest.mark.req("P-622")
def test_a_server_that_goes_away_takes_no_figures_with_it(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=tmp_path) as server:
        address = str(server.wait_ready(60)["addresses"][0])
        words = [*carillon_command(), "load", "--count", "1000000", "--seconds", "8", "--url", address, "--json"]
        with subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True) as running:
            wait_until(lambda: bool(total(server) > 50), timeout=60, what="fifty notifications of the load")
            server.kill()
            said, _ = running.communicate(timeout=120)
    told = json.loads(said)
    assert running.returncode == 1
    assert told["accepted"] >= 50
    assert told["refused"] > 0
    assert told["cutShort"] == told["firstError"] is not None


def test_plots() -> None:
    assert sparkline([0, 1, 2, 4], 3) == "▃▅█"
    assert sparkline([0, 0], 5) == "▁▁"
    assert sparkline([], 5) == ""
    assert bar(1, 1000, 10) == "▏"
    assert bar(5, 10, 4) == "██"
    assert bar(0, 10, 4) == ""
    assert percentile([1.0, 2.0, 3.0], 1.0) == 3.0
    assert percentile([], 0.5) is None
    assert histogram([0.5, 1, 3, 99], (1, 5, 10)) == [(1, 2), (5, 1), (10, 1)]


def test_a_folder_is_left_behind_by_nobody(tmp_path: Path) -> None:
    done = carillon("load", "--count", "2", "--json", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
