"""Templates and preferences that the intake reads from the ledger: rarely, together, and never out of date."""

import asyncio
from collections import Counter
from typing import Any

import pytest
import pytest_asyncio

from carillon.domain.intents import Intent, Recipient
from carillon.domain.notifications import Template
from carillon.domain.people import PreferenceChange
from carillon.domain.templates import Draft
from carillon.intake.people import PreferenceLookup, StoredPeople
from carillon.intake.templates import FileTemplates, StoredTemplates
from carillon.ledger.opening import Ledger
from tests.support.clocks import ManualClock
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

FILED = Template(code="order", channel="email", locale="en-US", text="from a file")
FILES = FileTemplates({("order", "email", "en-US"): FILED})
QUESTIONS = {"template_revision", "current_templates", "preferences"}


class Counted:
    """The ledger, with a count of what it was asked."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name in QUESTIONS:
            self.asked[name] += 1
        return getattr(self.ledger, name)


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def empty(engine: Engine, ledger: Ledger) -> None:
    assert ledger is not None
    await engine.execute("DELETE FROM templates")
    await engine.execute("DELETE FROM preferences")


async def add(ledger: Ledger, body: str, locale: str = "en-US", **changes: Any) -> None:
    given = {"template_key": "order", "channel": "email", "locale": locale, "body": body, **changes}
    assert await ledger.add_template(Draft(**given), f"{body}-{locale}") is not None


async def text(templates: StoredTemplates, tenant: str | None = None, locale: str = "en-US") -> str | None:
    found = await templates.find("order", "email", locale, tenant)
    return None if found is None else found.text


async def test_a_tenants_own_goes_before_everybodys_and_both_before_a_file(ledger: Ledger) -> None:
    templates = StoredTemplates(ledger, FILES, ManualClock(), fresh_seconds=0.0)
    assert await text(templates) == "from a file"
    await add(ledger, "everybody's")
    await add(ledger, "acme's", tenant_id="acme")
    await add(ledger, "acme's", "es", tenant_id="acme")
    assert await text(templates) == "everybody's"
    assert await text(templates, "other") == "everybody's"
    assert await text(templates, "acme") == "acme's"
    assert await text(templates, locale="es") is None
    assert await templates.variants("order") == [("email", "en-US")]
    assert await templates.variants("order", "acme") == [("email", "en-US"), ("email", "es")]
    assert await templates.variants("nothing", "acme") == []


async def test_while_nothing_changes_the_ledger_is_asked_once_a_second(ledger: Ledger) -> None:
    await add(ledger, "stored")
    clock, counted = ManualClock(), Counted(ledger)
    templates = StoredTemplates(counted, FILES, clock)
    for _ in range(100):
        await text(templates)
    assert counted.asked == {"template_revision": 1, "current_templates": 1}
    clock.now += 1.5
    await asyncio.gather(*(text(templates) for _ in range(100)))
    # One flush for the first, at most one more for those who came while it ran.
    assert counted.asked["current_templates"] == 1
    assert counted.asked["template_revision"] <= 3


async def test_what_another_process_writes_is_seen_after_a_second(ledger: Ledger) -> None:
    clock = ManualClock()
    templates = StoredTemplates(ledger, FILES, clock)
    await add(ledger, "first")
    assert await text(templates) == "first"
    await add(ledger, "second")
    assert await text(templates) == "first"
    clock.now += 1.1
    assert await text(templates) == "second"
    assert await ledger.retire_template("first-en-US") == 2
    clock.now += 1.1
    assert await text(templates) == "from a file"


async def test_what_this_process_writes_is_seen_at_once(ledger: Ledger) -> None:
    templates = StoredTemplates(ledger, FILES, ManualClock())
    assert await text(templates) == "from a file"
    await add(ledger, "stored")
    templates.forget()
    assert await text(templates) == "stored"


async def test_an_answer_older_than_a_write_is_not_kept(ledger: Ledger) -> None:
    templates = StoredTemplates(ledger, FILES, ManualClock())
    under_way = asyncio.create_task(text(templates))
    await asyncio.sleep(0)
    await add(ledger, "stored")
    templates.forget()
    await under_way
    assert await text(templates) == "stored"


async def test_keys_that_do_not_exist_do_not_fill_the_memory(ledger: Ledger) -> None:
    templates = StoredTemplates(ledger, FILES, ManualClock(), most=10)
    for number in range(50):
        assert await templates.find(f"nothing-{number}", "email", "en-US") is None
    assert len(templates._sets) <= 10  # noqa: SLF001 - memory has no outside


@pytest.mark.req("S2-105")
async def test_gaps_are_counted_over_files_and_ledger(ledger: Ledger) -> None:
    templates = StoredTemplates(ledger, FILES, ManualClock())
    await add(ledger, "own", "es-MX")
    await add(ledger, "alone", template_key="alone", tenant_id="acme")
    found = await templates.gaps(["en-US", "es-MX", "fr-FR"])
    assert [str(gap) for gap in found] == [
        "alone/es-MX/email for tenant acme",
        "alone/fr-FR/email for tenant acme",
        "order/fr-FR/email",
    ]
    await add(ledger, "own", "fr-FR")
    for locale in ("es-MX", "fr-FR"):
        await add(ledger, "alone", locale, template_key="alone", tenant_id="acme")
    assert await templates.gaps(["en-US", "es-MX", "fr-FR"]) == []


def intent(user: str, tenant: str | None = None, **addresses: str) -> Intent:
    return Intent(
        notification_type="order",
        producer="shop",
        recipients=(Recipient(ref=f"user:{user}", user_id=user, addresses=addresses),),
        channels=("email",),
        payload={},
        content={},
        tenant_id=tenant,
    )


@pytest.mark.req("S2-04", "S2-115")
async def test_people_are_known_by_what_they_said(ledger: Ledger) -> None:
    await ledger.change_preferences(
        "acme",
        "ada",
        PreferenceChange(
            preferred_locale="es-MX",
            channels={"sms": False, "push": True},
            contacts={"email": "ada@example.org", "phone": "+491511", "pushToken": "t"},
        ),
    )
    add_preferences = PreferenceLookup(StoredPeople(ledger), ManualClock())
    (known,) = (await add_preferences(intent("ada", "acme", email="other@example.org"))).recipients
    assert known.addresses == {"email": "other@example.org", "sms": "+491511", "push": "t"}
    assert (known.locale, known.refused) == ("es-MX", frozenset({"sms"}))
    stranger = intent("ada", "other")
    assert await add_preferences(stranger) is stranger
    nobody = Intent(
        notification_type="order",
        producer="shop",
        recipients=(Recipient(ref="email:a@example.org"),),
        channels=(),
        payload={},
        content={},
    )
    assert await add_preferences(nobody) is nobody


async def test_questions_that_arise_together_are_one_query(ledger: Ledger) -> None:
    counted = Counted(ledger)
    add_preferences = PreferenceLookup(StoredPeople(counted), ManualClock())
    await asyncio.gather(*(add_preferences(intent(f"user-{number}")) for number in range(200)))
    assert counted.asked["preferences"] <= 3
