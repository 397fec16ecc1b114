"""What a push carries beside its texts reaches a push worker: from our own templates, and from any template service."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.process import Program
from tests.support.push_stand import SEED_TEMPLATE, Push, message, stand_fixture

push: Any = stand_fixture(params=("sqlite",))
FIELDS = {"image": "https://example.org/{{name}}.png", "actionUrl": "https://example.org/go", "badge": 3}


@pytest.mark.slow
@pytest.mark.req("P-536", "P-121")
def test_the_fields_of_a_template_are_sent(push: Push) -> None:
    push.template_service.templates = {
        "carries": {**SEED_TEMPLATE, "code": "carries", "push": FIELDS},
        "broken": {**SEED_TEMPLATE, "code": "broken", "push": {"colour": "red"}},
    }
    sent = message(template_code="carries", variables={"name": "ada", "link": "https://example.org/"})
    push.publish(sent)
    push.until_mark(sent, "sent")
    (post,) = push.posts(sent["trace_id"])
    assert "https://example.org/ada.png" in json.dumps(post)
    assert "https://example.org/go" in json.dumps(post)
    wrong = message(template_code="broken")
    push.publish(wrong)
    assert "colour" in push.dead(wrong)["failure_reason"]


@pytest.mark.slow
@pytest.mark.req("P-536")
def test_our_own_templates_are_read_with_their_fields(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", env=environment, cwd=tmp_path) as program:
        client = Client(str(program.wait_ready(60)["addresses"][0]))
        body = {"templateKey": "carries", "channel": "push", "locale": "en-US", "subjectTemplate": "Hi"}
        made = client.call("POST", "/api/v1/templates", {**body, "bodyTemplate": "Yes", "push": FIELDS})
        assert made.status == 201, made
        assert client.get("/api/v1/templates/carries").body["push"] == FIELDS
        assert "push" not in client.get("/api/v1/templates/welcome").body
        trial = {"templateKey": "draft", "channel": "push", "recipient": "device", "bodyTemplate": "Yes {{ name }}"}
        data = {"data": {"name": "ada"}}
        sent = client.call("POST", "/api/v1/templates/test-send", {**trial, **data, "push": FIELDS})
        assert sent.status == 202, sent
        story = client.get(f"/api/v1/notifications/{sent.body['notificationId']}?include=message").body
        assert story["routes"][0]["message"]["push"]["image"] == "https://example.org/ada.png"
        refused = client.call("POST", "/api/v1/templates/test-send", {**trial, **data, "inApp": {"url": "/x"}})
        assert refused.status == 400
        assert "only a template of the channel inApp has it" in refused.body["error"]["message"]
