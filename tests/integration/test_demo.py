"""`ingestor demo`: what newcomers see first, with Spark and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingestor.commands.demo_spark import SparkHalf
from ingestor.errors import IngestorError
from tests.support.process.command import ingestor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.mark.faults
def test_the_demo_needs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    """It gets by without Java and without PATH, ends with the audit's verdict, and cleans up behind itself."""
    empty, temporary = tmp_path / "empty", tmp_path / "temporary"
    empty.mkdir()
    temporary.mkdir()
    environ = {"PATH": str(empty), "JAVA_HOME": str(empty), "TMPDIR": str(temporary)}

    ended = ingestor("demo", environ=environ, seconds_max=90)

    assert ended.code == 0, ended.stderr
    assert ended.stdout.count("killed the ingestor hard (SIGKILL)") == 2
    assert "audit: OK — 100,000 rows, 4 partitions" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert list(temporary.iterdir()) == []


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_demo_goes_on_with_spark_where_it_can(tmp_path: Path) -> None:
    """What was parsed, quarantined and compacted stands in two small tables; nothing of it stays."""
    ended = ingestor("demo", environ={"TMPDIR": str(tmp_path)}, seconds_max=240)

    assert ended.code == 0, ended.stderr
    words = [line.split() for line in ended.stdout.splitlines()]
    shown = words[words.index(["raw", "silver", "quarantine", "duplicates", "tombstones"]) + 1]
    assert shown == ["100,000", "99,900", "100", "0", "0"]
    raw, silver = words[words.index(["table", "files", "before", "after"]) + 1 :]
    assert (raw[0], raw[2], silver[0], silver[2]) == ("user-events", "1", "user-events-silver", "1")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_ends_early_leaves_no_spark_behind(tmp_path: Path) -> None:
    """Its process ends with it, wherever it is in starting."""
    told: list[str] = []
    with SparkHalf(tmp_path / "nowhere.yaml", told.append) as half:
        assert half.process is not None
        assert half.process.poll() is None
    assert half.process.poll() is not None
    assert len(told) == 1
    assert told[0].startswith("starting Spark")


def test_a_spark_that_ended_before_it_was_needed_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its exit code, and its last line stands above."""
    with SparkHalf(tmp_path / "nowhere.yaml", lambda _line: None) as half:
        assert half.process is not None
        half.process.wait(60)
        with pytest.raises(IngestorError, match="ended with exit code 2") as raised:
            half.show(1)
    assert "its last line above" in str(raised.value)
    assert "nowhere.yaml" in capfd.readouterr().err
