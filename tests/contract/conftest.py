"""The object stores that tables of the contract suite lie in."""

import pytest

from tests.support.stores.fixtures import build_before_tests, moto, versity  # noqa: F401 - fixtures


def pytest_collection_finish(session: pytest.Session) -> None:
    """See the function."""
    build_before_tests(session)
