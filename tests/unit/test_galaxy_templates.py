"""The mail templates of the galaxy blueprint: two files a type, rendering with exactly what the type requires."""

from pathlib import Path

import pytest

from carillon.blueprints.galaxy import catalogue
from carillon.domain.errors import BadIntent
from carillon.domain.notifications import Template
from carillon.intake.render import render_message, variables_of
from tests.support.galaxy import CATALOGUE, TYPES, payload_for

FOLDER = catalogue.SHIPPED.with_name("templates")


def template(name: str) -> Template:
    parts = {file.stem: file.read_text().rstrip("\n") for file in (FOLDER / name / "en").iterdir()}
    return Template(code=name, channel="email", locale="en", text=parts["text"], subject=parts["subject"])


@pytest.mark.req("S1-04", "S1-152")
def test_there_are_two_files_a_type_and_no_others() -> None:
    found = {file.relative_to(FOLDER) for file in FOLDER.rglob("*") if file.is_file()}
    assert found == {Path(name, "en", part) for name in TYPES for part in ("subject.tmpl", "text.tmpl")}
    assert len(found) == 30


@pytest.mark.req("S1-152")
@pytest.mark.parametrize("name", TYPES)
def test_each_renders_with_exactly_the_required_fields(name: str) -> None:
    asked = template(name)
    assert asked.subject is not None
    payload = payload_for(name)
    assert variables_of(asked.subject) | variables_of(asked.text) == set(CATALOGUE.types[name].required)
    message = render_message(asked, payload)
    assert message.subject
    assert "{{" not in message.subject + message.text
    for value in payload.values():
        assert str(value) in message.subject + message.text


@pytest.mark.parametrize("name", TYPES)
def test_a_missing_field_is_noticed(name: str) -> None:
    for field in CATALOGUE.types[name].required:
        less = {key: value for key, value in payload_for(name).items() if key != field}
        with pytest.raises(BadIntent, match=field):
            render_message(template(name), less)
