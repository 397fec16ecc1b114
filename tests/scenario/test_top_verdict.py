"""The second line of `carillon top`: it knows what the console's overview knows, and never shows an old verdict."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.process import Program, run_carillon
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("P-954", "P-980")

CALM = "● Nothing needs attention."
BY_HAND = {"X-Admin-Override": "true"}


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": str(free_port())}
    with Program("serve", env=environment, cwd=tmp_path) as running:
        running.wait_ready(60)
        yield running


def said(program: Program) -> str:
    url = str(program.wait_ready()["addresses"][0])
    seen = run_carillon(["top", "--once", "--url", url], env={"PATH": "/usr/bin:/bin", "COLUMNS": "120"}, timeout=120)
    assert seen.returncode == 0, seen.stderr
    return seen.stdout


def test_it_names_pauses_and_breakers(program: Program) -> None:
    client = Client.of(program)
    assert CALM in said(program)
    pause = {"scope": "lane", "name": "bulk", "reason": "the printer burns"}
    assert client.call("POST", "/api/v1/admin/pauses", pause, BY_HAND).status < 300
    assert "▲ lane bulk is paused by " in said(program)
    assert ": the printer burns" in said(program)
    forced = {"provider": "sandbox", "to": "open", "reason": "an exercise"}
    assert client.call("POST", "/api/v1/admin/breakers", forced, BY_HAND).status < 300
    lines = said(program).splitlines()
    assert re.match(r"✖ The breaker of sandbox \(.*push.*\) is open", lines[1]), lines[:4]
    assert any(line.startswith("▲ lane bulk") for line in lines[2:5]), "and the rest below it"
    assert CALM not in "\n".join(lines)


def test_an_old_verdict_is_none(program: Program) -> None:
    url = str(program.wait_ready()["addresses"][0])
    with Terminal("top", "--every", "0.3", env={"CARILLON_URL": url}) as terminal:
        terminal.wait_for(CALM)
        program.kill()
        terminal.wait_for("no answer from")
        terminal.wait_for("✖ what stands below is from")
        mark = len(terminal.seen)

        def drawn_again() -> bool:
            return "FLOW" in terminal.seen[mark:]

        wait_until(drawn_again, timeout=40, what="another screen")
        assert CALM not in terminal.seen[mark:]
        assert terminal.press("q") == 0
