"""The image, read as its builder reads it, and its health check run; there is no engine here to build it with."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dockerfile import Step, stages, variables
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.sources import ROOT
from tests.support.waiting import wait_until

FILE = ROOT / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def image() -> list[Step]:
    return stages(FILE)[-1]


def only(stage: list[Step], word: str) -> Step:
    (found,) = (step for step in stage if step.word == word)
    return found


def test_it_runs_as_nobody_and_gets_its_signals(image: list[Step]) -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", only(image, "USER").rest)
    assert only(image, "ENTRYPOINT").list() == ["carillon"]
    assert only(image, "CMD").list() == ["serve"]
    assert only(image, "STOPSIGNAL").rest == "SIGTERM"
    after = image.index(only(image, "USER"))
    assert not [step for step in image[after:] if step.word in {"RUN", "COPY", "ADD"}], "nothing is its own to change"


def test_only_the_volume_is_written_to(image: list[Step]) -> None:
    assert only(image, "WORKDIR").rest == only(image, "VOLUME").rest == "/data"
    assert variables(image)["PYTHONDONTWRITEBYTECODE"] == "1"
    copied = [step.rest for step in image if step.word == "COPY"]
    assert copied == ["--from=build /opt/carillon /opt/carillon"], "no sources, no compiler, no cache"


def test_what_makes_a_bad_image() -> None:
    for stage in stages(FILE):
        assert re.match(r"\S+:(?!latest\b)\S+", only(stage, "FROM").rest), "a version is named"
        for step in stage:
            assert step.word != "ADD", "COPY fetches nothing"
            assert not re.search(r"\b(sudo|curl|wget|apt-get)\b", step.rest)
            assert not re.search(r"(?i)(secret|password|token)\w*=", step.rest), "a secret in a layer stays there"
            assert "pip install" not in step.rest or "--require-hashes" in step.rest or "--constraint" in step.rest


def test_the_builder_sees_what_it_copies_and_nothing_else() -> None:
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    shown = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines[1] == "*"
    copied = {
        name
        for step in stages(FILE)[0]
        if step.word == "COPY"
        for name in step.rest.split()[:-1]
        if not name.startswith("--")
    }
    assert copied == shown
    assert all((ROOT / name).exists() for name in shown)


def test_its_extras_exist_and_are_locked() -> None:
    known: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    asked = next(step.rest for step in stages(FILE)[0] if step.word == "ARG").removeprefix("EXTRAS=").split(",")
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE))
    for extra in asked:
        assert {re.split(r"[<>=]", package)[0].lower() for package in known[extra]} <= locked


def test_locks_become_constraints() -> None:
    command = next(step.rest for step in stages(FILE)[0] if step.rest.startswith("sed "))
    edits: Any = re.search(r"sed (.*?) requirements", command)
    text = subprocess.run(
        ["bash", "-c", f"sed {edits[1]} {ROOT / 'requirements-dev.lock'}"], capture_output=True, text=True, check=True
    ).stdout
    assert len(text.splitlines()) > 50
    for line in text.splitlines():
        assert re.fullmatch(r"[\w.\[\]-]+==[^\\ ]+( ; .+[^\\ ])?", line), line


def test_the_health_check_tells_ready_from_not(image: list[Step], tmp_path: Path) -> None:
    given = variables(image)
    port = str(free_port())
    given |= {"CARILLON_HTTP__PORT": port, "CARILLON_HTTP__HOST": "127.0.0.1"}
    _, *rest = only(image, "HEALTHCHECK").list()
    check = [sys.executable, *rest]
    env = {"CARILLON_HTTP__PORT": port}
    assert subprocess.run(check, env=env, capture_output=True, check=False, timeout=60).returncode == 1
    del given["PATH"]
    with Program(*only(image, "CMD").list(), env=given, cwd=tmp_path) as program:
        program.wait_ready(60)

        def healthy() -> bool:
            return subprocess.run(check, env=env, capture_output=True, check=False, timeout=60).returncode == 0

        # An engine asks again as well: one answer that comes too late is no illness.
        wait_until(healthy, timeout=60, what="a container that is said to be healthy")
        program.terminate()
        assert program.wait() == 0


def test_an_image_without_a_secret_is_refused_at_its_start(image: list[Step], tmp_path: Path) -> None:
    given = {name: value for name, value in variables(image).items() if name != "PATH"}
    with Program("serve", env={**given, "CARILLON_HTTP__PORT": str(free_port())}, cwd=tmp_path) as program:
        assert program.wait() == 2
        assert "JWT_SECRET_KEY" in program.tail(5)
