"""What Carillon is built from: `sbom` writes the lock files as CycloneDX, `audit` checks the pins in them."""

import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from carillon.version import __version__

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"carillon": ROOT / "requirements.lock", "carillon-dev": ROOT / "requirements-dev.lock"}
UV = ROOT / ".venv" / "bin" / "uv"
YOUNG = timedelta(days=3)
"""A release that somebody smuggled in is mostly found within days."""
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?"
)
_HASH = re.compile(r"\s*--hash=sha256:(?P<digest>[0-9a-f]{64})\s*\\?")
_NEEDED = re.compile(r"[A-Za-z0-9._-]+")
_YANKED = re.compile(r"`(?P<pin>[^`]+)` is yanked|(?P<other>\S+==\S+) is yanked", re.IGNORECASE)
_PUBLISHED = re.compile(
    r"`(?P<name>[^`]+)` was filtered by `exclude-newer`.*?published at (?P<moment>\S+?)\.(?:\s|$)", re.DOTALL
)


class Pin(NamedTuple):
    """One line of a lock file."""

    name: str
    version: str
    marker: str
    digests: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{normal(self.name)}@{self.version}"


def normal(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> list[Pin]:
    """Every pin; ValueError for a line that is no pin with a version and hashes."""
    found: list[Pin] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        digest = _HASH.fullmatch(line)
        if digest is not None and found:
            found[-1] = found[-1]._replace(digests=(*found[-1].digests, digest["digest"]))
            continue
        pin = _PIN.fullmatch(line)
        if pin is None:
            raise ValueError(f"line {number} is neither a pin with == nor a sha256 hash: {line.strip()[:80]}")
        found.append(Pin(pin["name"], pin["version"], (pin["marker"] or "").strip(), ()))
    return found


def wrong(locks: dict[str, list[Pin]]) -> Iterator[str]:
    """What is wrong with the pins, by looking at the files alone."""
    for lock, pins in locks.items():
        for pin in pins:
            if not pin.digests:
                yield f"{lock}: {pin.name}=={pin.version} has no hash"
        twice = {(pin.name, pin.marker) for pin in pins if sum(pin[0::2] == other[0::2] for other in pins) > 1}
        yield from (f"{lock}: {name} is pinned twice" for name, _ in sorted(twice))
    known = {(pin.name, pin.marker): pin.version for pin in locks.get("carillon", ())}
    for pin in locks.get("carillon-dev", ()):
        version = known.get((pin.name, pin.marker), pin.version)
        if version != pin.version:
            yield f"{pin.name} is {version} where Carillon runs and {pin.version} where it is tested"


def sbom(root: str, pins: Sequence[Pin], version: str) -> dict[str, Any]:
    """A CycloneDX document; the same lock file always makes the same document."""
    ours = f"pkg:pypi/carillon@{version}"
    refs = {normal(pin.name): pin.purl for pin in pins}
    content = json.dumps([ours, root, *map(list, pins)])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": root,
                "version": version,
                "purl": ours,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [_component(pin) for pin in pins],
        "dependencies": [
            {"ref": ours, "dependsOn": sorted({refs[name] for name in direct() if name in refs})},
            *({"ref": pin.purl, "dependsOn": sorted(_needs(pin, refs))} for pin in pins),
        ],
    }


def _component(pin: Pin) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        # One release has several files: CycloneDX has no place for the hashes of each.
        "properties": [{"name": "lock:sha256", "value": digest} for digest in pin.digests],
    }
    if pin.marker:
        component["properties"].insert(0, {"name": "lock:marker", "value": pin.marker})
        component["scope"] = "optional"
    try:
        expression = distribution(pin.name).metadata["License-Expression"]
    except PackageNotFoundError:
        expression = None
    return component | ({"licenses": [{"expression": expression}]} if expression else {})


def _needs(pin: Pin, refs: dict[str, str]) -> set[str]:
    """What an installed package asks for and the lock file has."""
    try:
        asked = distribution(pin.name).requires or []
    except PackageNotFoundError:
        return set()
    names = {normal(found[0]) for line in asked if "extra ==" not in line and (found := _NEEDED.match(line))}
    return {refs[name] for name in names if name in refs}


def direct() -> set[str]:
    """What Carillon itself asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for each in project["optional-dependencies"].values() for line in each)]
    return {normal(found[0]) for line in lines if (found := _NEEDED.match(line))}


def yanked(said: str) -> list[str]:
    """The pins that the registry's client calls yanked."""
    return sorted({found["pin"] or found["other"] for found in _YANKED.finditer(said)})


def unaudited(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Of pip-audit's report: known vulnerabilities, and packages without advisory data."""
    known = [
        f"{one['name']} {one['version']}: {', '.join(each['id'] for each in one['vulns'])}"
        for one in report["dependencies"]
        if one.get("vulns")
    ]
    return known, [one["name"] for one in report["dependencies"] if "skip_reason" in one]


def advisories(report: dict[str, Any]) -> str:
    """One line about pip-audit's report: how many are vulnerable, of how many that were checked."""
    known, skipped = unaudited(report)
    checked = len(report["dependencies"]) - len(skipped)
    said = f"advisories: {len(known)} of {checked} packages have known vulnerabilities"
    if not skipped:
        return said
    missing = f"{len(skipped)} packages are NOT CHECKED, there is no advisory data here"
    return f"{said}; {missing}" if checked else f"advisories: {missing}"


def _client(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([UV, *words], capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603 - our own uv


def _ask_registry(lock: Path) -> tuple[list[str], str]:
    """Yanked pins, and what is known about ages; raises OSError where the registry does not answer."""
    resolve = ("pip", "install", "--dry-run", "--reinstall", "--no-deps", "--require-hashes", "-r", str(lock))
    said = _client(*resolve)
    if said.returncode:
        raise OSError(said.stderr.strip().splitlines()[-1] if said.stderr.strip() else "no answer")
    limit = (datetime.now(UTC) - YOUNG).strftime("%Y-%m-%dT%H:%M:%SZ")
    young: list[str] = []
    passed: list[str] = []
    while (asked := _client(*resolve, "--exclude-newer", limit, *passed)).returncode:
        found = _PUBLISHED.search(asked.stderr)
        if found is None or any(each.startswith(f"{found['name']} ") for each in young):
            return yanked(said.stderr), ages(young, (asked.stderr.strip().splitlines() or ["no answer"])[-1][:200])
        young.append(f"{found['name']} of {found['moment']}")
        passed += ["--exclude-newer-package", f"{found['name']}=2999-01-01T00:00:00Z"]
    return yanked(said.stderr), ages(young)


def ages(young: Sequence[str], unknown: str = "") -> str:
    """What is known about the ages of pins; `unknown` says why not all of them are."""
    if unknown:
        return f"ages are NOT CHECKED, the registry's client says: {unknown}"
    return f"{len(young)} younger than {YOUNG.days} days{': ' if young else ''}{', '.join(young)}"


def _audit(locks: dict[str, list[Pin]]) -> int:
    bad = list(wrong(locks))
    print(f"pins: {sum(map(len, locks.values()))} in {len(locks)} lock files, {len(bad)} wrong")
    for lock, path in LOCKS.items():
        try:
            gone, aged = _ask_registry(path)
        except OSError as error:
            print(f"{lock}: yanked versions and ages are NOT CHECKED, the registry does not answer: {error}")
            continue
        print(f"{lock}: {len(gone)} yanked, {aged}")
        bad += [f"{lock}: {pin} is yanked" for pin in gone]
    bad += _advisories(LOCKS["carillon-dev"])
    for each in bad:
        print(f"  {each}")
    return 1 if bad else 0


def _advisories(lock: Path) -> list[str]:
    words = ("tool", "run", "pip-audit", "-r", str(lock), "--disable-pip", "--require-hashes", "-f", "json")
    said = _client(*words, "--progress-spinner", "off")
    try:
        report = json.loads(said.stdout)
        known, _ = unaudited(report)
        print(advisories(report))
    except (ValueError, KeyError):
        print(
            "advisories: NOT CHECKED, pip-audit could not ask: " + (said.stderr.strip().splitlines() or ["?"])[-1][:200]
        )
        return []
    return known


def main() -> int:
    locks = {name: read_lock(path.read_text()) for name, path in LOCKS.items()}
    if sys.argv[1:] == ["audit"]:
        return _audit(locks)
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    for name, pins in locks.items():
        path = folder / f"{name}.cdx.json"
        path.write_text(json.dumps(sbom(name, pins, __version__), indent=2) + "\n")
        print(f"{path.relative_to(ROOT)}: {len(pins)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
