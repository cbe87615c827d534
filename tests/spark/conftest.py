"""One Spark for all tests of this folder: it takes longer to start than most of them to run."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from ingestor.commands.demo_spark import QUICK_JAVA
from spark_jobs.runtime import session
from tests.support.silver import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever needs the session is a Spark test, and may wait for it to start."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(400))
            # pyspark leaves it to the garbage collector to close the sockets by which it fetched rows.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=True)
def _collect_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let pyspark's sockets close in the test that opened them: elsewhere their warnings are errors."""
    yield
    if "spark" in request.fixturenames:
        gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as the jobs build it; its many jobs are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        started = session.start({"spark.sql.streaming.metricsEnabled": "false"}, s3=False)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A route with an empty raw table."""
    return Lake(tmp_path)
