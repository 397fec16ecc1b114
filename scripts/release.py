"""Releases: `check` says what keeps this checkout from being one, `cut VERSION` begins one (docs/how-to/release.md)."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path

from carillon.version import __version__

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "## [Unreleased]"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<day>\S+))?$", re.MULTILINE)
PLACES = {
    "src/carillon/version.py": r'(?<=__version__ = ")[^"]+',
    "deploy/helm/carillon/Chart.yaml": r'(?<=^version: )\S+|(?<=^appVersion: ")[^"]+',
    "deploy/kubernetes/doors.yaml": r"(?<=image: carillon:)\S+",
    "deploy/kubernetes/outbound.yaml": r"(?<=image: carillon:)\S+",
    "docs/how-to/upgrade.md": r"(?<=^\$ carillon version\n)\S+",
}
"""Every file that names the version, and where."""
_KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """Each version's day and text, in the order of the file."""
    found = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in found[1:]), len(changelog)]
    return {
        heading["name"]: (heading["day"], changelog[heading.end() : end].strip())
        for heading, end in zip(found, ends, strict=True)
    }


def wrong(changelog: str) -> Iterator[str]:
    """What is wrong with the form of a changelog."""
    known = sections(changelog)
    if next(iter(known), None) != "Unreleased":
        yield f"the first section is not {UNRELEASED}"
    released = [name for name in known if name != "Unreleased"]
    for name in released:
        day, text = known[name]
        if not _VERSION.fullmatch(name):
            yield f"{name} is no version: write three numbers, such as 1.2.0"
        elif day is None or not _is_day(day):
            yield f"{name} has no day: write ## [{name}] - 2030-01-31"
        if not text:
            yield f"{name} says nothing"
    numbers = [_numbers(name) for name in released if _VERSION.fullmatch(name)]
    if any(one <= two for one, two in pairwise(numbers)):
        yield "the newest version stands first"
    for name, (_, text) in known.items():
        kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
        strange = [kind for kind in kinds if kind not in _KINDS]
        if strange or len(kinds) != len(set(kinds)):
            yield f"{name} has the headings {', '.join(kinds)}: each at most once, of {', '.join(_KINDS)}"


def cut(changelog: str, version: str, day: date) -> str:
    """The changelog in which everything unreleased belongs to a version; ValueError where that cannot be."""
    known = sections(changelog)
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version} is no version: give three numbers, such as 0.2.0")
    if version in known:
        raise ValueError(f"{version} is in the changelog already")
    released = [_numbers(name) for name in known if _VERSION.fullmatch(name)]
    if released and _numbers(version) <= max(released):
        raise ValueError(f"{version} is older than {'.'.join(map(str, max(released)))}")
    if not known.get("Unreleased", (None, ""))[1]:
        raise ValueError("nothing is unreleased: the changelog has no line for this version")
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day.isoformat()}", 1)


def name_everywhere(root: Path, version: str) -> list[str]:
    """Write the version into every place that names it; the files that changed."""
    changed = []
    for name, pattern in PLACES.items():
        file = root / name
        before = file.read_text()
        after = re.sub(pattern, version, before, flags=re.MULTILINE)
        if after != before:
            file.write_text(after)
            changed.append(name)
    return changed


def others(root: Path, version: str) -> Iterator[str]:
    """The files that name another version, or none."""
    for name, pattern in PLACES.items():
        found = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
        if not found or set(found) != {version}:
            yield f"{name} names {', '.join(sorted(set(found))) or 'no version'} and not {version}"


def obstacles(root: Path, version: str) -> Iterator[str]:
    """What keeps the present checkout from being released under its version."""
    changelog = (root / "CHANGELOG.md").read_text()
    yield from wrong(changelog)
    known = sections(changelog)
    if version not in known:
        yield f"CHANGELOG.md has no section for {version}: make release VERSION={version}"
    elif known["Unreleased"][1]:
        yield "CHANGELOG.md has unreleased lines: they belong to a version, or to a branch"
    yield from others(root, version)
    changed = _git(root, "status", "--porcelain")
    if changed is None:
        yield "this is no git checkout: a release is a commit with a tag"
        return
    if changed:
        yield f"{len(changed.splitlines())} files are not committed"
    if f"v{version}" in (_git(root, "tag") or "").split():
        yield f"v{version} is a tag already"


def main(arguments: list[str]) -> int:
    """Exit code 0, or 1 with a line for each obstacle."""
    if arguments[:1] == ["cut"] and len(arguments) == 2:  # noqa: PLR2004 - the word and the version
        file, version = ROOT / "CHANGELOG.md", arguments[1]
        try:
            file.write_text(cut(file.read_text(), version, datetime.now(UTC).date()))
        except ValueError as error:
            print(error)
            return 1
        named = ", ".join(["CHANGELOG.md", *name_everywhere(ROOT, version)])
        print(f"These say {version} now: {named}. Look at them, then commit")
        return 0
    if arguments != ["check"]:
        print("usage: python -m scripts.release check | cut VERSION")
        return 2
    found = list(obstacles(ROOT, __version__))
    print("\n".join(found) or f"{__version__} can be released")
    return 1 if found else 0


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _git(root: Path, *words: str) -> str | None:
    """What git says; None where there is no repository or no git."""
    command = ["git", *words]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)  # noqa: S603 - words of ours
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
