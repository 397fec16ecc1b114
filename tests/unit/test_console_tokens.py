"""The console's colours: computed contrast of every text on every surface, light and dark."""

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

STATIC = files("carillon.upkeep.console").joinpath("static")
TOKEN = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(")
SURFACES = ("back", "card", "sunk")
TEXTS = ("ink", "dull", "plain", "good", "wait", "bad")
TEXT, EDGE = 4.5, 3.0


def tokens(text: str) -> dict[str, tuple[str, str]]:
    return {name: (light, dark) for name, light, dark in TOKEN.findall(text)}


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""

    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def pairs() -> Iterator[tuple[str, str, float]]:
    """What stands on what, and the least contrast."""
    for surface in SURFACES:
        yield from ((text, surface, TEXT) for text in (*TEXTS, "brand"))
        yield from ((edge, surface, EDGE) for edge in ("edge", "focus"))
    yield "on-brand", "brand", TEXT
    for meaning in ("plain", "good", "wait", "bad", "dull"):
        yield meaning, f"{meaning}-tint", TEXT
        yield "ink", f"{meaning}-tint", TEXT


def weak(found: dict[str, tuple[str, str]]) -> list[str]:
    return [
        f"{one} on {other}, {scheme}: {measured:.2f}"
        for one, other, least in pairs()
        for at, scheme in enumerate(("light", "dark"))
        if (measured := contrast(found[one][at], found[other][at])) < least
    ]


@pytest.mark.req("P-540")
def test_every_text_can_be_read_on_every_surface() -> None:
    assert weak(tokens(STATIC.joinpath("tokens.css").read_text())) == []


def test_control_a_pale_colour_is_found() -> None:
    found = tokens(STATIC.joinpath("tokens.css").read_text())
    assert weak({**found, "dull": ("#a8a29e", found["dull"][1])}) != []


def test_black_on_white() -> None:
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0
    assert round(contrast("#767676", "#ffffff"), 2) == 4.54


@pytest.mark.req("P-540")
def test_only_the_tokens_name_colours() -> None:
    sheets = [file for file in STATIC.iterdir() if file.name.endswith(".css") and file.name != "tokens.css"]
    assert len(sheets) >= 3
    assert {file.name: found for file in sheets if (found := COLOUR.findall(file.read_text()))} == {}
