"""A browser and object stores for the tests of what operators use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.process import chromium
from tests.support.stores.fixtures import any_store, build_before_tests, careless, moto, versity  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_finish(session: pytest.Session) -> None:
    """See the function."""
    build_before_tests(session)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Chromium]:
    """One Chromium for all tests."""
    if chromium.executable() is None:
        pytest.skip("there is no Chromium here (Debian, Ubuntu: apt-get install chromium)")
    with chromium.Chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
