"""The syntax trees that the house rules share."""

from collections.abc import Iterator

import pytest

from tests.support import sources


@pytest.fixture(scope="package", autouse=True)
def trees() -> Iterator[None]:
    """Forget the trees after the last rule: a million nodes slow down every garbage collection after them."""
    yield
    for known in (sources.package_modules, sources.modules_of_tests, sources.tree_of, sources.text_of):
        known.cache_clear()
