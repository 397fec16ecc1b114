"""Suppressions that commit a17ead2 wrote: what had no tenant holds for everybody, and all stay in force."""

from pathlib import Path

import pytest

from carillon.domain.notifications import Accepted
from tests.contract.test_ledger_from_a452e25 import opened, restored
from tests.support.ledger_builders import enrolment, route, want
from tests.support.ledger_sealed import SEALS

pytestmark = pytest.mark.slow

DUMPS = Path(__file__).parent / "ledger_a17ead2"
KEPT = {
    ("sms", "+4915112345678", "", "invalid", "delivery"),
    ("sms", "+4915187654321", "", "unsubscribed", "delivery"),
    ("email", "nobox@example.org", "", "bounced", "delivery"),
    ("email", "bounced@example.org", "", "bounced", "receipt"),
    ("push", "device-token-1", "", "invalid", "receipt"),
    ("email", "asked@example.org", "", "manual", "operator"),
    ("email", "complained@example.org", "acme", "complained", "receipt"),
    ("email", "left@example.org", "acme", "unsubscribed", "unsubscribe"),
    ("email", "own@example.org", "globex", "manual", "operator"),
    ("email", "brief@example.org", "globex", "manual", "operator"),
    ("email", "later@example.org", "globex", "manual", "operator"),
}


@pytest.fixture(params=["plain", "sealed"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["postgres", "sqlite"])
async def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    return await restored(request, (DUMPS / f"{kind}.{request.param}.dump").read_text(), tmp_path)


async def test_it_opens_and_its_suppressions_hold(url: str, kind: str) -> None:
    ledger = await opened(url, seals=SEALS if kind == "sealed" else None)
    try:
        assert (await ledger.migrate())[:2] == ["0010_owners.sql", "0011_suppressions.sql"]
        assert await ledger.migrate() == []
        rows, total = await ledger.suppressions({}, 100, 0)
        names = ("channel", "address", "tenant_id", "kind", "source")
        assert {tuple(row[name] for name in names) for row in rows} == KEPT
        assert total == len(KEPT), "the one that was over does not count"
        assert len({row["suppression_id"] for row in rows}) == len(KEPT)
        for row in rows:
            for tenant in ("acme", "globex", "initech", None):
                to = route(address=row["address"], channel=row["channel"])
                (answer,) = await ledger.enrol([enrolment(to, tenant_id=tenant)])
                assert isinstance(answer, Accepted)
                held = row["tenant_id"] in {"", tenant}
                assert [each.suppression.suppression_id for each in answer.suppressed] == (
                    [row["suppression_id"]] if held else []
                ), (row, tenant)
    finally:
        await ledger.aclose()


async def test_what_waited_and_what_was_skipped_go_on(url: str, kind: str) -> None:
    ledger = await opened(url, seals=SEALS if kind == "sealed" else None)
    try:
        await ledger.migrate()
        (claim,) = await ledger.claim([want()], 10, "w")
        held_by = claim.suppression()
        assert (claim.notification_id, claim.tenant_id) == ("n-waiting", "globex")
        assert held_by is not None
        assert (held_by.kind, held_by.until_ms) == ("manual", None)
        story = await ledger.story("n-skipped", "globex")
        assert story is not None
        (skipped,) = story.routes
        assert (skipped["status"], skipped["suppression_id"]) == ("skipped", None)
    finally:
        await ledger.aclose()
