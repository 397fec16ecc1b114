"""Folders of templates, and the commands that read and write them beside a ledger of their own."""

from pathlib import Path

from tests.support.process import run_carillon


def lay(folder: Path, files: dict[str, str]) -> None:
    """Write files by their paths in a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def carillon(folder: Path, *arguments: str, exit_code: int = 0) -> str:
    """What `carillon templates` says; errors too where it shall fail."""
    given = {"DATABASE_URL": f"sqlite:///{folder}/carillon.db", "PATH": "/usr/bin:/bin"}
    done = run_carillon(["templates", *arguments], cwd=folder, env=given, timeout=60)
    assert done.returncode == exit_code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr + done.stdout if exit_code else done.stdout
