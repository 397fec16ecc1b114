"""Writes docs/recording.svg from a real run of an outage, its failover, a story and a redrive: `make recording`."""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.waiting import wait_until

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "recording.svg"
SETTINGS = """extends = "local"

[channels]
sms = ["north", "south"]

[providers.north]
kind = "sandbox"

[providers.south]
kind = "sandbox"

[policy.retry."*/sms"]
max_attempts = 3
failover_after_attempts = 1
base_delay_seconds = 0.5
jitter_seconds = 0.1
"""
_SEND = "carillon send welcome --channel sms --to +4915112345678 -d name=Ada -d link=https://shop.example"
_DRILLS = "curl -s localhost:8080/api/v1/sandbox/drills"
SCENE = (
    ("Two SMS vendors, north and south. All is well.", _SEND),
    ("North goes down.", _DRILLS + """/sms@north -X PUT --json '{"outcome":"unavailable"}'"""),
    ("The same message: north fails, south delivers.", _SEND),
    ("South goes down too.", _DRILLS + """/sms@south -X PUT --json '{"outcome":"unavailable"}'"""),
    ("Nobody can deliver now.", _SEND),
    ("Nothing is lost: it is a dead letter, with its reason.", "carillon dead-letters list"),
    ("The vendors are back.", f"for vendor in north south; do {_DRILLS}/sms@$vendor -X DELETE; echo; done"),
    ("Send it after all.", "carillon dead-letters redrive --all"),
    ("The same notification, delivered; its story keeps every attempt.", "carillon tail --last 1 --lines 1"),
)
COLUMNS, ROWS = 112, 22
_CELL, _LINE, _SIZE, _EDGE = 8.43, 20, 14, 18
_TYPING, _PAUSE, _REST = 0.025, 1.1, 6.0
_TOKEN = re.compile(r"--([a-z-]+): light-dark\(#[0-9a-f]{6}, (#[0-9a-f]{6})\)")
_MEANINGS = {
    "good": re.compile(r"\b(?:delivered|sent|redriven)\b"),
    "bad": re.compile(r"\b(?:failed|dead letters?|unavailable)\b"),
}
_VARIES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+(?:[.:,T-]\d+)*(?:Z|(?: ms| s)\b)?")


@dataclass
class Shown:
    """One line of the terminal: when it appears, how it looks, and for how long it is typed."""

    text: str
    at: float
    kind: str
    typed: float = 0.0


@dataclass
class Run:
    """What was typed and printed, in the time of the recording."""

    lines: list[Shown] = field(default_factory=list)
    clock: float = 0.0

    def say(self, words: str) -> None:
        """Add a comment as somebody types it."""
        self.lines.append(Shown(f"# {words}", self.clock, "dull"))
        self.clock += 0.5

    def type(self, command: str) -> None:
        """Add a command at the speed of typing, folded as a terminal folds it."""
        for number, part in enumerate(_folded(f"$ {command}")):
            length = len(part) * _TYPING
            self.lines.append(Shown(part, self.clock, "command" if number == 0 else "more", length))
            self.clock += length
        self.clock += 0.15

    def print(self, output: str, seconds: float) -> None:
        """Add what the command printed after the time that it took."""
        self.clock += min(seconds, 1.5)
        self.lines += [Shown(part, self.clock, "output") for line in output.splitlines() for part in _folded(line)]
        self.clock += _PAUSE
        self.lines.append(Shown("", self.clock, "output"))


def record() -> Run:
    """Run the scene against a real Carillon on this machine."""
    run = Run()
    with tempfile.TemporaryDirectory(prefix="recording-") as name:
        folder, port = Path(name), str(free_port())
        (folder / "carillon.toml").write_text(SETTINGS)
        given = {"CARILLON_CONFIG": "carillon.toml", "CARILLON_HTTP__PORT": port}
        env = {
            "HOME": name,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": str(COLUMNS),
            "CARILLON_URL": f"http://127.0.0.1:{port}",
            **given,
        }
        with Program("serve", env=given, cwd=folder) as program:
            program.wait_ready()
            for comment, command in SCENE:
                # Nothing waits: what a command shows does not depend on how busy this machine is.
                wait_until(partial(_is_calm, env["CARILLON_URL"]), timeout=60, what="nothing that waits")
                _step(run, comment, command, folder, env)
            program.terminate()
            program.wait()
    return run


def _step(run: Run, comment: str, command: str, folder: Path, env: Mapping[str, str]) -> None:
    run.say(comment)
    run.type(command)
    began = time.monotonic()
    real = command.replace("localhost:8080", env["CARILLON_URL"].removeprefix("http://"))
    done = subprocess.run(  # noqa: S603 - the commands of SCENE
        ["bash", "-c", real],  # noqa: S607 - the reader's own shell
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    if done.stderr:
        raise RuntimeError(f"{command}: {done.stderr}")
    run.print(done.stdout, time.monotonic() - began)


def _is_calm(url: str) -> bool:
    asked = f"{url}/api/v1/notifications?status=queued"
    with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310 - our own program
        return b'"totalCount":0' in answer.read()


def words(run: Run) -> list[str]:
    """What is seen, without what differs from run to run: ids, times and numbers."""
    return [_VARIES.sub("~", line.text.rstrip()) for line in run.lines if line.text.strip(" ─━┃│┏┓┡┩└┘┴┳╇┬")]


def drawn(run: Run) -> str:
    """The run as an SVG that plays in a loop; where motion is not wanted it shows the end."""
    colours = dict(_TOKEN.findall(files("carillon.upkeep.console").joinpath("static/tokens.css").read_text()))
    whole = run.clock + _REST
    wide, high = COLUMNS * _CELL + 2 * _EDGE, ROWS * _LINE + 2 * _EDGE + 24
    described = " ".join(comment for comment, _ in SCENE)
    fills = "".join(f".{name}{{fill:{colours[name]}}}" for name in ("ink", "dull", "good", "bad", "brand"))
    # Two lines begin the file: what reads it back (`spoken`) finds text elements only.
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" role="img">',
            f"<title>A recording of Carillon</title><desc>{escape(described)}</desc>",
            f"<style>{fills}text{{font:{_SIZE}px ui-monospace,'SF Mono','Cascadia Mono','DejaVu Sans Mono',monospace;"
            "white-space:pre}@media (prefers-reduced-motion:no-preference){"
            + "".join(_motion(run, whole))
            + "}</style>",
            f'<rect width="{wide:.0f}" height="{high:.0f}" rx="10" fill="{colours["back"]}"',
            f'stroke="{colours["line"]}"/>',
            *(f'<circle cx="{_EDGE + 6 + 18 * n}" cy="18" r="5" fill="{colours["line"]}"/>' for n in range(3)),
            f'<svg y="{_EDGE + 16}" width="{wide:.0f}" height="{ROWS * _LINE}"><g id="roll" {_rolled(len(run.lines))}>',
            *(_text(number, line) for number, line in enumerate(run.lines)),
            "</g></svg></svg>\n",
        ]
    )


def _motion(run: Run, whole: float) -> Iterator[str]:
    """Each line appears at its time; a command is typed; the terminal rolls once it is full."""
    style = f"{whole:.1f}s step-end infinite"
    for number, line in enumerate(run.lines):
        begins = 100 * line.at / whole
        if line.typed:
            ends = 100 * (line.at + line.typed) / whole
            yield (
                f"@keyframes k{number}{{0%{{clip-path:inset(0 100% 0 0)}}"
                f"{begins:.2f}%{{clip-path:inset(0 100% 0 0);animation-timing-function:steps({len(line.text)})}}"
                f"{ends:.2f}%,100%{{clip-path:inset(0 -9px 0 0)}}}}"
            )
        else:
            yield f"@keyframes k{number}{{0%{{opacity:0}}{begins:.2f}%,100%{{opacity:1}}}}"
        yield f"#l{number}{{animation:k{number} {style}}}"
    steps = [(line.at, number) for number, line in enumerate(run.lines) if number >= ROWS]
    rolls = "".join(f"{100 * at / whole:.2f}%{{transform:translateY({(ROWS - 1 - n) * _LINE}px)}}" for at, n in steps)
    last = (ROWS - len(run.lines)) * _LINE
    yield f"@keyframes roll{{0%{{transform:none}}{rolls}100%{{transform:translateY({last}px)}}}}"
    yield f"#roll{{animation:roll {style}}}"


def _rolled(lines: int) -> str:
    return f'transform="translate(0 {min(0, (ROWS - lines) * _LINE)})"'


def _text(number: int, line: Shown) -> str:
    y = number * _LINE + 15
    inner = escape(line.text, quote=False)
    if line.kind == "output":
        for meaning, pattern in _MEANINGS.items():
            inner = pattern.sub(rf'<tspan class="{meaning}">\g<0></tspan>', inner)
    elif line.kind == "command":
        inner = f'<tspan class="brand">$</tspan>{inner[1:]}'
    shade = "dull" if line.kind == "dull" else "ink"
    return f'<text id="l{number}" class="{shade}" x="{_EDGE}" y="{y}">{inner}</text>'


def _folded(line: str) -> list[str]:
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)] or [""]


def spoken(picture: str) -> list[str]:
    """What a written recording shows, in the form of `words`."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    plain = [re.sub(r"<[^>]+>", "", text) for text in found]
    texts = [text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for text in plain]
    return words(Run([Shown(text, 0, "output") for text in texts]))


if __name__ == "__main__":
    PICTURE.write_text(drawn(record()))
    print(f"{PICTURE.name} is written")
