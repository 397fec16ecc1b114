"""What an input reaches in Carillon's code: an input that reaches something new becomes a seed.

atheris does this with libFuzzer, faster. It weighs 35 MB and has wheels for Linux alone, so it is no dependency of the
tests; these readers are small, and a few thousand watched inputs see most of their lines.
"""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import carillon

_OURS = str(Path(carillon.__file__).parent)


class Reached:
    """Steps from line to line inside Carillon, of all inputs so far; watches while it is entered."""

    def __init__(self) -> None:
        self._known: set[tuple[CodeType, int, int]] = set()
        self._now: set[tuple[CodeType, int, int]] = set()
        self._last: dict[FrameType, int] = {}
        self._before: Any = None

    def __enter__(self) -> None:
        self._now.clear()
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        self._last.clear()

    def news(self) -> bool:
        """Whether the last input took a step that none before it took."""
        fresh = self._now - self._known
        self._known |= fresh
        return bool(fresh)

    def _called(self, frame: FrameType, event: str, _: object) -> Any:
        del event
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._now.add((frame.f_code, self._last.get(frame, 0), frame.f_lineno))
            self._last[frame] = frame.f_lineno
        elif event == "return":
            self._last.pop(frame, None)
        return self._stepped
