"""One mailbox, many spellings: what holds for Ann@Example.com holds for ann@example.com, on both engines."""

import pytest

from carillon.domain.people import PreferenceChange
from carillon.domain.suppressions import Suppression
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import enrolment, route
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()
GIVEN, KEPT = "Ann@Example.COM", "ann@example.com"


async def kept_as_before(engine: Engine, address: str = GIVEN) -> None:
    """A suppression as releases before the canonical spelling have written it."""
    await engine.execute(f"UPDATE suppressions SET address = '{address}'")  # noqa: S608 - ours


def asked(address: str, channel: str = "email") -> Suppression:
    return Suppression(channel, address, "", "asked", "operator")


@pytest.mark.req("P-671")
async def test_a_suppression_is_kept_and_lifted_under_any_spelling(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([asked(GIVEN), asked(KEPT)])
    assert [row["address"] for row in await engine.rows("suppressions")] == [KEPT]
    await ledger.enrol([enrolment(route("ann", address=KEPT))])
    assert (await engine.only("routes"))["status"] == "skipped"
    assert await ledger.unsuppress("email", "ANN@example.com", "")
    assert await engine.rows("suppressions") == []
    assert not await ledger.unsuppress("email", GIVEN, "")


@pytest.mark.req("P-671")
async def test_a_suppression_of_old_is_found_and_lifted(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([asked("somebody@example.com")])
    await kept_as_before(engine)
    assert await ledger.suppression_in_force("email", GIVEN, None, None) is not None
    assert await ledger.suppression_in_force("email", KEPT, None, None) is None, "nobody can know that they are one"
    assert await ledger.unsuppress("email", GIVEN, "")
    assert await engine.rows("suppressions") == []


async def test_other_addresses_stay_as_they_are(engine: Engine, ledger: Ledger) -> None:
    await ledger.suppress([asked("Token-A", "push"), asked("https://Example.com/A", "webhook")])
    assert {row["address"] for row in await engine.rows("suppressions")} == {"Token-A", "https://Example.com/A"}
    assert await ledger.suppression_in_force("push", "token-a", None, None) is None


@pytest.mark.req("P-671")
async def test_choices_of_an_address_hold_for_every_spelling(ledger: Ledger) -> None:
    off = PreferenceChange(categories={"news": {"email": False}})
    said = await ledger.change_preferences("acme", f"email:{GIVEN}", off)
    assert said.categories == {"news": {"email": False}}
    for spelled in (GIVEN, KEPT, "ANN@example.com"):
        (found,) = await ledger.preferences([("acme", f"email:{spelled}")])
        assert found is not None
        assert (found.user_id, found.categories) == (f"email:{spelled}", {"news": {"email": False}})
    (other,) = await ledger.preferences([("globex", f"email:{KEPT}")])
    assert other is None
    (user,) = await ledger.preferences([("acme", GIVEN)])
    assert user is None, "the id of a user has one spelling"


@pytest.mark.req("P-671")
async def test_a_choice_of_old_holds_beside_a_new_one(engine: Engine, ledger: Ledger) -> None:
    await ledger.change_preferences(None, f"email:{KEPT}", PreferenceChange(categories={"news": {"email": False}}))
    await engine.execute(f"UPDATE preferences SET user_id = 'email:{GIVEN}'")  # noqa: S608 - ours
    said = await ledger.change_preferences(
        None, f"email:{GIVEN}", PreferenceChange(categories={"orders": {"email": False}, "tips": {"sms": True}})
    )
    assert said.categories == {"news": {"email": False}, "orders": {"email": False}, "tips": {"sms": True}}
    said = await ledger.change_preferences(
        None, f"email:{GIVEN}", PreferenceChange(categories={"news": {"email": True}})
    )
    assert said.categories["news"] == {"email": True}, "the newer word counts"
