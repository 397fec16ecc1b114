"""A Dockerfile as its builder reads it: one instruction after the other, by stage."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STEP = re.compile(r"(?P<word>[A-Z]+)\s+(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """One instruction; `rest` has its lines joined."""

    word: str
    rest: str

    def list(self) -> list[Any]:
        """The JSON form of ENTRYPOINT, CMD and HEALTHCHECK; raises for the shell form, which swallows signals."""
        found: list[Any] = json.loads(self.rest[self.rest.index("[") :])
        return found


def stages(file: Path) -> list[list[Step]]:
    found: list[list[Step]] = []
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for logical in re.split(r"(?<!\\)\n", "\n".join(lines)):
        match = _STEP.fullmatch(logical.replace("\\\n", " "))
        if match is None:
            raise ValueError(f"no instruction: {logical}")
        step = Step(match["word"], re.sub(r" {2,}", " ", match["rest"]))
        if step.word == "FROM":
            found.append([])
        found[-1].append(step)
    return found


def variables(stage: list[Step]) -> dict[str, str]:
    words = (word for step in stage if step.word == "ENV" for word in step.rest.split())
    return dict(word.split("=", 1) for word in words)
