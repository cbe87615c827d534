"""Fixtures of the integration tests."""

from tests.support.store_fixtures import careless, moto  # noqa: F401 - fixtures
