"""Who may say where ingestion goes on, and what is told of it, beside a broker that says what a test wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingestor.commands import set_offsets as module
from ingestor.commands.set_offsets import Dialogue, set_offsets
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable
from ingestor.kafka.broker import Watermarks
from ingestor.kafka.groups import Group
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import TopicPartition
from tests.support.rawtables import Record, TableMaker
from tests.support.settings import checked

if TYPE_CHECKING:
    from collections.abc import Collection

    from ingestor.config.settings import Settings

LOW, HIGH = 10, 100


@dataclass
class Desk:
    """A topic with one partition, its consumer group, and a person before the command line."""

    settings: Settings
    members: Group | Exception | None = field(default_factory=lambda: Group(()))
    warned: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def topics(self) -> dict[str, int]:
        return {"events": 1}

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return {tp: Watermarks(LOW, HIGH, HIGH) for tp in tps}

    def topic_ids(self, _topics: Collection[str]) -> dict[str, str]:
        return {}

    def group(self, group_id: str) -> Group | None:
        assert group_id == "orders"
        if isinstance(self.members, Exception):
            raise self.members
        return self.members

    def set(self, to: object, *, force: bool = False) -> None:
        dialogue = Dialogue(lambda _question: True, self.warned.append, self.told.append)
        set_offsets(self.settings, [f"events:0={to}"], dialogue, force=force)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A table that is not there yet."""
    desk = Desk(checked(routes__events={"topics": ["events"], "table": str(tmp_path / "table")}))
    monkeypatch.setattr(module, "Broker", lambda _kafka: desk)
    return desk


@pytest.mark.parametrize(
    ("members", "kind", "words"),
    [
        (Group(("a at h",)), ConfigError, r"group orders has 1 member \(a at h\), nothing was changed"),
        (Group(tuple("abcd")), ConfigError, r"group orders has 4 members \(a, b, c, …\)"),
        (None, RefusedError, "whether group orders has members is not known"),
        (RefusedError("not allowed", hint="-"), RefusedError, r"is not known, nothing was changed \(not allowed\)"),
        (Unavailable("no answer"), RefusedError, r"is not known, nothing was changed \(no answer\)"),
    ],
)
def test_whoever_may_be_in_the_group_keeps_offsets_from_being_set(
    desk: Desk, tmp_path: Path, members: Group | Exception | None, kind: type[IngestorError], words: str
) -> None:
    """Only force helps then; without it not even a table is made."""
    desk.members = members
    with pytest.raises(kind, match=words) as refused:
        desk.set(20)
    assert "--force" in refused.value.hint
    assert not (tmp_path / "table").exists()

    desk.set(20, force=True)
    assert desk.told == [f"events:0: never committed → 20, in version 1 of table {tmp_path / 'table'}"]


def test_what_is_passed_over_is_told_while_kafka_has_it(desk: Desk) -> None:
    """Not what Kafka has lost already, nor what goes back."""
    desk.set("earliest")
    assert desk.warned == []
    desk.set(LOW + 1)
    desk.set("latest")
    assert desk.warned == [
        "events:0: offset 10 will not be landed, though Kafka still has it",
        "events:0: offsets 11 to 99 (89) will not be landed, though Kafka still has them",
    ]
    desk.set(50)
    assert len(desk.warned) == 2
    assert [line.partition(",")[0] for line in desk.told] == [
        "events:0: never committed → 10",
        "events:0: 10 → 11",
        "events:0: 11 → 100",
        "events:0: 100 → 50",
    ]


def test_no_force_sets_an_offset_at_or_before_a_row(desk: Desk) -> None:
    """It would be landed a second time."""
    desk.set(20)
    table = TableMaker(Path(desk.settings.routes["events"].table), app_ids=AppIds(DEFAULT_TEMPLATE, "orders"))
    table.flush([Record(offset, b"v", TopicPartition("events", 0)) for offset in range(20, 30)])
    for to in (29, 20, "earliest"):
        with pytest.raises(ConfigError, match="still holds events:0 up to offset 29"):
            desk.set(to, force=True)
    desk.set(30)
