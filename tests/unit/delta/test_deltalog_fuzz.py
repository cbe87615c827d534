"""Damaged log entries: what can't be an entry is refused with a way out, and nothing of it is ever believed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingestor.delta.deltalog import Entry, parse_entry, txns_at
from ingestor.errors import RefusedError
from tests.support.fakes.storage import MemoryStorage

ACTIONS: list[dict[str, Any]] = [
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "commit_id": "c", "topic_ids": {"t": "id"}, "actions": 6}},
    {"txn": {"appId": "app/t/0", "version": 41, "lastUpdated": 1}},
    {
        "add": {
            "path": "part-1.parquet",
            "size": 10,
            "partitionValues": {},
            "modificationTime": 1,
            "dataChange": True,
            "stats": '{"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}}',
        }
    },
    {"remove": {"path": "part-0.parquet", "dataChange": False}},
    {"metaData": {"id": "i", "schemaString": "{}", "configuration": {}}},
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
]
SOUND = "\n".join(json.dumps(action) for action in ACTIONS).encode()
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def entry_of(text: bytes) -> Entry | None:
    """Return the entry, None if it is refused; anything else is a crash of the ingestor."""
    entry = refused = None
    try:
        entry = parse_entry(7, text)
    except RefusedError as error:
        refused = error
    if entry is None:
        assert refused is not None
        assert "00000000000000000007.json is damaged" in refused.message
        assert refused.hint
        return None
    for app_id, version in entry.txns.items():
        assert isinstance(app_id, str)
        assert type(version) is int
    for added in entry.adds:
        assert isinstance(added.path, str)
        assert type(added.size) is int
        assert added.rows is None or type(added.rows) is int
    assert entry.commit_id is None or isinstance(entry.commit_id, str)
    assert isinstance(entry.takes_data, bool)
    return entry


@given(st.integers(0, len(SOUND) - 1))
def test_an_entry_of_ours_that_is_cut_off_anywhere_is_refused(at: int) -> None:
    """Half of an action is none, and the entry says how many actions it has: a cut at the end of a line shows too."""
    assert entry_of(SOUND[:at]) is None


@given(st.integers(0, len(SOUND) - 1), st.integers(1, 4096))
def test_an_entry_of_ours_with_a_hole_is_refused(at: int, size: int) -> None:
    """A page that did not reach the disk is read as zeros."""
    assert entry_of(SOUND[:at] + bytes(len(SOUND[at : at + size])) + SOUND[at + size :]) is None


@given(st.integers(0, len(SOUND) - 1), st.integers(1, 255))
def test_a_byte_that_rots_crashes_nobody(at: int, change: int) -> None:
    """It is refused, or is still an entry with values of the right kinds."""
    entry_of(SOUND[:at] + bytes([SOUND[at] ^ change]) + SOUND[at + 1 :])


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_an_entry(text: bytes) -> None:
    """Whatever lies there."""
    entry_of(text)


@given(st.lists(ANYTHING, max_size=4))
def test_any_json_is_refused_or_an_entry(values: list[Any]) -> None:
    """Lines that are JSON, and no actions."""
    entry_of("\n".join(json.dumps(value) for value in values).encode())


@given(st.sampled_from(ACTIONS), st.data())
def test_a_value_of_another_kind_is_refused_or_left_aside(action: dict[str, Any], data: st.DataObject) -> None:
    """Another program's bug: a version that is text would crash whoever compares it."""
    ((kind, body),) = action.items()
    name = data.draw(st.sampled_from(sorted(body)))
    entry_of(json.dumps({kind: {**body, name: data.draw(ANYTHING)}}).encode())


@given(st.lists(st.sampled_from([SOUND, b"", SOUND[:50], b"[]", b"{}"]), min_size=1, max_size=5))
def test_the_txns_of_a_log_with_damage_are_refused_or_right(texts: list[bytes]) -> None:
    """Nobody goes on from a ledger of which a part can't be read."""
    files = MemoryStorage()
    files.files = {f"_delta_log/{version:020d}.json": text for version, text in enumerate(texts)}
    try:
        found = txns_at(files, len(texts) - 1)
    except RefusedError:
        assert any(text != SOUND for text in texts)
    else:
        assert found == ({"app/t/0": 41} if SOUND in texts else {})
