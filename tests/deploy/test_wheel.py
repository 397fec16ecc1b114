"""The built package in an empty environment: everything is in it, and it works without a checkout."""

import email.parser
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from carillon import __version__
from scripts.project_urls import urls
from tests.support.client import WELCOME, Client
from tests.support.process import Program
from tests.support.sources import ROOT

PACKAGE = ROOT / "src" / "carillon"
ADDRESS = "https://git.example.org/bells/carillon"
# Beside an extra's own libraries: what a program that uses a client of ours brings along.
FRAMEWORKS = {"django", "fastapi", "pytest", "sqlalchemy"}
EXTRAS = {"aio_pika", "apprise", "azure", "botocore", "chdb", "clickhouse_connect", "confluent_kafka", "holidays"}
IMPORT_ALL = """
import pkgutil, importlib, sys
import carillon
for found in pkgutil.walk_packages(carillon.__path__, "carillon."):
    if found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        print(found.name, error.name)
    except Exception as error:
        print(found.name, type(error).__name__)
"""
EMBEDDED = """
import asyncio, carillon
async def main():
    async with carillon.open("app.db") as c:
        accepted = await c.send("welcome", channel="email", recipient="ada@example.org",
                                data={"name": "Ada", "link": "https://example.org/"})
        print((await c.wait(accepted.notification_id)).status)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        env={**os.environ, "REPOSITORY_URL": f"{ADDRESS}/"},
        check=True,
        capture_output=True,
        timeout=200,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "env"
    uv = str(Path(sys.executable).with_name("uv"))
    trust = {"UV_SYSTEM_CERTS": "1"} if Path("/etc/ssl/certs/ca-certificates.crt").exists() else {}
    given = {**os.environ, **trust, "VIRTUAL_ENV": str(folder)}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True, timeout=100)
    locked = ["--require-hashes", "-r", str(ROOT / "requirements.lock")]
    fetched = subprocess.run(
        [uv, "pip", "install", "--quiet", *locked], env=given, capture_output=True, text=True, check=False, timeout=280
    )
    if fetched.returncode != 0 and re.search(r"(?i)dns|connect|network|offline|timed out", fetched.stderr):
        pytest.skip("the packages of requirements.lock are neither cached nor to be fetched: there is no network")
    assert fetched.returncode == 0, fetched.stderr
    # What the wheel asks for is in the lock: nothing more is fetched.
    command = [uv, "pip", "install", "--quiet", "--offline", str(wheel)]
    subprocess.run(command, env=given, check=True, timeout=200)
    subprocess.run([uv, "pip", "check", "--quiet"], env=given, check=True, timeout=100)
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.parser.BytesParser().parsebytes(archive.read(name))


@pytest.mark.req("P-550")
def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    kept = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    ours = {f"carillon/{path.relative_to(PACKAGE)}" for path in kept}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert packed == ours
    kinds = {Path(name).suffix for name in packed}
    assert {".py", ".sql", ".lua", ".toml", ".tmpl", ".html", ".js", ".css", ".svg"} <= kinds


@pytest.mark.req("P-550")
def test_the_package_says_what_it_is(wheel: Path) -> None:
    told = metadata(wheel)
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("carillon", __version__, "Apache-2.0")
    named = dict(line.split(", ", 1) for line in told.get_all("Project-URL", []))
    assert named == urls(ADDRESS)
    assert named["Security"] == f"{ADDRESS}/blob/main/SECURITY.md"
    assert urls("") == {}, "an address that nobody gave is not made up"
    payload = told.get_payload()
    assert isinstance(payload, str)
    assert payload.startswith("# Carillon"), "the README is the package's page"


def run(empty: Path, folder: Path, *command: str) -> str:
    env = {"PATH": f"{empty}/bin:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.req("P-550")
def test_it_imports_nothing_that_it_does_not_ask_for(empty: Path, tmp_path: Path) -> None:
    missing = dict(line.split() for line in run(empty, tmp_path, "python", "-c", IMPORT_ALL).splitlines())
    strange = {name: why for name, why in missing.items() if why.split(".")[0] not in FRAMEWORKS | EXTRAS}
    # The framework's own models need its settings, which an import alone does not have.
    assert {name for name in strange if not name.startswith("carillon.client.django")} == set()


@pytest.mark.slow
@pytest.mark.req("P-550")
def test_it_runs_from_an_empty_folder(empty: Path, tmp_path: Path) -> None:
    assert run(empty, tmp_path, "carillon", "--version").strip() == __version__
    assert "delivered" in run(empty, tmp_path, "python", "-c", EMBEDDED)
    doctor = run(empty, tmp_path, "carillon", "doctor")
    assert "ok   Templates" in doctor
    program = Program(
        "serve", env={"CARILLON_HTTP__PORT": "0"}, cwd=tmp_path, command=[str(empty / "bin" / "carillon")]
    )
    with program:
        address = str(program.wait_ready()["addresses"][0])
        for path in ("/console", "/console/app.js", "/console/tokens.css", "/docs", "/openapi.json", "/inbox/inbox.js"):
            with urllib.request.urlopen(f"{address}{path}", timeout=20) as answer:  # noqa: S310 - loopback
                assert answer.status == 200
                assert answer.read()
        client = Client.of(program)
        assert client.settled(client.send(WELCOME).body["notificationId"])["status"] == "delivered"
        program.terminate()
        assert program.wait() == 0
