"""Delivery reports that do not come: the next provider is asked, at most once; a late report changes nothing twice."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from carillon.compose import reports
from carillon.config.reading import load
from carillon.domain.claims import Claim, Settled
from carillon.domain.errors import ConfigurationError
from carillon.domain.events import Event, ReceiptTaken
from carillon.domain.receipts import Effect, Receipt, ReceiptKind, ReceiptRules
from carillon.ledger.opening import Ledger
from carillon.receipts.callbacks import OverdueReceipts
from tests.support.clocks import ManualClock
from tests.support.ledger_builders import enrolment, finish, note, route, want
from tests.support.ledger_engines import Engine, engine_fixture, ledger_fixture

engine = engine_fixture()
ledger = ledger_fixture()

RULES = ReceiptRules(chains={"email": ("mailer", "second"), "push": ("mailer",)})
DEADLINES = {"mailer": 60.0, "second": 60.0}


class Overdue:
    """The loop over one ledger, with the events that it emits."""

    def __init__(
        self, ledger: Ledger, rules: ReceiptRules = RULES, deadlines: Mapping[str, float] = MappingProxyType(DEADLINES)
    ) -> None:
        self.events: list[Event] = []
        ledger.receipt_deadlines = deadlines
        self._loop = OverdueReceipts(
            ledger, rules, deadlines, observer=self.events.append, clock=ManualClock(), interval_seconds=1.0
        )

    async def look(self) -> list[tuple[str, str]]:
        """The providers whose reports were given up, and what that did."""
        self.events.clear()
        await self._loop.apply()
        return [(one.provider, one.effect) for one in self.events if isinstance(one, ReceiptTaken)]


async def sent(ledger: Ledger, provider: str = "mailer") -> Claim:
    (claim,) = await ledger.claim([want(provider=provider)], 10, "w")
    done = finish(claim)
    done = type(done)(
        claim=claim, verdict=done.verdict, note=note(provider=provider, provider_message_id=f"m-{provider}")
    )
    assert await ledger.settle([done]) == [Settled.APPLIED]
    return claim


def report(claim: Claim, kind: ReceiptKind, provider: str = "mailer") -> Receipt:
    return Receipt(
        provider=provider, kind=kind, provider_message_id=f"m-{provider}", idempotency_key=claim.idempotency_key
    )


@pytest.mark.req("P-324")
async def test_a_missing_report_asks_the_next_provider_once(engine: Engine, ledger: Ledger) -> None:
    overdue = Overdue(ledger)
    await ledger.enrol([enrolment()])
    await sent(ledger)
    assert await overdue.look() == [], "its time is not over"
    await ledger.hasten(61)
    assert await overdue.look() == [("mailer", Effect.FAILED_OVER)]
    row = await engine.only("routes")
    assert (row["provider"], row["status"], row["last_error_classification"]) == ("second", "failed", "no_receipt")
    assert row["last_error_message"] == "mailer reported no delivery within 60 s"
    await sent(ledger, "second")
    await ledger.hasten(61)
    assert await overdue.look() == [], "the last provider's message is not called back"
    row = await engine.only("routes")
    assert (row["status"], row["receipt_due"]) == ("published", None)


@pytest.mark.req("P-1053", "P-324")
async def test_the_last_provider_of_a_channel_is_not_asked_again_though_another_channel_goes_on(
    engine: Engine, ledger: Ledger
) -> None:
    """One provider for two channels: the first of `email`, and the only one of `push`."""
    overdue = Overdue(ledger)
    await ledger.enrol([enrolment(route("ann", channel="push"))])
    await sent(ledger)
    await ledger.hasten(61)
    assert await overdue.look() == []
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["receipt_due"]) == ("published", "mailer", None)


@pytest.mark.req("P-324")
async def test_a_report_in_time_ends_the_waiting(engine: Engine, ledger: Ledger) -> None:
    overdue = Overdue(ledger)
    await ledger.enrol([enrolment()])
    claim = await sent(ledger)
    await ledger.take_receipts([report(claim, ReceiptKind.DELIVERED)], RULES)
    await ledger.hasten(61)
    assert await overdue.look() == []
    assert (await engine.only("routes"))["status"] == "published"


@pytest.mark.req("P-324")
async def test_a_late_report_keeps_the_next_provider_from_sending(engine: Engine, ledger: Ledger) -> None:
    overdue = Overdue(ledger)
    await ledger.enrol([enrolment()])
    claim = await sent(ledger)
    await ledger.hasten(61)
    await overdue.look()
    (taken,) = await ledger.take_receipts([report(claim, ReceiptKind.DELIVERED)], RULES)
    assert taken.effect == Effect.NOTED
    assert await ledger.claim([want(provider="second")], 10, "w") == []
    row = await engine.only("routes")
    assert (row["status"], row["provider"]) == ("published", "mailer")


@pytest.mark.req("P-324")
async def test_late_reports_after_the_second_send_change_nothing_twice(engine: Engine, ledger: Ledger) -> None:
    overdue = Overdue(ledger)
    await ledger.enrol([enrolment()])
    claim = await sent(ledger)
    await ledger.hasten(61)
    await overdue.look()
    await sent(ledger, "second")
    (failed,) = await ledger.take_receipts([report(claim, ReceiptKind.FAILED)], RULES)
    assert failed.effect == Effect.IGNORED
    (late,) = await ledger.take_receipts([report(claim, ReceiptKind.DELIVERED)], RULES)
    assert late.effect == Effect.NOTED
    assert (await engine.only("routes"))["status"] == "published"
    assert len(await engine.rows("attempts_told")) == 2


@pytest.mark.req("P-1341")
async def test_the_deadline_of_a_message_that_failed_is_not_that_of_the_next_one(
    engine: Engine, ledger: Ledger
) -> None:
    """Of three providers the first alone has a deadline."""
    rules = ReceiptRules(chains={"email": ("mailer", "second", "third")})
    overdue = Overdue(ledger, rules, {"mailer": 60.0})
    await ledger.enrol([enrolment()])
    claim = await sent(ledger)
    (failed,) = await ledger.take_receipts([report(claim, ReceiptKind.FAILED)], rules)
    assert failed.effect == Effect.FAILED_OVER
    await sent(ledger, "second")
    await ledger.hasten(61)
    assert await overdue.look() == [], "nobody said that the second provider must report"
    row = await engine.only("routes")
    assert (row["status"], row["provider"], row["receipt_due"]) == ("published", "second", None)
    assert await ledger.claim([want(provider="third")], 10, "w") == []


@pytest.mark.req("P-1341")
async def test_a_dead_letter_awaits_no_report(engine: Engine, ledger: Ledger) -> None:
    Overdue(ledger)
    await ledger.enrol([enrolment()])
    claim = await sent(ledger)
    (taken,) = await ledger.take_receipts([report(claim, ReceiptKind.COMPLAINED)], RULES)
    assert taken.effect == Effect.BURIED
    assert (await engine.only("routes"))["receipt_due"] is None


@pytest.mark.req("P-324")
async def test_a_process_that_dies_after_the_failover_counts_it_once(engine: Engine, ledger: Ledger) -> None:
    overdue = Overdue(ledger)
    await ledger.enrol([enrolment(route("ann"), route("bob"))])
    claims = await ledger.claim([want()], 10, "w")
    await ledger.settle([finish(claim) for claim in claims])
    await ledger.hasten(61)
    before = await ledger.overdue_receipts(10)
    assert len(await overdue.look()) == 2
    # As found by the process that died before it could note it.
    await engine.execute("UPDATE routes SET receipt_due = created_at")
    assert await overdue.look() == []
    assert [one.sent for one in before] == [True, True]
    assert {row["attempt_count"] for row in await engine.rows("routes")} == {1}


@pytest.mark.req("P-324", "P-322")
@pytest.mark.parametrize(("option", "said"), [("soon", "write a duration"), ("10m", "never reports a delivery")])
def test_a_deadline_that_no_report_could_keep_is_refused(option: str, said: str) -> None:
    environ = {
        "SMTP_URL": "smtp://localhost",
        "EMAIL_FROM": "a@example.org",
        "CARILLON_PROVIDERS__SMTP__RECEIPT_DEADLINE": option,
    }
    settings = load("local", None, environ)
    with pytest.raises(ConfigurationError, match=said):
        reports.deadlines(settings, {"email": ("smtp",)})


TWILIO = {
    "CARILLON_PROVIDERS__TWILIO__KIND": "twilio",
    "CARILLON_PROVIDERS__TWILIO__ACCOUNT_SID": "AC" + "0" * 32,
    "CARILLON_PROVIDERS__TWILIO__AUTH_TOKEN": "secret",
    "CARILLON_PROVIDERS__TWILIO__RECEIPT_DEADLINE": "10m",
}


@pytest.mark.req("P-1321")
@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, ""),
        ({"STATUS_CALLBACK": "/callbacks/twilio"}, ""),
        ({"STATUS_CALLBACK": "/callbacks/twilio", "PUBLIC_BASE_URL": "https://notify.example.org"}, "delivered"),
        ({"STATUS_CALLBACK": "https://notify.example.org/callbacks/twilio"}, "delivered"),
        ({"MESSAGING_SERVICE_SID": "MG" + "0" * 32}, "delivered"),
    ],
)
def test_twilio_that_is_not_told_where_to_report_reports_nothing(options: dict[str, str], reported: str) -> None:
    named = {f"CARILLON_PROVIDERS__TWILIO__{option}": value for option, value in options.items()}
    settings = load("local", None, TWILIO | named)
    chains: reports.Chains = {"sms": ("twilio",)}
    assert reports.goals(settings, chains) == {"sms": frozenset(reported.split())}
    if reported:
        assert reports.deadlines(settings, chains) == {"twilio": 600.0}
    else:
        with pytest.raises(ConfigurationError, match=r"never reports a delivery.*status_callback"):
            reports.deadlines(settings, chains)


@pytest.mark.req("P-322")
def test_what_each_channel_can_report() -> None:
    settings = load("local", None, {"SMTP_URL": "smtp://localhost", "EMAIL_FROM": "a@example.org"})
    found = reports.goals(settings, {"email": ("smtp",), "push": ("sandbox",)})
    assert found == {"email": frozenset(), "push": frozenset({"delivered", "read", "acknowledged"})}
    assert reports.remarks(settings, {"email": ("smtp",)}) == [
        ("email", "reports nothing; a chain that waits for delivered or read or acknowledged must name it last")
    ]
