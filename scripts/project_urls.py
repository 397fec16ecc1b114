"""The addresses that a built package names: the repository knows none of its own, so the one who builds gives it.

`REPOSITORY_URL=https://git.example.org/carillon make dist` writes them into the package; without it there are none.
"""

import os

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "REPOSITORY_URL"
_PLACES = {
    "Source": "",
    "Documentation": "/blob/main/docs/README.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
    "Security": "/blob/main/SECURITY.md",
}


def urls(repository: str) -> dict[str, str]:
    """The links of a package whose repository is there; none without an address."""
    base = repository.strip().rstrip("/")
    return {name: f"{base}{path}" for name, path in _PLACES.items()} if base else {}


class ProjectUrls(MetadataHookInterface):
    """What hatchling calls when it reads `dynamic = ["urls"]`."""

    def update(self, metadata: dict[str, object]) -> None:
        """Fill in `project.urls`."""
        metadata["urls"] = urls(os.environ.get(VARIABLE, ""))
