"""What `ingestor repair` proves before it sets a torn log entry aside."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from ingestor.commands import repair
from ingestor.config.load import check
from ingestor.delta.deltalog import entry_path
from ingestor.delta.table import RawTable
from ingestor.errors import RefusedError
from ingestor.records import RawSchema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ingestor.config.settings import Settings

NEWEST = 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table with some commits of ours."""
    table = RawTable(str(tmp_path / "t"), RawSchema(), {})
    for version in range(1, NEWEST + 1):
        table.attempt((), {"a": version, "b": version}, {"commit_id": f"c{version}"})
        table.refresh()
    return tmp_path / "t"


def at_line_end(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:-1])


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _text: b"",
    "in the first line": lambda text: text[:20],
    "in the last line": lambda text: text[:-5],
    "at a line's end": at_line_end,
    "before a line's end": lambda text: at_line_end(text)[:-1],
    "zeros": lambda text: bytes(len(text)),
    "a hole": lambda text: text[:30] + bytes(len(text) - 60) + text[-30:],
}
each_cut = pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)


def tear(root: Path, version: int, cut: Callable[[bytes], bytes]) -> Path:
    path = root / entry_path(version)
    path.write_bytes(cut(path.read_bytes()))
    return path


def reopen(root: Path) -> RawTable:
    return RawTable(str(root), RawSchema(), {})


@each_cut
@pytest.mark.parametrize("version", [0, NEWEST])
def test_a_torn_newest_entry_is_refused_until_it_is_set_aside(
    tmp_path: Path, root: Path, version: int, cut: Callable[[bytes], bytes]
) -> None:
    """Then the log ends where it ended before that commit; without the first entry there is no table yet."""
    if version == 0:
        root = tmp_path / "young"
        reopen(root)
    path = tear(root, version, cut)
    torn_bytes = path.read_bytes()
    for _ in range(2):
        with pytest.raises(RefusedError, match="is damaged") as refused:
            reopen(root)
        assert "`ingestor repair CONFIG`" in refused.value.hint
    torn = repair.find(root)
    assert torn is not None
    assert torn.version == version
    aside = torn.set_aside()
    assert aside.read_bytes() == torn_bytes
    assert not path.exists()
    assert repair.find(root) is None
    table = reopen(root)
    assert table.version == max(version - 1, 0)
    table.attempt((), {"a": 7}, {"commit_id": "again"})
    table.refresh()
    assert (table.version, table.txns["a"]) == (max(version, 1), 7)
    assert DeltaTable(root).version() == table.version


def test_a_whole_log_and_no_log_need_no_repair(root: Path, tmp_path: Path) -> None:
    """Only the final line's end may be missing, as delta-rs writes it."""
    assert repair.find(root) is None
    assert repair.find(tmp_path / "nothing") is None


@each_cut
def test_an_entry_that_others_were_built_on_is_not_set_aside(root: Path, cut: Callable[[bytes], bytes]) -> None:
    """It was acknowledged, or another program has committed behind it."""
    tear(root, NEWEST - 1, cut)
    with pytest.raises(RefusedError, match="not the newest"):
        repair.find(root)


@each_cut
def test_an_entry_that_a_checkpoint_has_is_not_set_aside(root: Path, cut: Callable[[bytes], bytes]) -> None:
    """It was whole when the checkpoint was written, so no power cut tore it."""
    DeltaTable(root).create_checkpoint()
    tear(root, NEWEST, cut)
    with pytest.raises(RefusedError, match="checkpoint of version 3"):
        repair.find(root)


@pytest.mark.parametrize(("cut", "known"), [(lambda text: text[:-5], True), (lambda _text: b"", False)])
def test_it_says_who_wrote_what_is_torn(tmp_path: Path, cut: Callable[[bytes], bytes], *, known: bool) -> None:
    """Of another program's commit nobody knows whether it was reported as done; an empty entry is nobody's."""
    root = tmp_path / "theirs"
    write_deltalake(root, RawSchema().table.empty_table())
    tear(root, 0, cut)
    torn = repair.find(root)
    assert torn is not None
    assert not torn.ours
    said = " ".join(torn.lines())
    assert ("delta-rs" in said) == known
    assert ("nobody can tell who" in said) != known
    assert "run it again" in said


def test_an_entry_of_ours_was_never_acknowledged(root: Path) -> None:
    """It says so."""
    tear(root, NEWEST, at_line_end)
    torn = repair.find(root)
    assert torn is not None
    assert torn.ours
    assert "no row is lost" in " ".join(torn.lines())
    assert "2 of its 3 actions" in torn.why


def loaded(tmp_path: Path, root: Path, quarantine: Path | str) -> Settings:
    document = {
        "app_id": "shop",
        "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"},
        "routes": {"orders": {"topics": ["orders"], "table": str(root)}},
        "parse": {"orders": {"schema": "a STRING", "quarantine": str(quarantine)}},
    }
    return check(document, tmp_path / "orders.yaml", {})


def test_the_quarantine_table_is_repaired_too_and_only_with_a_yes(tmp_path: Path, root: Path) -> None:
    """Dead letters are noted there by commits of ours."""
    quarantine = tmp_path / "quarantine"
    shutil.copytree(root, quarantine)
    for table in (root, quarantine):
        tear(table, NEWEST, at_line_end)
    told: list[str] = []
    repair.repair(loaded(tmp_path, root, quarantine), ["orders"], told.append, yes=False)
    assert [line.endswith("would be set aside; give --yes to do it") for line in told].count(True) == 2
    assert (root / entry_path(NEWEST)).exists()
    repair.repair(loaded(tmp_path, root, quarantine), ["orders"], told.append, yes=True)
    for table in (root, quarantine):
        assert not (table / entry_path(NEWEST)).exists()
        assert len([*table.glob("_delta_log/_torn_*")]) == 1


def test_there_is_nothing_to_repair_in_a_store(tmp_path: Path, root: Path) -> None:
    """An upload is whole or not there; nobody asks the store."""
    told: list[str] = []
    repair.repair(loaded(tmp_path, root, "s3://nowhere/quarantine"), ["orders"], told.append, yes=True)
    assert [line.endswith("nothing to repair") for line in told] == [True, True]
