"""Templates in a folder: how they lie there, and how they are read.

`<key>/<locale>/<channel>/{subject,text,html}.tmpl` are of the simple engine. With `.jinja` in place of `.tmpl` they are
of the jinja engine, and may have `mjml.jinja` beside them. Both may have `sample.json`, `template.json`, and in the
folders of these channels `push.json` or `inApp.json`. `_layouts/<key>/` and
`_partials/<key>/` hold what all locales and channels share, `_locales/<locale>.po` the translations. A file
`<key>/category` names the category of the key.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from carillon.domain.errors import BadTemplate, ConfigurationError
from carillon.domain.notifications import Template
from carillon.domain.templates import CATALOGUE_KEY, Kind
from carillon.intake.carried_fields import KINDS
from carillon.intake.jinja.catalogues import read_messages
from carillon.intake.render import check_parts, check_template

PARTS = ("subject", "text", "html")
JINJA_PARTS = (*PARTS, "mjml")
SHARED: dict[str, Kind] = {"_layouts": "layout", "_partials": "partial"}
LOCALES = "_locales"
SHARED_CHANNEL = "email"
Read = TypeVar("Read")
Place = tuple[str, str, str]
"""A key, a channel and a locale."""


class TemplateNotes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """`template.json`: what is no text of the template."""

    layout: str | None = None
    kind: Kind = "message"
    default_variables: dict[str, Any] = {}


def read_folder(root: Path, default_locale: str, faults: list[str] | None = None) -> dict[Place, Template]:
    """Every template of a folder, layouts, partials and catalogues among them; raises ConfigurationError.

    With `faults` it reads on behind a template that is wrong, and says there what is wrong.
    """
    found: dict[Place, Template] = {}
    folders = {file.parent for ending in ("tmpl", "jinja") for file in root.glob(f"*/*/*/*.{ending}")}
    for folder in sorted(folders):
        with noted(faults):
            template = _read_one(folder)
            found[template.code, template.channel, template.locale] = template
    for name, kind in SHARED.items():
        for folder in sorted({file.parent for file in root.glob(f"{name}/*/*.jinja")}):
            with noted(faults):
                parts = _jinja_parts(folder, f"{name}/{folder.name}")
                about = _json(folder / "template.json", TemplateNotes) or TemplateNotes()
                place = (folder.name, SHARED_CHANNEL, default_locale)
                found[place] = _jinja(place, parts, msgspec.structs.replace(about, kind=kind), _sample(folder))
    for file in sorted(root.glob(f"{LOCALES}/*.po")):
        with noted(faults):
            template = _catalogue(file)
            found[template.code, template.channel, template.locale] = template
    return found


@contextmanager
def noted(faults: list[str] | None) -> Iterator[None]:
    """Keep what is wrong with a template among the faults; raise it if there is no list of them."""
    try:
        yield
    except ConfigurationError as error:
        if faults is None:
            raise
        faults.append(str(error))


def _read_one(folder: Path) -> Template:
    code, locale, channel = folder.parts[-3:]
    where = f"{code}/{locale}/{channel}"
    if any(folder.glob("*.jinja")):
        if any(folder.glob("*.tmpl")):
            raise ConfigurationError(f"template {where}: has .tmpl and .jinja files; one engine reads a template")
        parts = _jinja_parts(folder, where)
        if not any(parts.get(part) for part in ("text", "html", "mjml")):
            raise ConfigurationError(f"template {where}: text.jinja, html.jinja or mjml.jinja is missing")
        about = _json(folder / "template.json", TemplateNotes) or TemplateNotes()
        made = _jinja((code, channel, locale), parts, about, _sample(folder))
        return msgspec.structs.replace(made, category=_category(folder), fields=_fields(folder, where))
    return _simple((code, channel, locale), folder, where)


def _simple(place: Place, folder: Path, where: str) -> Template:
    code, channel, locale = place
    parts = {part: _text(folder / f"{part}.tmpl") for part in PARTS if (folder / f"{part}.tmpl").exists()}
    for part, source in parts.items():
        try:
            check_template(source)
        except BadTemplate as error:
            raise ConfigurationError(f"template {where}/{part}.tmpl: {error}") from error
    if "text" not in parts:
        raise ConfigurationError(f"template {where}: text.tmpl is missing")
    about = _json(folder / "template.json", TemplateNotes) or TemplateNotes()
    if about.layout is not None or about.kind != "message":
        raise ConfigurationError(f"template {where}/template.json: layout and kind need the jinja engine")
    template = Template(
        code=code,
        channel=channel,
        locale=locale,
        text=parts["text"],
        subject=parts.get("subject"),
        html=parts.get("html"),
        category=_category(folder),
        default_variables=about.default_variables,
        sample=_sample(folder),
        fields=_fields(folder, where),
    )
    try:
        check_parts(template)
    except BadTemplate as error:
        raise ConfigurationError(f"template {where}: {error}") from None
    return template


def _sample(folder: Path) -> dict[str, Any]:
    return _json(folder / "sample.json", dict[str, Any]) or {}


def _fields(folder: Path, where: str) -> dict[str, Any]:
    """`push.json` or `inApp.json`, whichever the channel has."""
    for channel in KINDS:
        if channel != folder.name and (folder / f"{channel}.json").exists():
            raise ConfigurationError(f"template {where}/{channel}.json: only the channel {channel} has it")
    return _json(folder / f"{folder.name}.json", dict[str, Any]) or {} if folder.name in KINDS else {}


def _jinja_parts(folder: Path, where: str) -> dict[str, str]:
    for file in folder.glob("*.jinja"):
        if file.stem not in JINJA_PARTS:
            raise ConfigurationError(f"template {where}/{file.name}: parts are {', '.join(JINJA_PARTS)}")
    return {part: _text(folder / f"{part}.jinja") for part in JINJA_PARTS if (folder / f"{part}.jinja").exists()}


def _category(folder: Path) -> str | None:
    """The category of the code, from the file beside its locales."""
    file = folder.parent.parent / "category"
    return _content(file).strip() or None if file.exists() else None


def _text(file: Path) -> str:
    # Editors end files with a line break; a subject with one would be refused as two lines.
    return _content(file).rstrip("\n")


def _content(file: Path) -> str:
    shown = "/".join(file.parts[-4:])
    try:
        # Some editors begin a file with a mark that is no part of its text.
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{shown}: the file is not UTF-8") from None
    except OSError as error:
        raise ConfigurationError(f"{shown}: the file cannot be read: {error.strerror}") from None


def _jinja(place: Place, parts: dict[str, str], about: TemplateNotes, sample: dict[str, Any]) -> Template:
    code, channel, locale = place
    return Template(
        code=code,
        channel=channel,
        locale=locale,
        text=parts.get("text", ""),
        subject=parts.get("subject"),
        html=parts.get("html"),
        mjml=parts.get("mjml"),
        engine="jinja",
        kind=about.kind,
        layout=about.layout,
        default_variables=about.default_variables,
        sample=sample,
    )


def _json(file: Path, kind: type[Read]) -> Read | None:
    if not file.exists():
        return None
    try:
        return msgspec.json.decode(_content(file), type=kind)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{'/'.join(file.parts[-4:])}: {error}") from None


def _catalogue(file: Path) -> Template:
    text = _content(file)
    try:
        read_messages(file.stem, text)
    except BadTemplate as error:
        raise ConfigurationError(f"{LOCALES}/{file.name}: {error}") from None
    return Template(
        code=CATALOGUE_KEY, channel=SHARED_CHANNEL, locale=file.stem, text=text, engine="jinja", kind="catalogue"
    )
