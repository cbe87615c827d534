"""How the session is put together, as far as that shows without starting it."""

from __future__ import annotations

import pytest

from spark_jobs.runtime import session


@pytest.mark.parametrize(
    ("variable", "told", "ours"),
    [
        ("JAVA_TOOL_OPTIONS", "", True),
        ("JAVA_TOOL_OPTIONS", "-Xss4m -XX:+UseStringDeduplication", True),
        ("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC", False),
        ("JDK_JAVA_OPTIONS", "-Xss4m -XX:+UseSerialGC", False),
        ("_JAVA_OPTIONS", "-XX:+UseZGC", False),
        ("SPARK_SUBMIT_OPTS", "-XX:+UseShenandoahGC", False),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.driver.defaultJavaOptions=-XX:+UseG1GC pyspark-shell", False),
    ],
)
def test_who_chooses_a_garbage_collector_gets_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, told: str, *, ours: bool
) -> None:
    """Java does not start with two of them."""
    for name in (*session._TOLD_TO_JAVA, "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, told)

    options = session._own_conf({}, s3=False).get("spark.driver.extraJavaOptions")

    assert options is not None
    assert ("-XX:+UseParallelGC" in options) is ours
