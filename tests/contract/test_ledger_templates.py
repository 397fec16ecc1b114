"""Templates in the ledger: versions are added and switched off, never changed."""

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from carillon.domain.templates import Draft, StoredTemplate
from carillon.ledger.opening import Ledger
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

DRAFT = Draft(template_key="order", channel="email", locale="en-US", body="Hi {{name}}")


def draft(**changes: Any) -> Draft:
    given = {name: getattr(DRAFT, name) for name in Draft.__struct_fields__}
    return Draft(**{**given, **changes})


async def add(ledger: Ledger, new_id: str = "t-1", **changes: Any) -> StoredTemplate:
    added = await ledger.add_template(draft(**changes), new_id)
    assert added is not None
    return added


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def empty(engine: Engine, ledger: Ledger) -> None:
    assert ledger is not None
    await engine.execute("DELETE FROM templates")


@pytest.mark.req("S2-109")
async def test_what_was_written_can_be_read_again(ledger: Ledger) -> None:
    added = await add(
        ledger,
        subject="Order {{id}}",
        html="<p>{{name}}</p>",
        name="Order",
        description="Sent after an order.",
        default_variables={"name": "you", "shop": {"open": True, "rate": 1.5}},
        tenant_id="acme",
        created_by="ada",
    )
    assert (added.template_id, added.version, added.is_active) == ("t-1", 1, True)
    assert added.default_variables == {"name": "you", "shop": {"open": True, "rate": 1.5}}
    assert type(added.created_at) is int
    assert await ledger.template("t-1") == added
    assert added.draft() == draft(
        subject="Order {{id}}",
        html="<p>{{name}}</p>",
        name="Order",
        description="Sent after an order.",
        default_variables={"name": "you", "shop": {"open": True, "rate": 1.5}},
        tenant_id="acme",
        created_by="ada",
    )
    assert await ledger.template("t-2") is None


async def test_the_same_again_is_the_next_version_under_the_same_id(ledger: Ledger) -> None:
    first = await add(ledger, "t-1")
    second = await add(ledger, "t-2", body="Hello {{name}}")
    other = await add(ledger, "t-3", locale="de")
    assert (second.template_id, second.version) == ("t-1", 2)
    assert (other.template_id, other.version) == ("t-3", 1)
    assert await ledger.template("t-1") == second
    assert await ledger.template("t-1", 1) == first
    assert await ledger.template("t-1", 3) is None
    assert await ledger.template_history("t-1") == [second, first]


async def test_a_tenants_own_is_another_template(ledger: Ledger) -> None:
    ours, theirs = await add(ledger, "t-1"), await add(ledger, "t-2", tenant_id="acme")
    assert (ours.tenant_id, theirs.tenant_id, theirs.version) == (None, "acme", 1)


async def test_a_number_that_is_not_the_next_writes_nothing(ledger: Ledger) -> None:
    assert await ledger.add_template(DRAFT, "t-1", 2) is None
    assert await ledger.add_template(DRAFT, "t-1", 1) is not None
    assert await ledger.add_template(DRAFT, "t-1", 1) is None
    assert len(await ledger.template_history("t-1")) == 1


async def test_many_writers_get_each_a_number(ledger: Ledger) -> None:
    added = await asyncio.gather(*(add(ledger, f"t-{number}", body=str(number)) for number in range(20)))
    assert sorted(one.version for one in added) == list(range(1, 21))
    assert len({one.template_id for one in added}) == 1


async def test_only_one_of_many_gets_a_number_that_was_asked_for(ledger: Ledger) -> None:
    answers = await asyncio.gather(*(ledger.add_template(DRAFT, f"t-{number}", 1) for number in range(10)))
    assert len([one for one in answers if one is not None]) == 1


async def test_the_highest_active_version_is_in_use(ledger: Ledger) -> None:
    first = await add(ledger)
    await add(ledger, body="not yet", is_active=False)
    assert await ledger.current_templates([(None, "order")]) == [first]
    third = await add(ledger, body="now")
    assert await ledger.current_templates([(None, "order")]) == [third]
    assert await ledger.template("t-1") == third
    assert await ledger.retire_template("t-1") == 2
    assert await ledger.retire_template("t-1") == 0
    assert await ledger.current_templates([(None, "order")]) == []
    assert [one.is_active for one in await ledger.template_history("t-1")] == [False, False, False]
    shown = await ledger.template("t-1")
    assert shown is not None
    assert (shown.version, shown.is_active) == (3, False)


async def test_a_deleted_template_is_gone_until_somebody_writes_it_again(ledger: Ledger) -> None:
    await add(ledger)
    await add(ledger, is_active=False)
    assert await ledger.retire_template("t-1", delete=True) == 2
    assert await ledger.retire_template("t-1", delete=True) == 0
    gone = await ledger.template("t-1")
    assert gone is not None
    assert gone.deleted_at is not None
    assert [one.version for one in await ledger.template_history("t-1")] == [2, 1]
    back = await add(ledger, is_active=False)
    assert (back.version, back.deleted_at) == (3, None)
    assert await ledger.template("t-1") == back


async def test_many_keys_are_asked_for_at_once(ledger: Ledger) -> None:
    ours = await add(ledger, "t-1")
    theirs = await add(ledger, "t-2", tenant_id="acme")
    other = await add(ledger, "t-3", template_key="otp", channel="sms")
    await add(ledger, "t-4", template_key="never")
    asked = [(None, "order"), ("acme", "order"), (None, "otp"), ("acme", "otp"), (None, "order")]
    assert await ledger.current_templates(asked) == [ours, other, theirs]
    assert await ledger.current_templates([]) == []


async def test_every_change_changes_the_revision(ledger: Ledger) -> None:
    seen = [await ledger.template_revision()]
    await add(ledger)
    seen.append(await ledger.template_revision())
    await add(ledger, is_active=False)
    seen.append(await ledger.template_revision())
    await ledger.retire_template("t-1")
    seen.append(await ledger.template_revision())
    await add(ledger)
    seen.append(await ledger.template_revision())
    assert len(set(seen)) == len(seen)


async def test_what_exists_for_whom(ledger: Ledger) -> None:
    await add(ledger, "t-1")
    await add(ledger, "t-1")
    await add(ledger, "t-2", locale="de", tenant_id="acme")
    await add(ledger, "t-3", locale="fr", is_active=False)
    assert await ledger.template_variants() == [
        (None, "order", "email", "en-US"),
        ("acme", "order", "email", "de"),
    ]


@pytest.mark.req("S2-108")
async def test_the_list_shows_each_template_once(ledger: Ledger) -> None:
    await add(ledger, "t-1")
    await add(ledger, "t-1", body="second")
    await add(ledger, "t-2", channel="sms")
    await add(ledger, "t-3", tenant_id="acme")
    await add(ledger, "t-4", template_key="gone", is_active=False)
    await add(ledger, "t-5", locale="de")

    async def listed(**filters: Any) -> list[str]:
        found, total = await ledger.list_templates(filters, 100, 0)
        assert total == len(found)
        return [one.template_id for one in found]

    assert await listed() == ["t-4", "t-5", "t-1", "t-3", "t-2"]
    assert await listed(tenant_id="acme") == ["t-4", "t-5", "t-1", "t-3", "t-2"]
    assert await listed(tenant_id="other") == ["t-4", "t-5", "t-1", "t-2"]
    assert await listed(channel="sms") == ["t-2"]
    assert await listed(is_active=False) == ["t-4"]
    assert await listed(is_active=True, locale="de") == ["t-5"]
    assert await listed(template_key="nothing") == []
    page, total = await ledger.list_templates({}, 2, 2)
    assert ([one.template_id for one in page], total) == (["t-1", "t-3"], 5)
    assert page[0].body == "second"
    with pytest.raises(ValueError, match="unknown filter"):
        await ledger.list_templates({"body": "x"}, 1, 0)
