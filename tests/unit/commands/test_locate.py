"""`locate` finds the file that holds a record, and the commit that landed it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingestor.commands.locate import Location, locate
from ingestor.errors import ConfigError
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import TopicPartition
from tests.support.rawtables import TP, TableMaker, records

OTHER = TopicPartition("orders", 1)


@pytest.fixture
def maker(tmp_path: Path) -> TableMaker:
    """Return the maker of a new table."""
    return TableMaker(tmp_path / "raw")


def find(maker: TableMaker, offset: int, tp: TopicPartition = TP) -> Location:
    """Locate a record that is there."""
    found = locate(maker.uri, {}, maker.app_ids, tp, offset)
    assert found is not None
    return found


def test_a_record_is_where_it_landed(maker: TableMaker) -> None:
    """File, version, time and commit id are those of the commit."""
    maker.flush(records(0, 1))
    file = maker.flush([*records(2, 3), *records(2, tp=OTHER)], commit_id="c0ffee")
    found = find(maker, 3)
    assert (found.file, found.table_version, found.moved) == (file.path, 2, False)
    assert found.landed is not None
    assert (found.landed.version, found.landed.commit_id) == (2, "c0ffee")
    assert found.landed.time is not None
    assert datetime.now(UTC) - found.landed.time < timedelta(minutes=1)
    assert find(maker, 2, OTHER).file == file.path


def test_a_record_that_is_not_there_has_no_location(maker: TableMaker) -> None:
    """Neither offsets within a file's range nor partitions that the table never saw."""
    maker.flush(records(0, 2))
    for tp, offset in ((TP, 1), (TP, 3), (OTHER, 0), (TopicPartition("payments", 0), 0)):
        assert locate(maker.uri, {}, maker.app_ids, tp, offset) is None


def test_only_files_that_may_hold_a_record_are_opened(maker: TableMaker) -> None:
    """Statistics rule the others out, so that a broken one elsewhere does not matter."""
    broken = maker.flush(records(0, 1))
    maker.flush(records(2, 3))
    (maker.path / broken.path).write_bytes(b"")
    assert find(maker, 3).landed is not None


def test_a_file_without_statistics_is_looked_into(maker: TableMaker) -> None:
    """Statistics may be missing; a record is found without them."""
    maker.commit([maker.file(records(0, 1), minValues={}, maxValues={})], {TP: 1})
    assert find(maker, 1).table_version == 1


def test_a_record_that_optimize_moved_names_both_entries(maker: TableMaker) -> None:
    """The file is the new one, the commit the one that landed the record."""
    for offset in range(4):
        maker.flush(records(offset))
    DeltaTable(maker.uri).optimize.compact()
    maker.flush(records(4))
    found = find(maker, 2)
    assert found.moved
    assert found.landed is not None
    assert found.file_added is not None
    assert (found.landed.version, found.file_added.version) == (3, 5)
    assert (found.file_added.operation, found.file_added.commit_id) == ("OPTIMIZE", None)


def test_a_record_of_the_first_commit_is_found_after_optimize(maker: TableMaker) -> None:
    """The log's beginning ends the search as a lower txn would."""
    maker.flush(records(0))
    maker.flush(records(1))
    DeltaTable(maker.uri).optimize.compact()
    landed = find(maker, 0).landed
    assert landed is not None
    assert landed.version == 1


def test_after_log_cleanup_the_commit_is_not_known(maker: TableMaker) -> None:
    """The file is found all the same, and the answer says that the log no longer tells."""
    file = maker.flush(records(0))
    maker.flush(records(1))
    maker.table.checkpoint()
    maker.clean_log(before=2)
    found = find(maker, 0)
    assert (found.file, found.file_added, found.landed) == (file.path, None, None)
    assert "landed: not known: the log was cleaned up" in list(found.lines())


def test_after_cleanup_and_optimize_the_commit_is_known_where_the_log_still_tells(
    maker: TableMaker,
) -> None:
    """The checkpoint's txn tells which records the entries that are left have landed."""
    maker.flush(records(0))
    maker.flush(records(1))
    maker.table.checkpoint()
    maker.flush(records(2))
    DeltaTable(maker.uri).optimize.compact()
    maker.clean_log(before=3)
    assert find(maker, 1).landed is None
    landed = find(maker, 2).landed
    assert landed is not None
    assert landed.version == 3


def test_a_txn_set_by_a_person_landed_nothing(maker: TableMaker) -> None:
    """An entry without rows is never the one that landed a record."""
    maker.flush(records(0, 1))
    maker.commit([], {TP: 5}, kind="set")
    maker.flush(records(6))
    DeltaTable(maker.uri).optimize.compact()
    landed = find(maker, 1).landed
    assert landed is not None
    assert landed.version == 1


def test_a_record_that_is_there_twice_names_the_other_file(maker: TableMaker) -> None:
    """There should be none; if there is, people learn where to look."""
    files = sorted(maker.flush(records(0, 1), {TP: 1}).path for _ in range(2))
    found = find(maker, 1)
    assert [found.file, *found.elsewhere] == files
    assert list(found.lines())[-1] == f"again:  {files[1]} — run `ingestor audit`"


def test_a_location_reads_well_and_is_json(maker: TableMaker) -> None:
    """People get three lines, programs an object."""
    file = maker.flush(records(7), commit_id="abc")
    found = find(maker, 7)
    landed = found.to_json()["landed"]
    assert list(found.lines())[:2] == [
        "orders:0 offset 7 is in table version 1",
        f"file:   {file.path}",
    ]
    assert list(found.lines())[2].startswith("landed: version 1, 2")
    assert list(found.lines())[2].endswith("(WRITE, commit abc)")
    assert (landed["version"], landed["commit_id"]) == (1, "abc")
    assert datetime.fromisoformat(landed["time"]).tzinfo is not None


def test_no_table_at_all_is_a_configuration_error(tmp_path: Path) -> None:
    """A look-up never creates a table."""
    with pytest.raises(ConfigError, match="there is no table"):
        locate(str(tmp_path / "none"), {}, AppIds(DEFAULT_TEMPLATE, "shop"), TP, 0)
    assert not (tmp_path / "none").exists()
