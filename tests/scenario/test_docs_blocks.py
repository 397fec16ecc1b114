"""Blocks that no test types: shell that needs a machine of yours is at least shell, and JSON is JSON."""

import json
import subprocess
import tomllib

import minijinja
import pytest

from tests.support import docs_pages

# Each kind with the suite that looks at it; a kind that nobody looks at is not printed.
LOOKED_AT = {
    "console": "typed, by test_docs and test_docs_howto",
    "toml": "loaded, by test_docs_howto",
    "python": "run, by test_docs_howto, or by the suite of its page",
    "diff": "made, by test_docs_channel",
    "sql": "executed, by the pages with PostgreSQL",
    "sh": "parsed, here",
    "json": "parsed, here",
    "http": "read by people: a request as it stands on the wire",
    "html": "read by people: tests/scenario/test_sse_browser.py runs the component",
    "js": "read by people: the same",
    "text": "read by people: another program's words",
    "mermaid": "drawn by the viewer of the page",
    "css": "how a page changes the looks of the inbox, read by a person",
    "jsx": "a wrapper for React, which this repository does not have, read by a person",
    "jinja": "compiled, here",
    "ini": "parsed, here: settings that need code of the reader's",
}
BLOCKS = [(page, block) for page in docs_pages.pages() for block in docs_pages.blocks(page)]


def of_kind(kind: str) -> list[object]:
    return [
        pytest.param(block, id=f"{docs_pages.name(page)}:{block.line}") for page, block in BLOCKS if block.kind == kind
    ]


def test_somebody_looks_at_every_kind() -> None:
    assert {block.kind for _, block in BLOCKS} <= set(LOOKED_AT)


@pytest.mark.parametrize("block", of_kind("sh"))
def test_shell_is_shell(block: docs_pages.Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", of_kind("jinja"))
def test_a_template_compiles(block: docs_pages.Block) -> None:
    minijinja.Environment().add_template("page", block.text)


@pytest.mark.parametrize("block", of_kind("ini"))
def test_settings_of_what_readers_write_themselves_are_toml(block: docs_pages.Block) -> None:
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("block", of_kind("json"))
def test_json_is_json(block: docs_pages.Block) -> None:
    assert json.loads(block.text)
