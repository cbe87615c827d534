"""What a checkpoint knows of its tables: hands that remove, swap or move one are noticed, again and again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingestor.commands import repair
from ingestor.errors import ConfigError, RefusedError
from spark_jobs.compact import compact
from spark_jobs.parse import parse
from spark_jobs.reparse import reparse
from spark_jobs.rows.balance import Balance
from spark_jobs.steps.reset import reset
from tests.support.rawtables import Record
from tests.support.silver import Lake, account, event

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A route with an empty raw table, and of JSON alone, which Spark plans sooner."""
    return Lake(tmp_path, parse={"formats": ["json"]})


def refused(spark: SparkSession, route: Route, told: str) -> None:
    """See a route refused with exit code 2, twice, and nothing made."""
    folder = route.settings.table.rpartition("/")[0]
    before = sorted(path.name for path in Path(folder).iterdir())
    for job in (parse, reparse):
        with pytest.raises(ConfigError, match=told) as error:
            job(spark, route)
        assert error.value.exit_code == 2
        assert "spark_jobs reset" in error.value.hint
    assert sorted(path.name for path in Path(folder).iterdir()) == before


def test_a_table_that_is_gone_or_another_one_is_refused(spark: SparkSession, lake: Lake) -> None:
    """Made anew it would stay without the rows that were parsed already, and the balance would be even."""
    rows = (event(), b"nope")
    lake.land(*rows)
    route = lake.route()
    parse(spark, route)
    lake.land(event("u2"))
    for name in ("silver", "quarantine"):
        table, aside = lake.folder / f"raw-{name}", lake.folder / "aside"
        table.rename(aside)
        refused(spark, route, rf"{name} table .*raw-{name} is gone")
        other = Lake(lake.folder / f"other-{name}", parse=lake.parse)
        other.land(*rows)
        parse(spark, other.route())
        shutil.copytree(other.folder / f"raw-{name}", table)
        refused(spark, route, rf"{name} table .*raw-{name} is another one")
        shutil.rmtree(table)
        shutil.rmtree(other.folder)
        refused(spark, lake.route(**{"table" if name == "silver" else name: "elsewhere"}), "elsewhere is gone")
        aside.rename(table)
    assert parse(spark, lake.route()) == Balance(raw=1, silver=1)
    shutil.rmtree(lake.folder / "raw-silver")
    reset(spark, route, empty=False)
    assert parse(spark, route) == Balance(raw=3, silver=2, duplicates=1)
    account(lake)


def test_a_raw_table_that_was_made_again_is_refused(spark: SparkSession, lake: Lake) -> None:
    """Its offsets begin at 0 once more, and would be taken for rows that are there."""
    lake.land(event("u1"), event("u2"))
    parse(spark, lake.route())
    shutil.rmtree(lake.folder / "raw")
    again = Lake(lake.folder)
    again.maker.flush([Record(0, event("new"))])
    refused(spark, lake.route(), "raw table .* is another one than before")
    with pytest.raises(ConfigError, match="is another one than the rows of silver came from"):
        reset(spark, lake.route(), empty=False)
    reset(spark, lake.route(), empty=True)
    assert parse(spark, lake.route()) == Balance(raw=1, silver=1)
    assert lake.silver("user_id") == ["new"]


def test_a_checkpoint_that_a_full_disk_has_torn_is_refused(spark: SparkSession, lake: Lake) -> None:
    lake.land(event())
    route = lake.route()
    parse(spark, route)
    (claim,) = (lake.folder / "raw-checkpoint/_spark_jobs/steps").glob("*.json")
    text = claim.read_text()
    for torn, told in (("", "is empty"), (text[: len(text) // 2], "is damaged")):
        claim.write_text(torn)
        refused(spark, route, rf"{claim.name} {told}")
    reset(spark, route, empty=False)
    assert parse(spark, route) == Balance(raw=1, duplicates=1)


@pytest.mark.parametrize("parsed_before", [True, False])
def test_a_raw_table_whose_newest_entry_is_torn_is_not_read_nor_built_on(
    spark: SparkSession, lake: Lake, *, parsed_before: bool
) -> None:
    """Else the rows that land at that version after `ingestor repair` would never reach silver."""
    lake.land(event("u1"))
    if parsed_before:
        parse(spark, lake.route())
    lake.land(event("u2"))
    raw = lake.folder / "raw"
    newest = raw / "_delta_log" / f"{2:020d}.json"
    newest.write_bytes(b"".join(newest.read_bytes().splitlines(keepends=True)[:-1]))
    for _ in range(2):
        for job in (lambda: parse(spark, lake.route()), lambda: compact(spark, str(raw))):
            with pytest.raises(RefusedError, match="is damaged") as refusal:
                job()
            assert "`ingestor repair CONFIG`" in refusal.value.hint
    torn = repair.find(raw)
    assert torn is not None
    torn.set_aside()
    again = Lake(lake.folder, parse=lake.parse, next_offset=1)
    again.land(event("u2"))
    assert parse(spark, again.route()) == Balance(raw=2 - parsed_before, silver=2 - parsed_before)
    assert again.silver("user_id") == ["u1", "u2"]


def as_spark_kept_it(lake: Lake, offset: str) -> None:
    """Make a checkpoint what an earlier version would have left after its first batch."""
    folder = lake.folder / "raw-checkpoint"
    (claim,) = (folder / "_spark_jobs/steps").glob("*.json")
    identity = json.loads(claim.read_text())["app_id"]
    shutil.rmtree(folder)
    for name, text in (("_spark_jobs/identity", identity), ("offsets/0", offset), ("commits/0", 'v1\n{"x":0}')):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def note(version: int, *, first: bool = False) -> str:
    """Return where a batch ends, as Delta's streaming source notes it."""
    end = {"sourceVersion": 1, "reservoirId": "r", "reservoirVersion": version, "index": -1, "isStartingVersion": first}
    return "v1\n{}\n" + json.dumps(end)


def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(spark: SparkSession, lake: Lake) -> None:
    lake.land(event("u1"))
    route = lake.route()
    parse(spark, route)
    lake.land(event("u2"))
    end = lake.table("raw").version()
    damaged: list[tuple[Callable[[Path], object], str]] = [
        (lambda folder: (folder / "offsets/0").write_text(""), "offsets/0 is empty"),
        (lambda folder: (folder / "offsets/0").write_text(note(1, first=True)), "has not ended its first parse"),
        (lambda folder: (folder / "_spark_jobs/identity").write_text(""), "identity is empty"),
        (lambda folder: (folder / "commits/0").rename(folder / "commits/gone"), "was begun by an earlier version"),
    ]
    as_spark_kept_it(lake, note(end))
    for damage, told in damaged:
        kept = lake.folder / "kept"
        shutil.copytree(lake.folder / "raw-checkpoint", kept)
        damage(lake.folder / "raw-checkpoint")
        refused(spark, route, told)
        shutil.rmtree(lake.folder / "raw-checkpoint")
        kept.rename(lake.folder / "raw-checkpoint")
    assert parse(spark, route) == Balance(raw=1, silver=1)
    lake.land(event("u3"))
    assert parse(spark, route) == Balance(raw=1, silver=1)
    assert lake.silver("user_id") == ["u1", "u2", "u3"]
