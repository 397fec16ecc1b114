"""Ids with a slash in the path of every endpoint that takes one."""

import re

import pytest

from carillon.web import Endpoint
from carillon.web.endpoint import Routes
from carillon.web.problems import Problem
from tests.support.declared import declared

OPEN = [one for one in declared() if "{" in one.path]
ARRIVES = "url:https:%2F%2Fexample.org%2Fhook%2fa"
"""What is left of `%252F` once granian, or the streams' own server, has decoded the path."""


def filled(endpoint: Endpoint, value: str) -> str:
    return re.sub(r"\{\w+\}", value, endpoint.path)


@pytest.mark.req("P-762")
@pytest.mark.parametrize("endpoint", OPEN, ids=lambda one: f"{one.method} {one.path}")
def test_an_id_may_have_slashes(endpoint: Endpoint) -> None:
    found, params = Routes(declared()).find(endpoint.method, filled(endpoint, ARRIVES))
    assert found.name == endpoint.name
    assert set(params.values()) == {"url:https://example.org/hook/a"}


@pytest.mark.req("P-762")
@pytest.mark.parametrize("endpoint", OPEN, ids=lambda one: f"{one.method} {one.path}")
def test_a_slash_that_is_encoded_once_is_refused_with_what_to_do(endpoint: Endpoint) -> None:
    with pytest.raises(Problem) as caught:
        Routes([endpoint]).find(endpoint.method, filled(endpoint, "a/b/c"))
    assert (caught.value.status, "%252F" in caught.value.message) == (404, True)
    with pytest.raises(Problem) as caught:
        Routes([endpoint]).find(endpoint.method, "/nowhere")
    assert "%252F" not in caught.value.message


@pytest.mark.req("P-762")
def test_other_percent_signs_stay() -> None:
    (endpoint,) = [one for one in OPEN if one.name == "showPerson"]
    for value in ("100%", "50%25", "%2", "%%2e", "a%20b"):
        assert Routes(OPEN).find("GET", filled(endpoint, value))[1] == {"id": value}


@pytest.mark.req("P-762")
@pytest.mark.parametrize("name", ["showPerson", "exportPerson", "erasePerson", "showPreferences", "changePreferences"])
def test_a_person_who_is_known_by_a_url_has_a_long_id(name: str) -> None:
    found = [one for one in OPEN if one.name == name]
    for endpoint in found:
        value = "url:https:%2F%2Fexample.org%2F" + "x" * 980
        assert len(Routes(OPEN).find(endpoint.method, filled(endpoint, value))[1]) == 1
    assert found
