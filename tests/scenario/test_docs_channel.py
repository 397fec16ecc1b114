"""The page about a new channel: its edits are made in a copy of the package, and its commands typed there."""

import shutil
from pathlib import Path

import pytest

from tests.support import docs_pages
from tests.support.docs_shell import follow
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "how-to" / "add-a-channel.md"


@pytest.mark.req("P-1324")
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for block in docs_pages.blocks(PAGE):
        if block.kind == "diff":
            edit(copy, block)
    folder = tmp_path / "reader"
    folder.mkdir()
    follow(PAGE, folder, env={"PYTHONPATH": str(copy / "src")})


def edit(root: Path, block: docs_pages.Block) -> None:
    """Replace the one line after `-` by those after `+`, in the file that the first line names."""
    head, *lines = block.text.splitlines()
    file = root / head.removeprefix("--- ")
    (old,) = (line[1:] for line in lines if line.startswith("-"))
    new = "\n".join(line[1:] for line in lines if line.startswith("+"))
    text = file.read_text()
    assert text.count(f"{old}\n") == 1, f"{head}: {old}"
    file.write_text(text.replace(f"{old}\n", f"{new}\n"))
