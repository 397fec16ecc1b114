"""From an intent to its rows: lane, policy, budget, first provider, fingerprint."""

import json

import msgspec
import pytest

from carillon.domain.intents import Intent, Priority, Recipient, fingerprint
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.notifications import Message, Status
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.intake.plan import Content, PlanRules, plan

RULES = PlanRules(
    channels={"email": ("SendGrid", "AZURE_ACS"), "sms": ("Twilio", "AWS_SNS"), "push": ("FCM",)},
    policies=PolicyTable(
        {
            "auth/sms": RetryPolicy(max_attempts=4),
            "*/email": RetryPolicy(max_attempts=6),
            "orders/*": RetryPolicy(max_attempts=2),
            "*/*": RetryPolicy(max_attempts=5),
        }
    ),
    lanes=Lanes(
        {
            "priority": Lane(rank=1, queue_name="notifications-priority", max_attempts=3),
            "standard": Lane(rank=2, queue_name="notifications-standard", max_attempts=6),
            "bulk": Lane(rank=3, queue_name="notifications-bulk", max_attempts=6),
        }
    ),
    idempotency_ttl_seconds=86_400.0,
)
ADA = Recipient(ref="user:ada", user_id="ada")
BOB = Recipient(ref="user:bob", user_id="bob")
INTENT = Intent(
    notification_type="order.shipped",
    producer="shop",
    recipients=(ADA,),
    channels=("email",),
    payload={"z": 1, "a": "é"},
    content={"what": "makes two requests the same"},
)


def content(channel: str = "email", recipient: Recipient = ADA) -> Content:
    return Content(
        recipient.ref, channel, f"{recipient.user_id}@example.com", "en-US", Message(text="hello", subject="s")
    )


@pytest.mark.parametrize(
    ("origin", "channel", "priority", "policy", "attempts"),
    [
        ("auth", "sms", Priority.NORMAL, "auth/sms", 4),
        ("auth", "sms", Priority.HIGH, "auth/sms", 4),
        ("shop", "email", Priority.NORMAL, "*/email", 6),
        ("shop", "email", Priority.HIGH, "*/email", 3),
        ("orders", "email", Priority.NORMAL, "*/email", 6),
        ("orders", "push", Priority.HIGH, "orders/*", 2),
        ("shop", "push", Priority.NORMAL, "*/*", 5),
    ],
)
def test_policy_and_budget_of_a_route(
    origin: str, channel: str, priority: Priority, policy: str, attempts: int
) -> None:
    intent = msgspec.structs.replace(INTENT, origin=origin, priority=priority)
    (route,) = plan(intent, [content(channel)], "n-1", RULES, 0.0).routes
    assert (route.policy, route.max_attempts) == (policy, attempts)


@pytest.mark.parametrize(
    ("priority", "bulk", "lane"),
    [
        (Priority.HIGH, False, 1),
        (Priority.NORMAL, False, 2),
        (Priority.NORMAL, True, 3),
        (Priority.LOW, False, 3),
    ],
)
def test_the_lane_of_every_route(priority: Priority, *, bulk: bool, lane: int) -> None:
    intent = msgspec.structs.replace(INTENT, priority=priority, bulk=bulk)
    made = plan(intent, [content(), content("sms")], "n-1", RULES, 0.0)
    assert [route.lane for route in made.routes] == [lane, lane]
    assert (made.notification.priority, made.notification.is_bulk) == (int(priority), bulk)


def test_one_route_for_each_recipient_and_channel_on_the_first_provider() -> None:
    contents = [content(channel, person) for channel in ("email", "sms") for person in (ADA, BOB)]
    routes = plan(INTENT, contents, "n-1", RULES, 0.0).routes
    assert [route.route_id for route in routes] == [
        "email:user:ada",
        "email:user:bob",
        "sms:user:ada",
        "sms:user:bob",
    ]
    assert [route.provider for route in routes] == ["SendGrid", "SendGrid", "Twilio", "Twilio"]
    assert {route.status for route in routes} == {Status.PENDING}
    assert {route.resolved_locale for route in routes} == {"en-US"}


def test_the_rendered_message_travels_with_its_route() -> None:
    (route,) = plan(INTENT, [content()], "n-1", RULES, 0.0).routes
    assert json.loads(route.message_json or "") == {"text": "hello", "subject": "s"}
    assert msgspec.json.decode(route.message_json or "", type=Message) == Message(text="hello", subject="s")
    assert route.address == "ada@example.com"


def test_payload_and_metadata_are_stored_canonically() -> None:
    intent = msgspec.structs.replace(INTENT, metadata={"b": 1, "a": 2})
    notification = plan(intent, [content()], "n-1", RULES, 0.0).notification
    assert notification.payload_json == '{"a":"é","z":1}'
    assert notification.metadata_json == '{"a":2,"b":1}'
    assert plan(INTENT, [content()], "n-1", RULES, 0.0).notification.metadata_json is None


def test_the_fingerprint_is_of_the_content_alone() -> None:
    one = plan(INTENT, [content()], "n-1", RULES, 0.0).notification
    other = msgspec.structs.replace(INTENT, request_id="r-2", trace_id="t-2")
    assert one.request_fingerprint == fingerprint(INTENT.content)
    assert plan(other, [content()], "n-2", RULES, 0.0).notification.request_fingerprint == one.request_fingerprint
    changed = msgspec.structs.replace(INTENT, content={"what": "changed"})
    assert plan(changed, [content()], "n-1", RULES, 0.0).notification.request_fingerprint != one.request_fingerprint


def test_the_recipients_are_named_and_a_single_one_is_the_user() -> None:
    alone = plan(INTENT, [content()], "n-1", RULES, 0.0).notification
    both = plan(msgspec.structs.replace(INTENT, recipients=(ADA, BOB)), [], "n-1", RULES, 0.0).notification
    none = plan(
        msgspec.structs.replace(INTENT, recipients=(Recipient(ref="email:a@b"),)), [], "n-1", RULES, 0.0
    ).notification
    assert (alone.user_id, alone.recipient_user_ids) == ("ada", ["ada"])
    assert (both.user_id, both.recipient_user_ids) == (None, ["ada", "bob"])
    assert (none.user_id, none.recipient_user_ids) == (None, None)


def test_only_a_key_has_a_time_to_live() -> None:
    keyed = msgspec.structs.replace(INTENT, idempotency_key="k-1")
    assert plan(keyed, [], "n-1", RULES, 0.0).notification.idempotency_ttl_seconds == 86_400.0
    assert plan(INTENT, [], "n-1", RULES, 0.0).notification.idempotency_ttl_seconds is None


def test_a_plan_depends_on_nothing_but_its_arguments() -> None:
    assert plan(INTENT, [content()], "n-1", RULES, 0.0) == plan(INTENT, [content()], "n-1", RULES, 0.0)
