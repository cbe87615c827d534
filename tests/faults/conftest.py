"""The object stores of the fault tests."""

import pytest

from tests.support.stores.fixtures import (  # noqa: F401 - fixtures
    any_store,
    bucket,
    build_before_tests,
    careless,
    moto,
    proxy,
    store,
    versity,
)


def pytest_collection_finish(session: pytest.Session) -> None:
    """See the function."""
    build_before_tests(session)
