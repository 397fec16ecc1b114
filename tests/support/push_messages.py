"""The push-worker blueprint's own messages and templates, and a Template Service that serves them."""

import itertools
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.support.vendor import Entry, Reply, Vendor

SEED_TEMPLATE = {
    "id": "0d9a4c2e-53a1-4a44-9d2c-7f2f0e9d5b11",
    "code": "welcome_notification",
    "type": "push",
    "language": "en",
    "version": 2,
    "content": {"title": "Welcome {{name}}!", "body": "Hi {{name}}, click {{link}} to begin."},
    "variables": ["name", "link"],
}
SEED_MESSAGE = {
    "trace_id": "a3f5b9c1-2d4e-4a5f-9b2c-7e8d9f1a2b3c",
    "idempotency_key": "notif_8f3d9a1c2b4e5f6a7b8c9d0e1f2a3b4c",
    "user_id": "550e8400-e29b-41d4-a716-446655440000",
    "notification_type": "push",
    "recipient": "fcm_device_token_xyz123",
    "template_code": "welcome_notification",
    "variables": {"name": "John Doe", "link": "https://example.com/welcome"},
    "language": "en",
    "metadata": {},
}
_numbers = itertools.count(1)


class TemplateStub(Vendor):
    """Serves `templates` by code; everybody else's code gets the seed's template under that code."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(ledger)
        self.templates: dict[str, Any] = {}
        self.default = self._serve

    @property
    def gets(self) -> list[str]:
        return [entry["path"] for entry in list(self.entries)]

    def _serve(self, entry: Entry) -> Reply:
        code = unquote(entry["path"].removeprefix("/api/v1/templates/"))
        return Reply(body=self.templates.get(code, {**SEED_TEMPLATE, "code": code}))


def message(**changes: Any) -> dict[str, Any]:
    """The seed's message under a key and a trace of its own; None leaves a field out."""
    fresh = {"trace_id": str(uuid.uuid4()), "idempotency_key": f"notif_{next(_numbers)}_{uuid.uuid4().hex}"}
    fields = {**SEED_MESSAGE, **fresh, **changes}
    return {name: value for name, value in fields.items() if value is not None}
