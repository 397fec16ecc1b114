"""Tokens that were taken back: a file with one `jti` to a line, looked at again now and then."""

import time
from collections.abc import Callable
from pathlib import Path

from carillon.domain.errors import ConfigurationError

LOOK_SECONDS = 5.0


class Revoked:
    """What the file says; when it cannot be read any more, what it said last."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._stamp: tuple[int, int] | None = None
        self._ids: frozenset[str] = frozenset()
        self._looked = monotonic()
        try:
            self._read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"auth.revoked_file: {path}: {error}") from None

    def __contains__(self, token_id: object) -> bool:
        now = self._monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            try:
                self._read()
            except (OSError, UnicodeDecodeError):
                # Whoever replaces the file may have it away for a moment; nobody is let in again by that.
                self._stamp = None
        return token_id in self._ids

    def _read(self) -> None:
        found = self._path.stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._ids = frozenset(self._path.read_text(encoding="utf-8").split())
            self._stamp = stamp
