"""The ledger goes away and comes back: 503 in between, never a promise that was not kept."""

from pathlib import Path

from tests.support.http_client import serving
from tests.support.servers import Postgres
from tests.support.waiting import wait_until

MAIL = {
    "templateKey": "welcome",
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}


def test_without_a_ledger_nothing_is_promised(tmp_path: Path) -> None:
    with Postgres() as postgres:
        env = {"DATABASE_URL": postgres.database(), "CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
        with serving(tmp_path, **env) as (program, client):
            assert client.send(MAIL).status == 202
            postgres.stop()
            answers = [client.send(MAIL) for _ in range(50)]
            assert {answer.status for answer in answers} == {503}
            assert {answer.code for answer in answers} == {"UNAVAILABLE"}
            assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
            batch = client.batch([MAIL, MAIL])
            assert (batch.status, batch.code) == (503, "UNAVAILABLE")
            assert client.get("/api/v1/notifications").status == 503
            assert client.get("/health").status == 503
            assert client.get("/health").json["checks"]["ledger"]["status"] == "unhealthy"
            assert client.get("/healthz").status == 200
            postgres.start()
            wait_until(lambda: client.get("/health").status == 200, timeout=60, what="the ledger reachable again")
            assert client.count() == 1
            assert client.send(MAIL).status == 202
            assert client.count() == 2
            program.terminate()
            assert program.wait() == 0
            assert not program.noise
