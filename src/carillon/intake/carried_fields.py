"""The fields of a push and of a message of the inbox that a template writes, such as its image and what a tap opens."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from carillon.domain.content.parts import InAppParts, PushParts, check_in_app, check_push
from carillon.domain.errors import BadIntent, BadTemplate, Place
from carillon.domain.notifications import Message, Template
from carillon.patterns import in_words

KINDS: dict[str, type[PushParts] | type[InAppParts]] = {"push": PushParts, "inApp": InAppParts}
"""By channel; the channel is also the name of the field in the API and of the file in a folder."""
_STAND_IN = "1"
"""In place of a text with tags: a number, a word and a text alike."""


def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Every text with the path to it, such as `push.data.order`."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")


def each_text(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON, and JSON again
    """The same value with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: each_text(inner, change) for name, inner in value.items()}
    return [each_text(inner, change) for inner in value] if isinstance(value, list) else value


def has_tags(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def check_fields(template: Template) -> None:
    """Raise BadTemplate for fields that no message of the channel has, or a link that could never be shown."""
    if not template.fields:
        return
    kind, place = KINDS.get(template.channel), Place(template.code, 1, 1, template.channel)
    if kind is None:
        raise BadTemplate(f"a template of the channel {template.channel} has no fields beside its texts", place=place)
    written = each_text(template.fields, lambda text: _STAND_IN if has_tags(text) else text)
    try:
        parts = msgspec.convert(written, kind, strict=False)
        if not any(has_tags(text) for _, text in leaves(template.fields, "")):
            _check(parts)
    except (msgspec.ValidationError, BadIntent) as error:
        raise BadTemplate(f"{template.channel}: {in_words(str(error))}", place=place) from None


def with_fields(message: Message, template: Template, render: Callable[[str], str]) -> Message:
    """The message with the fields of its template; raises BadIntent for values that no field can hold.

    A field whose text is empty is left out, so that a condition can leave it out; so is an action without a link.
    """
    named = f"{template.channel} of template {template.code}"
    parts = filled(template.fields, KINDS[template.channel], render, named)
    _check(parts)
    bare = msgspec.structs.replace(parts, title=None, body=None)
    message = msgspec.structs.replace(message, subject=parts.title or message.subject, text=parts.body or message.text)
    if isinstance(bare, PushParts):
        return msgspec.structs.replace(message, push=bare)
    return msgspec.structs.replace(message, in_app=bare)


def filled(said: Any, kind: type[Any], render: Callable[[str], str], named: str) -> Any:  # noqa: ANN401 - JSON, and a kind
    """The fields with their tags rendered; raises BadIntent for values that no field can hold."""
    written = _without_empty(each_text(said, lambda text: render(text) if has_tags(text) else text))
    try:
        return msgspec.convert(written, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadIntent("TEMPLATE_RENDER_ERROR", f"{named}: {in_words(str(error))}", field="data") from None


def _check(parts: PushParts | InAppParts) -> None:
    if isinstance(parts, PushParts):
        check_push(parts)
    else:
        check_in_app(parts)


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - JSON, and JSON again
    if isinstance(value, Mapping):
        return {name: _without_empty(inner) for name, inner in value.items() if inner not in ("", None)}
    if isinstance(value, list):
        whole = [one for one in value if not (isinstance(one, dict) and any(text == "" for text in one.values()))]
        return [_without_empty(one) for one in whole]
    return value
