"""Templates from files: found by code, channel and locale, and checked before anything is accepted."""

from pathlib import Path

import pytest

from carillon.config.reading import blueprint_folder, blueprint_names
from carillon.domain.errors import ConfigurationError
from carillon.intake.templates import FileTemplates


def write(root: Path, name: str, content: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


async def test_a_template_is_found_under_its_code_channel_and_locale(tmp_path: Path) -> None:
    write(tmp_path, "welcome/en-US/email/text.tmpl", "Hi {{name}}\n")
    write(tmp_path, "welcome/en-US/email/subject.tmpl", "Welcome {{name}}\n")
    write(tmp_path, "welcome/en-US/email/html.tmpl", "<p>Hi {{name}}</p>\n")
    write(tmp_path, "welcome/es-MX/sms/text.tmpl", "Hola\n")
    templates = FileTemplates.read(tmp_path)
    found = await templates.find("welcome", "email", "en-US")
    assert found is not None
    assert (found.text, found.subject, found.html) == ("Hi {{name}}", "Welcome {{name}}", "<p>Hi {{name}}</p>")
    assert await templates.variants("welcome") == [("email", "en-US"), ("sms", "es-MX")]
    assert templates.count() == 2


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    write(tmp_path, "welcome/en-US/email/text.tmpl", "Hi")
    templates = FileTemplates.read(tmp_path)
    assert await templates.find("welcome", "email", "en") is None
    assert await templates.find("welcome", "sms", "en-US") is None
    assert await templates.find("../welcome", "email", "en-US") is None
    assert await templates.variants("goodbye") == []


async def test_a_later_folder_overrides_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path / "ours", "welcome/en-US/sms/text.tmpl", "ours")
    write(tmp_path / "ours", "goodbye/en-US/sms/text.tmpl", "ours")
    write(tmp_path / "theirs", "welcome/en-US/sms/text.tmpl", "theirs")
    templates = FileTemplates.read(tmp_path / "ours", tmp_path / "theirs")
    welcome = await templates.find("welcome", "sms", "en-US")
    goodbye = await templates.find("goodbye", "sms", "en-US")
    assert welcome is not None
    assert goodbye is not None
    assert (welcome.text, goodbye.text) == ("theirs", "ours")


@pytest.mark.parametrize("part", ["text", "subject", "html"])
def test_a_template_with_logic_stops_the_start_and_is_named(tmp_path: Path, part: str) -> None:
    write(tmp_path, "welcome/en-US/email/text.tmpl", "Hi")
    write(tmp_path, f"welcome/en-US/email/{part}.tmpl", "{{7*7}}")
    with pytest.raises(ConfigurationError, match=rf"welcome/en-US/email/{part}\.tmpl: .*7\*7"):
        FileTemplates.read(tmp_path)


@pytest.mark.parametrize("text", ["Hi {{name", "Hi {{name}, welcome", "{{a}} and {{b"])
def test_a_placeholder_that_is_not_closed_stops_the_start_and_is_named(tmp_path: Path, text: str) -> None:
    write(tmp_path, "welcome/en-US/email/text.tmpl", text)
    with pytest.raises(ConfigurationError, match=r"welcome/en-US/email/text\.tmpl: .* is not closed"):
        FileTemplates.read(tmp_path)


async def test_a_carriage_return_at_the_end_of_a_subject_is_no_second_line(tmp_path: Path) -> None:
    write(tmp_path, "welcome/en-US/email/text.tmpl", "Hi")
    (tmp_path / "welcome/en-US/email/subject.tmpl").write_bytes(b"Welcome\r\n")
    found = await FileTemplates.read(tmp_path).find("welcome", "email", "en-US")
    assert found is not None
    assert found.subject == "Welcome"


# Galaxy's templates are rendered downstream and have their own layout.
@pytest.mark.parametrize("name", [name for name in blueprint_names() if name != "galaxy"])
def test_the_shipped_templates_are_sound(name: str) -> None:
    folder = blueprint_folder(name) / "templates"
    if folder.is_dir():
        assert FileTemplates.read(Path(str(folder))).count() > 0
