"""Fixtures of the integration tests."""

from tests.support.stores.fixtures import careless, moto  # noqa: F401 - fixtures
