"""Schemathesis against the running program: whatever the document allows or forbids, the program agrees."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http_client import Client, serving
from tests.support.process import Program
from tests.unit.test_web_auth import SECRET, token

SETTINGS = """
[generation]
deterministic = true
# One proof of identity is enough; two that disagree are refused, which is tested elsewhere.
with-security-parameters = false

[checks.positive_data_acceptance]
# Whether a template exists, a person can be reached or a tenant is one's own is not a matter of schema.
expected-statuses = ["2xx", "400", "403", "404", "409", "422"]

[checks.negative_data_rejection]
# A body of another media type or size is rejected as clearly as one of another shape, and so is a missing override.
expected-statuses = ["400", "401", "403", "404", "405", "413", "415", "422"]

[[operations]]
# A ticket in the address proves who calls, and a made-up one proves nobody.
include-path-regex = "^/notifications/"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409", "422"]
"""


# How many and how often is another matter than what.
UNLIMITED = {
    "CARILLON_HTTP__KEY_REQUESTS_PER_SECOND": "0",
    "CARILLON_HTTP__ANONYMOUS_REQUESTS_PER_SECOND": "0",
    "CARILLON_HTTP__AUTH_FAILURES_PER_MINUTE": "0",
}


LASTING = ("/api/v1/console/live", "/notifications/stream", "/api/v1/rehearsals")


def fuzz(program: Program, client: Client, folder: Path, examples: int, *more: str) -> None:
    settings = folder / "schemathesis.toml"
    settings.write_text(SETTINGS)
    command = [str(Path(sys.executable).with_name("schemathesis")), f"--config-file={settings}", "run"]
    # A stream has no end that a fuzzer could wait for.
    lasting = [f"--exclude-path={path}" for path in LASTING]
    options = [
        *lasting,
        "--checks=all",
        f"--max-examples={examples}",
        # One thread: Hypothesis parses the source of each lambda, and where two threads parse at the same moment Python
        # 3.11 may fail with "AST constructor recursion depth mismatch".
        "--workers=1",
        "--no-color",
        "--request-timeout=60",
    ]
    run = subprocess.run(
        [*command, f"{client.address}/openapi.json", *options, *more],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=700,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    # A route that was given up is an error of its provider; anything else would be ours.
    bad = [line for line in program.lines if line["level"] in {"error", "critical"}]
    assert not [line for line in bad if line["event"] != "route_attempted"]
    assert not program.noise
    assert client.get("/health").status == 200


@pytest.mark.timeout(720)
@pytest.mark.req("S2-10", "S2-11")
def test_the_open_program_keeps_to_its_own_document(tmp_path: Path) -> None:
    with serving(tmp_path, **UNLIMITED) as (program, client):
        # What the schemas say of each value is tried on the guarded program, whose PostgreSQL takes less than SQLite.
        fuzz(program, client, tmp_path, 12, "--phases=examples,fuzzing,stateful")


@pytest.mark.timeout(720)
@pytest.mark.req("S2-10", "S2-11", "S2-15")
def test_the_guarded_program_keeps_to_its_own_document(tmp_path: Path, postgres_dsn: str) -> None:
    # The tests' PostgreSQL gives durability up for speed.
    env = {"JWT_SECRET_KEY": SECRET, "DATABASE_URL": postgres_dsn, "CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
    admin = token(iss=None, aud=None, role="admin")
    with serving(tmp_path, **env, **UNLIMITED) as (program, client):
        fuzz(program, client, tmp_path, 4, "--header", f"Authorization: Bearer {admin}")
