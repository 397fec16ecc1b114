"""Installs the peers into a folder of their own, next to nothing else, and tells which are there."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.peers.catalogue import CATALOGUE, Entry
from bench.peers.peer import ROOT, Peer, Peers

HERE = Path(__file__).resolve().parent
# Some want an older redis client than others.
VENVS = {"venv": HERE / "requirements.txt", "venv-lists": HERE / "requirements-lists.txt"}
MANIFEST = HERE / "package.json"
TIMEOUT_SECONDS = 600.0

Progress = Callable[[str], None]


class NotInstalled(Exception):
    """Why something is not there, in a sentence."""


def install(folder: Path = Path(".bench"), progress: Progress = print) -> Peers:
    """Bring every peer to its pinned version; a second call finds everything in place."""
    folder = (ROOT / folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # The folder hides itself from version control wherever it is put.
    (folder / ".gitignore").write_text("*\n")
    there = {name: _python(folder / name, pins, progress) for name, pins in VENVS.items()}
    there["node"] = _node(folder / "node", progress)
    found, missing = [], {}
    for entry in CATALOGUE:
        versions, reasons = there[entry.venv if entry.runtime == "python" else "node"]
        absent = [name for name in entry.packages if name not in versions or name in reasons]
        if not absent:
            found.append(_peer(entry, versions[entry.package], folder))
            continue
        missing[entry.name] = reasons.get(absent[0]) or reasons.get("*") or f"{absent[0]} was not installed"
        progress(f"{entry.name} is missing: {missing[entry.name]}")
    return Peers(tuple(found), missing)


def libraries(requirements: Path, folder: Path, progress: Progress) -> dict[str, str]:
    """Install libraries into a folder of their own, for a runner that adds it to its path; gives their versions."""
    folder = (ROOT / folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / ".gitignore").write_text("*\n")
    stamp, pins = folder / ".pins", requirements.read_text()
    if not _is_stamped(stamp, pins):
        progress(f"Installing what {requirements.name} names")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wanted = ["--target", str(folder), "-r", str(requirements)]
        _uv_or(["pip", "install", "--python", sys.executable, *wanted], [*pip, "--upgrade", *wanted])
        stamp.write_text(pins)
    return dict(line.split("==") for line in pins.splitlines() if "==" in line)


def _peer(entry: Entry, version: str, folder: Path) -> Peer:
    if entry.runtime == "python":
        command = [str(folder / entry.venv / "bin" / "python"), "-m", f"bench.peers.{entry.runner}"]
    else:
        command = [_node_binary(folder / "node"), str(folder / "node" / entry.runner)]
    return Peer(entry.name, entry.kind, version, entry.settings, entry.jobs, tuple(command), entry.posts, entry.parts)


def _python(venv: Path, requirements: Path, progress: Progress) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of what is installed, and reasons for what is not."""
    reasons: dict[str, str] = {}
    stamp, pins = venv / ".pins", requirements.read_text()
    if not _is_stamped(stamp, pins):
        progress("Installing the Python peers")
        try:
            _create_venv(venv)
            _pip(venv, "-r", str(requirements))
        except NotInstalled as whole:
            reasons = _python_one_by_one(venv, requirements, str(whole))
        if not reasons:
            stamp.write_text(pins)
    return _python_versions(venv), reasons


def _python_one_by_one(venv: Path, requirements: Path, whole: str) -> dict[str, str]:
    if not (venv / "bin" / "python").exists():
        return {"*": whole}
    pins = {re.split(r"[\[=]", line)[0]: line for line in requirements.read_text().splitlines() if "==" in line}
    reasons = {}
    for entry in CATALOGUE:
        if entry.runtime == "python" and entry.venv == venv.name:
            try:
                _pip(venv, *(pins[name] for name in entry.packages))
            except NotInstalled as reason:
                reasons[entry.package] = str(reason)
    return reasons


def _create_venv(venv: Path) -> None:
    if not (venv / "bin" / "python").exists():
        _uv_or(["venv", "--seed", "--python", sys.executable, str(venv)], [sys.executable, "-m", "venv", str(venv)])


def _pip(venv: Path, *wanted: str) -> None:
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _uv_or(["pip", "install", "--python", python, *wanted], [*pip, *wanted])


def _uv_or(arguments: list[str], otherwise: list[str]) -> None:
    """Where uv does not trust the network's certificates or cannot build, pip usually does."""
    uv = _uv()
    if uv is not None:
        try:
            _run([uv, "--quiet", *arguments])
        except NotInstalled:
            pass
        else:
            return
    _run(otherwise)


def _uv() -> str | None:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def _python_versions(venv: Path) -> dict[str, str]:
    python = venv / "bin" / "python"
    if not python.exists():
        return {}
    ask = "import json; from importlib.metadata import distributions as d; "
    ask += "print(json.dumps({each.name.lower(): each.version for each in d()}))"
    return dict(json.loads(_run([str(python), "-c", ask])))


def _node(folder: Path, progress: Progress) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of what is installed, and reasons for what is not."""
    folder.mkdir(exist_ok=True)
    for runner in HERE.glob("*.mjs"):
        # Node.js looks for packages from where a file lies.
        shutil.copyfile(runner, folder / runner.name)
    reasons: dict[str, str] = {}
    stamp, pins = folder / ".pins", MANIFEST.read_text()
    if not _is_stamped(stamp, pins):
        progress("Installing the Node.js peers")
        try:
            reasons = _npm_packages(folder)
        except NotInstalled as reason:
            return {}, {"*": str(reason)}
        if not reasons:
            stamp.write_text(pins)
    return _node_versions(folder), reasons


def _npm_packages(folder: Path) -> dict[str, str]:
    """Install everything at once or, where one package cannot be had, everything but that."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NotInstalled("Node.js and npm are not installed")
    manifest = json.loads(MANIFEST.read_text())
    reasons: dict[str, str] = {}
    try:
        _npm(folder, manifest)
    except NotInstalled:
        kept: dict[str, str] = {}
        for name, version in manifest["dependencies"].items():
            try:
                _npm(folder, {**manifest, "dependencies": {**kept, name: version}})
                kept[name] = version
            except NotInstalled as reason:
                reasons[name] = str(reason)
        _npm(folder, {**manifest, "dependencies": kept})
    return reasons


def _npm(folder: Path, manifest: dict[str, object]) -> None:
    (folder / "package.json").write_text(json.dumps(manifest, indent=2))
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    _run(command, folder)
    if _is_node_too_old():
        # The peers want a newer Node.js than this machine's, which comes as a package too.
        _run([*command, "--no-save", f"{_node_package()}@{json.loads(MANIFEST.read_text())['config']['node']}"], folder)


def _is_node_too_old() -> bool:
    wanted = json.loads(MANIFEST.read_text())["engines"]["node"].removeprefix(">=")
    have = _run(["node", "--version"]).strip().removeprefix("v")
    return [int(part) for part in have.split(".")[:2]] < [int(part) for part in wanted.split(".")[:2]]


def _node_package() -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine())
    return f"node-{sys.platform}-{machine}"


def _node_binary(folder: Path) -> str:
    own = folder / "node_modules" / _node_package() / "bin" / "node"
    return str(own) if own.exists() else "node"


def _node_versions(folder: Path) -> dict[str, str]:
    wanted = json.loads(MANIFEST.read_text())["dependencies"]
    manifests = {name: folder / "node_modules" / name / "package.json" for name in wanted}
    return {name: json.loads(path.read_text())["version"] for name, path in manifests.items() if path.exists()}


def _is_stamped(stamp: Path, pins: str) -> bool:
    return stamp.exists() and stamp.read_text() == pins


def _run(command: list[str], folder: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{Path(command[0]).name} failed: {error}") from error
    if done.returncode != 0:
        raise NotInstalled(f"{Path(command[0]).name} failed: {_reason(done.stderr or done.stdout)}")
    return done.stdout


def _reason(output: str) -> str:
    """The first line that says more than that something went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"no matching|could not|cannot|error:|because", line, re.IGNORECASE)]
    return (telling or lines or ["it said nothing"])[0][:160]
