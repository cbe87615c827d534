"""Object stores as fixtures: started once for all tests, skipped with the reason where one can't run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.stores import versitygw
from tests.support.stores.faultproxy import FaultProxy
from tests.support.stores.stores import CarelessStore, MotoStore, Store, VersityStore

if TYPE_CHECKING:
    from collections.abc import Iterator


def build_before_tests(session: pytest.Session) -> None:
    """Build versitygw before the first test: it takes longer than a test may, and people see it."""
    wanted = any(_needs_versity(item) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    announce = terminal.write_line if terminal else print
    try:
        versitygw.build(announce)
    except versitygw.StoreUnavailableError as error:
        announce(f"tests on versitygw are skipped: {error}")


def _needs_versity(item: pytest.Item) -> bool:
    named = {"versity", "store", "any_store"} & set(getattr(item, "fixturenames", ()))
    return bool(named) or "versity" in getattr(getattr(item, "callspec", None), "params", {}).values()


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoStore]:
    """One moto for all tests; who stops or pauses it leaves it running again."""
    with MotoStore() as store:
        yield store


@pytest.fixture(scope="session")
def careless() -> Iterator[CarelessStore]:
    """A store without conditional PUT."""
    with CarelessStore() as store:
        yield store


@pytest.fixture(scope="session")
def versity() -> Iterator[VersityStore]:
    """One versitygw for all tests; who stops or pauses it leaves it running again."""
    try:
        store = VersityStore()
    except versitygw.StoreUnavailableError as error:
        pytest.skip(str(error))
    with store:
        yield store


@pytest.fixture(scope="session", params=["moto", "versity"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each of the stores that may be committed to."""
    found: Store = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def any_store(request: pytest.FixtureRequest) -> Store:
    """One store where one is enough: the honest one, if it is there."""
    found: Store = request.getfixturevalue("versity" if versitygw.executable().exists() else "moto")
    return found


@pytest.fixture
def bucket(store: Store) -> str:
    """A bucket that no other test knows."""
    return store.make_bucket()


@pytest.fixture
def proxy(store: Store) -> Iterator[FaultProxy]:
    """A proxy before the store."""
    with FaultProxy(store.port) as proxying:
        yield proxying
