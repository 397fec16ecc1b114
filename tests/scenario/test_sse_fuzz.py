"""Schemathesis against the running streams: whatever their document allows or forbids, they agree."""

from pathlib import Path

from tests.scenario.test_http_fuzz import UNLIMITED, fuzz
from tests.support.http_client import Client
from tests.support.process import Program

SETTINGS = {
    "CARILLON_HTTP__PORT": "0",
    # A stream ends soon enough to be looked at, and nobody has too many.
    "CARILLON_SSE__LIFETIME_SECONDS": "0.3",
    "CARILLON_SSE__MAX_PER_KEY": "1000",
}


def test_streams_and_inboxes_keep_to_their_own_document(tmp_path: Path) -> None:
    given = {"DATABASE_URL": f"sqlite:///{tmp_path / 'sse.db'}", **SETTINGS, **UNLIMITED}
    with Program("serve", "--blueprint", "sse", env=given, cwd=tmp_path) as program:
        client = Client(program.wait_ready(60)["addresses"][0])
        fuzz(program, client, tmp_path, 8, "--include-path-regex", "^/notifications")
