"""Text messages from outside: their parts, where operators see them."""

from typing import Any

import pytest

from tests.support.listo_stand import PHONE, Listo, shared_fixture
from tests.support.listo_templates import PATH

listo = shared_fixture()

CYRILLIC = "Привет {{name}}"
NAME = "Я" * 70
PARTS = {"encoding": "UCS-2", "units": 77, "segments": 2, "perSegment": 67}


def make(listo: Listo, key: str, text: str, **fields: Any) -> Any:
    body = {"templateKey": key, "channel": "sms", "bodyTemplate": text, **fields}
    made = listo.client.call("POST", PATH, body)
    assert made.status == 201, made
    return made.body


@pytest.mark.req("P-101")
def test_explain_preview_and_story_show_the_parts(listo: Listo) -> None:
    make(listo, "parts", CYRILLIC)
    data = {"name": NAME}
    explained = listo.client.call(
        "POST",
        "/api/v1/notifications/explain",
        {"templateKey": "parts", "channel": "sms", "recipient": PHONE, "data": data},
    ).body
    (step,) = [one for one in explained["steps"] if one["step"] == "render"]
    assert step["detail"]["segments"] == PARTS
    preview = listo.client.call("POST", f"{PATH}/render", {"templateKey": "parts", "data": data}).body
    assert preview["segments"] == PARTS
    story = listo.until(listo.sent("parts", "sms", data=data), "delivered")
    assert story["routes"][0]["message"]["segments"] == PARTS


@pytest.mark.req("P-101")
def test_only_a_text_message_has_parts(listo: Listo) -> None:
    preview = listo.client.call("POST", f"{PATH}/render", {"bodyTemplate": "Hi", "channel": "email"}).body
    assert preview["segments"] is None
    story = listo.until(listo.sent(), "delivered")
    assert "segments" not in story["routes"][0]["message"]
