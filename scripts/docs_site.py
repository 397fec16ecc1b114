"""What mkdocs asks for: the console's tokens among the site's files, and links that leave docs/.

A link outside leads to the repository where its address is known (`REPOSITORY_URL`), and becomes plain text elsewhere.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

_LINK = re.compile(r"(?<!!)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")
CONSOLE = Path(__file__).resolve().parent.parent / "src" / "carillon" / "upkeep" / "console" / "static"
SHARED = ("tokens.css", "icon.svg")
"""Files of the console that the site has too: one look has one home."""
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:  # noqa: ANN401 - as mkdocs calls its hooks
    """Take the repository's address from the environment, as the package does."""
    config.repo_url = config.repo_url or os.environ.get("REPOSITORY_URL")
    return config


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 - as mkdocs calls its hooks
    """Add what the site shares with the console."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only those who build the site have it

    for name in SHARED:
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(CONSOLE / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401, ARG001 - as mkdocs calls its hooks
    """A page names files of the repository; the site does not have them."""
    parts = _FENCE.split(markdown)
    # What is fenced is code: a link in it is somebody's example.
    kept = [part if part.startswith("```") else rewritten(part, page.file.src_uri, config.repo_url) for part in parts]
    return "".join(kept)


def rewritten(text: str, page: str, repository: str | None) -> str:
    """The same text, its links outside the documentation changed."""

    def changed(found: re.Match[str]) -> str:
        outside = beyond(page, found["target"])
        if outside is None:
            return found[0]
        return found["label"] if not repository else f"[{found['label']}]({repository.rstrip('/')}/blob/main/{outside})"

    return _LINK.sub(changed, text)


def beyond(page: str, target: str) -> str | None:
    """Where a link of a page leads outside docs/, from the repository's root; None for any other link."""
    if target.startswith(("http://", "https://", "mailto:", "#")):
        return None
    steps: list[str] = []
    for step in (Path("docs") / PurePosixPath(page).parent / target.partition("#")[0]).parts:
        if step == ".." and steps:
            steps.pop()
        else:
            steps.append(step)
    return None if steps[0] == "docs" else "/".join(steps)
