"""The document that is made from the declarations."""

import json
import re
from typing import Annotated, Any

import msgspec
import pytest

from carillon.web import Answer, Header
from carillon.web.openapi import document
from carillon.web.problems import KINDS
from tests.unit.web_parts import endpoint


class Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What is sent."""

    short_name: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+\Z", description="Small letters.")]
    size: int = 1


class Query(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked."""

    page: Annotated[int, msgspec.Meta(ge=1)] = 1


def made(**changed: Any) -> dict[str, Any]:
    declared = endpoint(
        "POST",
        "/things/{id}",
        body=Body,
        query=Query,
        headers=(Header("X-Odd", "Odd."),),
        path_examples={"id": "one"},
        problems=("CONFLICT",),
        answers=(Answer(status=201, description="Made", kind=Body, headers=(Header("Location", "Where."),)),),
    )
    hidden = endpoint("GET", "/hidden", hidden=True)
    read: dict[str, Any] = json.loads(
        document([declared, hidden], title="T", version="1", **{"secured": False, **changed})
    )
    return read


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for inner in value.values() for found in references(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in references(inner)]
    return []


def test_every_reference_leads_somewhere_and_nothing_is_left_over() -> None:
    whole = made()
    names = {reference.removeprefix("#/components/schemas/") for reference in references(whole)}
    assert names == set(whole["components"]["schemas"])
    assert whole["openapi"] == "3.1.0"
    assert list(whole["paths"]) == ["/things/{id}"]


def test_an_operation_tells_what_was_declared() -> None:
    operation = made()["paths"]["/things/{id}"]["post"]
    by_name = {parameter["name"]: parameter for parameter in operation["parameters"]}
    assert by_name["id"]["in"] == "path"
    assert by_name["page"] == {
        "name": "page",
        "in": "query",
        "required": False,
        "description": "The number of the page, from 1.",
        "schema": {"type": "integer", "minimum": 1, "default": 1},
    }
    assert by_name["X-Odd"]["in"] == "header"
    assert {"201", "400", "404", "408", "409", "413", "415", "503"} <= set(operation["responses"])
    assert "Location" in operation["responses"]["201"]["headers"]
    assert "CONFLICT" in operation["responses"]["409"]["description"]


def test_patterns_are_written_in_the_document_s_dialect() -> None:
    field = made()["components"]["schemas"]["Body"]["properties"]["shortName"]
    assert field["pattern"] == "^[a-z]+$"


def test_tokens_are_asked_for_only_when_there_is_a_secret() -> None:
    assert "securitySchemes" not in made()["components"]
    secured = made(secured=True)
    assert secured["paths"]["/things/{id}"]["post"]["security"] == [{"bearer": []}, {"key": []}]
    assert {"401", "403"} <= set(secured["paths"]["/things/{id}"]["post"]["responses"])


@pytest.mark.parametrize("code", KINDS)
def test_codes_are_shouted(code: str) -> None:
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code)
