"""What one pushed message takes, for peers that are told the same: mark, template, FCM, mark, audit row."""

import json
from dataclasses import dataclass
from typing import Any

import redis
import urllib3  # type: ignore[import-not-found,unused-ignore]
from psycopg_pool import ConnectionPool  # type: ignore[import-not-found,unused-ignore]

_INSERT = (
    "INSERT INTO audit_logs (trace_id, user_id, notification_type, template_id, status, metadata, created_at)"
    " VALUES (%s, %s, %s, %s, 'sent', %s, clock_timestamp())"
)


@dataclass(frozen=True)
class PushOrder:
    """One phase of a run: `<runner> fill|work <order as JSON>`."""

    rabbitmq: str
    redis: str
    dsn: str
    templates: str
    fcm: str
    messages: int
    threads: int

    def message(self, number: int) -> dict[str, Any]:
        return {
            "trace_id": f"trace-{number}",
            "idempotency_key": f"key-{number}",
            "user_id": "user-1",
            "notification_type": "push",
            "recipient": "device-token-1",
            "template_code": "welcome_notification",
            "variables": {"name": "Ada", "link": "https://example.com/welcome"},
            "language": "en",
            "metadata": {},
        }


class PushJob:
    """Carries one message out, on pooled connections."""

    def __init__(self, order: PushOrder) -> None:
        self._order = order
        self._http = urllib3.PoolManager(maxsize=order.threads, block=True)
        self._redis = redis.Redis.from_url(order.redis, max_connections=order.threads + 2)
        self._pool = ConnectionPool(
            order.dsn, min_size=order.threads, max_size=order.threads, open=True, kwargs={"autocommit": True}
        )

    def run(self, message: dict[str, Any]) -> None:
        key = f"idempotency:{message['idempotency_key']}"
        if not self._redis.set(key, "processing", ex=86_400, nx=True):
            return
        found = self._http.request("GET", f"{self._order.templates}/api/v1/templates/{message['template_code']}")
        content = json.loads(found.data)["content"]
        for name, value in message["variables"].items():
            content = {part: text.replace("{{" + name + "}}", value) for part, text in content.items()}
        body = {
            "to": message["recipient"],
            "notification": content,
            "data": {"trace_id": message["trace_id"], "link": message["variables"]["link"]},
        }
        headers = {"authorization": "key=bench", "content-type": "application/json"}
        answer = self._http.request("POST", f"{self._order.fcm}/fcm/send", body=json.dumps(body), headers=headers)
        if answer.status != 200:  # noqa: PLR2004 - the stub answers nothing else
            raise RuntimeError(f"FCM answered {answer.status}")
        self._redis.set(key, "sent", ex=86_400)
        values = (message["trace_id"], message["user_id"], "push", message["template_code"], "{}")
        with self._pool.connection() as connection:
            connection.execute(_INSERT, values)
