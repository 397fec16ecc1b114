"""A credential that no log, error or repr shows."""

from typing import Any


class Secret:
    """Holds a credential; only `reveal` returns it, where it is used."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str | tuple[Any, ...]:
        # A pickle would put the credential into caches and crash reports.
        raise TypeError("a Secret is not pickled")


def decode_secret(wanted: type, value: object) -> object:
    """Let msgspec read a plain string where settings want a Secret."""
    if wanted is Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str) and value:
            return Secret(value)
        raise ValueError("Expected a non-empty `str`")
    raise NotImplementedError
