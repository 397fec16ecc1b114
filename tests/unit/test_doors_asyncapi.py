"""The AsyncAPI document of the broker doors: the doors read what it says, field by field, header by header."""

import json
from typing import Any

import msgspec
import pytest
import yaml

from carillon.compose.doors import BrokerDoorPart
from carillon.config.settings import Settings
from carillon.domain.intents import Intent, Malformed
from carillon.doors.http.wire import SendBody
from carillon.doors.messages import BrokerMessage, QueueWire
from tests.support.sources import ROOT

DOCUMENT: Any = yaml.safe_load((ROOT / "docs" / "reference" / "doors-asyncapi.yaml").read_text())
REQUEST = DOCUMENT["components"]["messages"]["request"]
SCHEMA = DOCUMENT["components"]["schemas"]["SendBody"]


def read(payload: Any, headers: Any = None) -> Intent | Malformed:
    message = BrokerMessage(
        body=json.dumps(payload).encode(),
        message_id="m-1",
        correlation_id=None,
        headers={} if headers is None else headers,
    )
    return QueueWire("any", "q", 262_144, lambda: "made").read(message)


@pytest.mark.req("P-510")
def test_every_broker_door_is_a_channel() -> None:
    doors = {kind.name for kind in BrokerDoorPart.__subclasses__()}
    assert set(DOCUMENT["channels"]) == doors
    assert {operation["channel"]["$ref"].rpartition("/")[2] for operation in DOCUMENT["operations"].values()} == doors
    settings = set(Settings.__struct_fields__)
    for name, channel in DOCUMENT["channels"].items():
        assert name in settings
        assert channel["parameters"]["queue"]["description"] == f"{name}.queue"
        assert channel["messages"]["request"]["$ref"] == "#/components/messages/request"


@pytest.mark.req("P-510")
def test_the_body_has_the_fields_of_a_request_that_nobody_waits_for() -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(SendBody)}
    assert set(SCHEMA["properties"]) == set(fields) - {"synchronous"}
    assert SCHEMA["required"] == [name for name, field in fields.items() if field.required]
    limits = msgspec.json.schema(SendBody)["$defs"]["SendBody"]["properties"]
    for name, said in SCHEMA["properties"].items():
        assert all(json.dumps(word) in json.dumps(limits[name]) for word in said.get("enum", ())), name
    refused = read({**REQUEST["examples"][0]["payload"], "synchronous": True})
    assert isinstance(refused, Malformed)


@pytest.mark.req("P-510")
@pytest.mark.parametrize("example", REQUEST["examples"], ids=lambda each: each["name"])
def test_the_examples_are_read_with_their_headers(example: Any) -> None:
    headers = example.get("headers", {})
    assert set(headers) <= set(REQUEST["headers"]["properties"])
    intent = read(example["payload"], headers)
    assert isinstance(intent, Intent), intent
    assert intent.idempotency_key == headers.get("idempotency-key", "m-1")


@pytest.mark.req("P-510")
def test_no_other_header_is_read() -> None:
    asked: set[str] = set()

    class Asked(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            asked.add(key)
            return super().get(key, default)

    read(REQUEST["examples"][0]["payload"], Asked())
    assert asked == set(REQUEST["headers"]["properties"])
