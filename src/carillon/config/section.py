"""A section of the settings: its fields, its defaults, and the range in which each number works."""

from typing import ClassVar

import msgspec

Bounds = tuple[float, float]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the settings; the program does not start with a name that the section does not know."""

    bounds: ClassVar[dict[str, Bounds]] = {}
    """Field to the least and the greatest value it may have; reading the settings checks them."""
