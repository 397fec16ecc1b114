"""What is refused before anything is written: the ledger behind this intake must never be reached."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Malformed, Recipient
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.notifications import Enrolled, Enrolment, Template
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.templates import LocaleRules
from carillon.intake.accept import Intake
from carillon.intake.plan import PlanRules
from carillon.intake.templates import FileTemplates
from carillon.system import SystemClock

RULES = PlanRules(
    channels={"email": ("smtp",), "sms": ("twilio",)},
    policies=PolicyTable({"*/*": RetryPolicy(max_attempts=6)}),
    lanes=Lanes({"standard": Lane(rank=1, queue_name="standard")}),
    locale=LocaleRules(default="en-US", on_missing="error"),
)
TEMPLATES = [
    Template(code="welcome", channel="email", locale="en-US", text="Hi {{user.name}}, {{code}}", subject="Hi {{code}}"),
    Template(code="welcome", channel="sms", locale="en-US", text="Hi"),
    Template(code="only-sms", channel="sms", locale="en-US", text="Hi"),
]
INTENT = Intent(
    notification_type="welcome",
    producer="shop",
    recipients=(Recipient(ref="user:ada", addresses={"email": "ada@example.com"}),),
    channels=("email",),
    payload={"user": {"name": "Ada"}, "code": "1"},
    content={},
)


class Reached(Exception):
    """The ledger was asked to write."""


class Tripwire:
    """Stands for the ledger and the signal: an intent that reaches it has passed every check."""

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        raise Reached(batch)

    async def keep_malformed(self, malformed: Sequence[Malformed]) -> None:
        raise Reached(malformed)

    def ring(self) -> None:
        raise Reached

    async def wait(self, timeout_seconds: float) -> None:
        raise Reached(timeout_seconds)


def intake(rules: PlanRules = RULES) -> Intake:
    found = {(one.code, one.channel, one.locale): one for one in TEMPLATES}
    end = Tripwire()
    return Intake(
        ledger=end,
        templates=FileTemplates(found),
        signal=end,
        rules=rules,
        observer=lambda _: None,
        ids=lambda: "n-1",
        clock=SystemClock(),
    )


async def refusal(**changes: Any) -> tuple[str, str]:
    with pytest.raises(BadIntent) as caught:
        await intake().accept(msgspec.structs.replace(INTENT, **changes))
    return caught.value.code, str(caught.value)


async def test_what_is_in_order_reaches_the_ledger() -> None:
    with pytest.raises(Reached) as caught:
        await intake().accept(INTENT)
    ((enrolment,),) = caught.value.args
    assert enrolment.notification.notification_id == "n-1"
    assert [route.route_id for route in enrolment.routes] == ["email:user:ada"]


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"channels": ("pigeon",)}, "UNKNOWN_CHANNEL", "pigeon"),
        ({"channels": ("email", "pigeon")}, "UNKNOWN_CHANNEL", "pigeon"),
        ({"channels": ()}, "CHANNEL_REQUIRED", "exists for email, sms"),
        ({"channels": ("sms",)}, "RECIPIENT_UNRESOLVED", "no sms address is known for user:ada"),
        ({"notification_type": "farewell"}, "TEMPLATE_NOT_FOUND", "Template farewell not found for locale en-US"),
        ({"notification_type": "farewell", "channels": ()}, "TEMPLATE_NOT_FOUND", "Template farewell not found"),
        (
            {"notification_type": "only-sms"},
            "TEMPLATE_NOT_FOUND",
            "only-sms not found for channel email; it exists for sms",
        ),
        ({"locale": "es-MX"}, "TEMPLATE_NOT_FOUND", "Template welcome not found for locale es-MX"),
        ({"accept_language": "es-MX, en-US;q=0.9"}, "TEMPLATE_NOT_FOUND", "not found for locale es-MX"),
        ({"payload": {}}, "TEMPLATE_RENDER_ERROR", "missing template variables: code, user.name"),
        ({"payload": {"user": {"name": "A"}, "code": "1\nBcc: x"}}, "TEMPLATE_RENDER_ERROR", "one line"),
        ({"payload": {"user": {"name": "A" * 300_000}, "code": "1"}}, "TEMPLATE_RENDER_ERROR", "exceeds"),
    ],
)
async def test_what_cannot_be_told_is_refused_and_nothing_is_written(
    changes: dict[str, Any], code: str, said: str
) -> None:
    told, text = await refusal(**changes)
    assert told == code
    assert said in text


async def test_a_channel_may_be_left_out_where_only_one_is_possible() -> None:
    person = Recipient(ref="user:ada", addresses={"*": "+15550100"})
    intent = msgspec.structs.replace(INTENT, notification_type="only-sms", channels=(), recipients=(person,))
    with pytest.raises(Reached) as caught:
        await intake().accept(intent)
    (route,) = caught.value.args[0][0].routes
    assert (route.channel, route.address) == ("sms", "+15550100")


@pytest.mark.parametrize(
    ("preferred", "header", "tenant", "wished"),
    [
        ("fr-FR", "es-MX", "acme", "fr-FR"),
        (None, "es-MX, en-US;q=0.9", "acme", "es-MX"),
        (None, None, "acme", "it-IT"),
        (None, None, "unknown", "en-US"),
    ],
)
async def test_the_locale_is_preference_then_header_then_tenant_then_default(
    preferred: str | None, header: str | None, tenant: str, wished: str
) -> None:
    rules = msgspec.structs.replace(RULES, tenant_locales={"acme": "it-IT"})
    person = Recipient(ref="user:ada", addresses={"email": "a@example.com"}, locale=preferred)
    intent = msgspec.structs.replace(
        INTENT, notification_type="none", recipients=(person,), accept_language=header, tenant_id=tenant
    )
    with pytest.raises(BadIntent, match=f"not found for locale {wished}"):
        await intake(rules).accept(intent)
