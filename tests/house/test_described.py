"""Every field and parameter of the API says what it means, in a sentence that somebody wrote."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from carillon.web import KNOWN, Answer, Endpoint, Reply, Request
from carillon.web.describing import sentences
from carillon.web.openapi import document
from tests.support.declared import declared


class Ropes(msgspec.Struct, rename="camel"):
    """A wire type with a field that nobody describes."""

    rope_count: int
    bell_name: str
    """What people call the bell."""
    tenant_id: str


async def _never(_: Request) -> Reply:
    raise NotImplementedError


CONTROL = Endpoint(
    method="GET",
    path="/ropes/{knot}",
    call=_never,
    name="ropes",
    summary="Ropes",
    answers=(Answer(status=200, description="Ropes", kind=Ropes),),
    path_examples={"knot": "1"},
    about=KNOWN,
)


def made(endpoints: list[Endpoint]) -> Any:
    return json.loads(document(endpoints, title="", version="", secured=True))


def silent(made: Any) -> Iterator[str]:
    """What says nothing: fields, parameters, operations and answers."""
    for name, schema in made["components"]["schemas"].items():
        for field, inner in schema.get("properties", {}).items():
            if not inner.get("description"):
                yield f"{name}.{field}"
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            called = f"{method.upper()} {path}"
            if not operation.get("summary"):
                yield called
            yield from (
                f"{called} {each['name']}" for each in operation.get("parameters", ()) if not each["description"]
            )
            yield from (
                f"{called} {status}" for status, each in operation["responses"].items() if not each["description"]
            )


@pytest.mark.req("P-556")
def test_every_field_of_the_api_is_described() -> None:
    assert list(silent(made(declared()))) == [], "write a docstring under the field, or its name into web/fields.toml"


def test_a_field_without_a_description_is_noticed() -> None:
    found = made([CONTROL])
    assert list(silent(found)) == ["Ropes.ropeCount", "GET /ropes/{knot} knot"]
    fields = found["components"]["schemas"]["Ropes"]["properties"]
    assert fields["bellName"]["description"] == "What people call the bell."
    assert fields["tenantId"]["description"] == sentences()["tenantId"]


def test_sentences_are_sentences_of_names_in_use() -> None:
    known = sentences()
    assert [name for name, text in known.items() if not text.endswith(".") or not text[0].isupper()] == []
    text = json.dumps(made(declared()))
    # `user_id` and `userId` are one name.
    spelt = {name: "".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in known}
    unused = [name for name, other in spelt.items() if f'"{name}"' not in text and f'"{other}"' not in text]
    assert unused == []
