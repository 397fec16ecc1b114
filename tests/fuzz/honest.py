"""What honest producers and vendors send: hostile inputs are made from it."""

import json

from tests.support.client import WELCOME
from tests.support.galaxy import fields_for
from tests.support.push_messages import SEED_MESSAGE


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


SEND = as_json(
    {
        "templateKey": "welcome",
        "channel": "email",
        "recipient": "ada@example.org",
        "data": {"name": "Ada"},
        "tenantId": "acme",
        "metadata": {},
        "scheduledFor": "2030-01-01T00:00:00Z",
    }
)
QUEUED = as_json(WELCOME)
EVENT = as_json(
    {
        "event_id": "e",
        "event_type": "job.new",
        "user_id": "u",
        "payload": {"a": 1},
        "metadata": {"trace_id": "x"},
        "priority": "HIGH",
        "event_timestamp": "2026-01-01T00:00:00Z",
    }
)
JOB = as_json(
    {
        "id": "1",
        "action": "act",
        "correlation_id": "c",
        "idempotency_key": "k",
        "created_at": "2026-01-01T00:00:00+00:00",
        "attempts": 0,
        "payload": {"a": 1},
    }
)
PUSH = as_json(SEED_MESSAGE)
GALAXY = tuple(as_json(fields_for(name)) for name in ("game.turn.ready", "lobby.application.submitted"))
SENDGRID = as_json(
    [
        {
            "event": "bounce",
            "sg_message_id": "m.f",
            "sg_event_id": "e",
            "email": "a@b.c",
            "timestamp": 1700000000,
            "type": "bounce",
            "reason": "no",
        }
    ]
)
ACS = as_json(
    [
        {
            "id": "1",
            "eventType": "Microsoft.Communication.EmailDeliveryReportReceived",
            "eventTime": "2020-09-18T00:22:21Z",
            "data": {
                "messageId": "m",
                "recipient": "a@b.c",
                "status": "Bounced",
                "deliveryStatusDetails": {"statusMessage": "no"},
            },
        }
    ]
)
FCM = (
    b'[{"messageId":"m","status":"failed","error":"UNREGISTERED","timestamp":1}]',
    b'{"messageId":"m","status":"delivered"}',
)
TWILIO = b"MessageSid=SM1&MessageStatus=failed&ErrorCode=30003&ErrorMessage=no&To=%2B1"
TRACE = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
