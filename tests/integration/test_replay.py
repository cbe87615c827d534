"""Chosen dead letters go back to their topic once, and the table says so."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from ingestor.dead_letters import commands, listing
from ingestor.dead_letters.selection import Selection, select
from ingestor.dead_letters.service import parsed_routes
from ingestor.errors import ConfigError, DataLossError, RefusedError
from ingestor.records import Coordinate
from tests.support.kafka import topics
from tests.support.process.command import ingestor
from tests.support.process.ingestors import eventually
from tests.support.quarantine import Shop, Stopped, headers, letter, open_shop

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def shop(kafka: Cluster, tmp_path: Path) -> Shop:
    """A route over a topic of two partitions."""
    return open_shop(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap, partitions=2))


def replay(shop: Shop, *, answer: bool = True, dry_run: bool = False, force: bool = False, **chosen: Any) -> list[str]:
    """Replay as the command does; return what it tells."""
    told: list[str] = []
    nothing = dict.fromkeys(("topic", "partition", "offsets", "since", "until"))
    settings = shop.settings()
    commands.replay(
        settings,
        parsed_routes(settings, None),
        select(**{**nothing, "reasons": (), "replayed": force, **chosen}),
        dry_run=dry_run,
        force=force,
        confirm=lambda _question: answer,
        tell=told.append,
    )
    return told


def back(shop: Shop) -> list[Message]:
    """Return what readers of the source topic see."""
    return topics.read(shop.bootstrap, shop.topic)


def came_from(messages: list[Message]) -> list[str]:
    """Return which letters messages are the replays of, without their topic."""
    return [(headers(message)["dlq.replayed.from"] or b"").decode().partition("/")[2] for message in messages]


def coordinates(shop: Shop, partition: int, *offsets: int) -> set[Coordinate]:
    return {Coordinate(shop.topic, partition, offset) for offset in offsets}


# --- once ------------------------------------------------------------------------------------------------------------


def test_a_replayed_record_is_the_one_that_failed_and_tells_where_it_came_from(shop: Shop) -> None:
    """Same key, value, partition and headers; the table marks it."""
    own = [{"key": "trace", "value": b"\xff"}]
    shop.quarantine(
        letter(shop.topic, 1, 3, message_payload=b"\x00\xff", message_headers=own),
        letter(shop.topic, 0, 5, message_payload=None, message_key=None),
    )

    assert replay(shop) == ["events: 2 dead letters sent back"]

    first, second = sorted(back(shop), key=lambda message: message.partition() or 0)
    assert (first.partition(), first.key(), first.value()) == (0, None, None)
    assert (second.partition(), second.key(), second.value()) == (1, b"key 3", b"\x00\xff")
    found: Any = second.headers()
    assert found[:2] == [("trace", b"\xff"), ("dlq.replayed.from", f"{shop.topic}/1/3".encode())]
    assert [name for name, _ in found[2:]] == ["dlq.mark"]
    assert shop.replayed() == coordinates(shop, 1, 3) | coordinates(shop, 0, 5)
    assert [row["message_payload"] for row in shop.rows()] == [None, b"\x00\xff"], "a mark changes nothing else"


def test_what_was_replayed_is_sent_again_only_by_force(shop: Shop) -> None:
    """Twice asked is once sent."""
    shop.quarantine(*shop.letters(2))
    replay(shop)

    assert replay(shop) == ["nothing to replay: no dead letter is chosen that was not replayed before"]
    assert replay(shop, force=True, offsets="1") == ["events: 1 dead letter sent back"]

    assert came_from(back(shop)) == ["0/0", "0/1", "0/1"]


def test_only_what_is_chosen_goes_back(shop: Shop) -> None:
    """All conditions must hold; the rest stays as it is, and can be chosen later."""
    shop.quarantine(
        *shop.letters(6),
        letter(shop.topic, 1, 2),
        letter(shop.topic, 0, 6, error_reason="rule:x;required:id"),
        letter(shop.topic, 0, 7, message_timestamp=None),
    )

    assert replay(shop, partition=0, offsets="2..3") == ["events: 2 dead letters sent back"]
    assert replay(shop, reasons=("required",)) == ["events: 1 dead letter sent back"]
    assert replay(shop, since="2001-09-09T01:46:40.004Z", until="2001-09-09T01:46:40.005Z", partition=0) == [
        "events: 1 dead letter sent back"
    ]

    assert sorted(came_from(back(shop))) == ["0/2", "0/3", "0/4", "0/6"]
    assert shop.replayed() == coordinates(shop, 0, 2, 3, 4, 6)


def test_a_dry_run_shows_what_would_go_and_changes_nothing(shop: Shop) -> None:
    """It names each letter."""
    version = shop.quarantine(*shop.letters(2))

    ended = ingestor("dlq", "replay", shop.config, "--dry-run", "--offsets", "1..")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == f"events: {shop.topic}/0/1\n1 dead letter would be sent back; nothing was sent\n"
    assert back(shop) == []
    assert DeltaTable(shop.table).version() == version


def test_nothing_is_sent_without_a_yes(shop: Shop) -> None:
    """The question says how many go where; no answer is a no."""
    shop.quarantine(*shop.letters(2))

    ended = ingestor("dlq", "replay", shop.config, stdin="n\n")

    assert ended.code == 2
    assert f"Send 2 dead letters back to their topics: {shop.topic} (2)?" in ended.stderr
    assert "nothing was sent" in ended.last_line
    assert back(shop) == []


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--offsets", "x"),
        ("--offsets", ".."),
        ("--offsets", "5..2"),
        ("--since", "yesterday"),
        ("--until", "2026-01-01T00:00:00"),
        ("--partition", "-1"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(option: str, text: str) -> None:
    """Before anything is touched, and by the name of the option."""
    chosen: dict[str, Any] = dict.fromkeys(("topic", "partition", "offsets", "since", "until"))
    chosen[option.removeprefix("--")] = int(text) if option == "--partition" else text
    with pytest.raises(ConfigError, match=f"{option} ") as caught:
        select(reasons=(), replayed=False, **chosen)
    assert caught.value.hint


# --- what can't go back ----------------------------------------------------------------------------------------------


def test_a_letter_whose_partition_is_gone_is_refused_before_anything_is_sent(shop: Shop) -> None:
    """The source topic may have been made anew, and smaller."""
    version = shop.quarantine(*shop.letters(1), letter(shop.topic, 7, 1))

    with pytest.raises(ConfigError, match=f"{shop.topic}:7 can't go back: topic {shop.topic} has only 2 partitions"):
        replay(shop)

    assert back(shop) == []
    assert DeltaTable(shop.table).version() == version


def test_a_letter_that_became_too_large_is_named_and_the_others_can_go(kafka: Cluster, tmp_path: Path) -> None:
    """One more header may be too much for a record that just fitted."""
    topic = topics.create(kafka.bootstrap, config={"max.message.bytes": 2_000})
    shop = open_shop(tmp_path, kafka.bootstrap, topic)
    shop.configure(kafka={**shop.document["kafka"], "compression.type": "none"})
    rows = shop.letters(3)
    rows[1] |= {"message_payload": bytes(1_950)}
    shop.quarantine(*rows)

    with pytest.raises(RefusedError, match=f"{topic}/0/1 is too large for topic {topic}"):
        replay(shop)

    assert shop.replayed() == set()
    assert replay(shop, offsets="0") == ["events: 1 dead letter sent back"]
    assert replay(shop, offsets="2") == ["events: 1 dead letter sent back"]
    assert came_from(back(shop)) == ["0/0", "0/2"]


# --- kills, and two at once ------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize(
    ("step", "when", "nth"),
    [
        ("dead_letters.quarantine:Version.put_txn", "after", 1),  # the intent is there, nothing is sent
        ("kafka.sender:Sender.send", "after", 1),  # a part is sent
        ("dead_letters.replay:Replayer._close", "before", 1),  # all is sent, nothing is marked
    ],
)
def test_a_replay_killed_at_any_step_is_finished_by_the_next_one(shop: Shop, step: str, when: str, nth: int) -> None:
    """Whatever that one chooses: what was begun comes first, and none is sent twice."""
    shop.quarantine(*shop.letters(10), *shop.letters(5, partition=1))
    topics.produce(shop.bootstrap, shop.topic, [b"before"])

    command = ("dlq", "replay", shop.config, "--yes", "--partition", "0")
    with Stopped(step, *command, when=when, nth=nth, rows=5) as replayer:
        replayer.killed()
    topics.produce(shop.bootstrap, shop.topic, [b"meanwhile"])
    assert replay(shop, dry_run=True)[0] == "events: a replay was not finished; the next one finishes it first"
    replay(shop, partition=1, offsets="0..1")

    replays = [message for message in back(shop) if message.value() not in (b"before", b"meanwhile")]
    assert sorted(came_from(replays)) == sorted([f"0/{n}" for n in range(10)] + ["1/0", "1/1"])
    assert shop.replayed() == coordinates(shop, 0, *range(10)) | coordinates(shop, 1, 0, 1)
    assert replay(shop, partition=0) == ["nothing to replay: no dead letter is chosen that was not replayed before"]


@pytest.mark.faults
def test_a_replay_that_was_held_still_sends_nothing_that_another_has_sent(shop: Shop) -> None:
    """It is told that another took over."""
    shop.quarantine(*shop.letters(10))

    command = ("dlq", "replay", shop.config, "--yes")
    with Stopped("kafka.sender:Sender.send", *command, number=signal.SIGSTOP, rows=5) as sleeper:
        eventually(lambda: sleeper.held)
        replay(shop)
        sleeper.go_on()
        code, said = sleeper.ended()

    assert code == 5, said
    assert "another replay of route events took over" in said.splitlines()[-1]
    assert came_from(back(shop)) == [f"0/{n}" for n in range(10)]


@pytest.mark.faults
def test_what_retention_removed_is_not_guessed(shop: Shop) -> None:
    """Nobody can tell any more whether the letters were sent; only --force sends them again."""
    shop.quarantine(*shop.letters(2))
    topics.produce(shop.bootstrap, shop.topic, [b"before"] * 2)
    with Stopped(
        "dead_letters.replay:Replayer._close", "dlq", "replay", shop.config, "--yes", when="before"
    ) as replayer:
        replayer.killed()
    for partition in (0, 1):
        ends = [m.offset() or 0 for m in back(shop) if m.partition() == partition]
        if ends:
            topics.expire(shop.bootstrap, shop.topic, partition, max(ends) + 1)

    with pytest.raises(DataLossError, match="a replay was not finished, and retention removed") as caught:
        replay(shop)

    assert "--force" in caught.value.hint
    assert replay(shop, force=True, offsets="0") == ["events: 2 dead letters sent back"]
    assert came_from(back(shop)) == ["0/0", "0/1"]


@pytest.mark.faults
def test_a_replay_of_which_the_log_tells_nothing_is_given_up_by_force_only(shop: Shop) -> None:
    """Then what is chosen goes, and the next one finds nothing open."""
    forget_what_was_begun(shop)

    with pytest.raises(DataLossError, match="log clean-up removed what it was to send") as caught:
        replay(shop)

    assert "--force" in caught.value.hint
    assert back(shop) == []
    assert replay(shop, force=True) == ["events: 3 dead letters sent back"]
    assert came_from(back(shop)) == ["0/0", "0/1", "0/2"]
    assert replay(shop) == ["nothing to replay: no dead letter is chosen that was not replayed before"]


@pytest.mark.faults
def test_a_replay_is_given_up_beside_other_writers(shop: Shop) -> None:
    """Whoever takes the log's next entry first only makes it look again."""
    forget_what_was_begun(shop)

    with Stopped(
        "dead_letters.replay:Replayer._give_up",
        "dlq",
        "replay",
        shop.config,
        "--yes",
        "--force",
        when="before",
        number=signal.SIGSTOP,
    ) as replayer:
        eventually(lambda: replayer.held)
        shop.quarantine(*shop.letters(1, first=3))
        replayer.go_on()
        code, said = replayer.ended()

    assert code == 0, said
    assert came_from(back(shop)) == ["0/0", "0/1", "0/2"]


def forget_what_was_begun(shop: Shop) -> None:
    """Begin a replay and kill it, then let log clean-up remove what it had said."""
    shop.quarantine(*shop.letters(2))
    with Stopped("dead_letters.quarantine:Version.put_txn", "dlq", "replay", shop.config, "--yes") as replayer:
        replayer.killed()
    begun = DeltaTable(shop.table).version()
    shop.quarantine(*shop.letters(1, first=2))
    DeltaTable(shop.table).create_checkpoint()
    for version in range(begun + 1):
        (shop.table / "_delta_log" / f"{version:020d}.json").unlink()


# --- list ------------------------------------------------------------------------------------------------------------


def test_a_list_shows_what_lies_in_quarantine_without_any_payload(shop: Shop) -> None:
    """For people as a table, for programs as one object."""
    shop.quarantine(*shop.letters(2), letter(shop.topic, 1, 9, error_reason="rule:x", error_message="a\nb"))
    replay(shop, offsets="0", partition=0)

    text = ingestor("dlq", "list", shop.config, "--limit", "2")
    found = json.loads(ingestor("dlq", "list", shop.config, "--json").stdout)
    rules, _ = listing.find(shop.settings(), ["events"], Selection(reasons=("rule",), replayed=True), 100)

    assert (text.code, text.stderr) == (0, "")
    head, first, second, more = text.stdout.splitlines()
    assert head.split() == ["route", "topic", "partition", "offset", "timestamp", "reason", "replayed", "message"]
    assert first.split()[:6] == ["events", shop.topic, "0", "0", "2001-09-09T01:46:40Z", "malformed"]
    assert second.split()[6] == "-"
    assert more == "… and 1 more: --limit 3"
    assert found["total"] == 3
    assert found["dead_letters"][2] == {
        "route": "events",
        "topic": shop.topic,
        "partition": 1,
        "offset": 9,
        "timestamp": "2001-09-09T01:46:40.009000Z",
        "error_reason": "rule:x",
        "error_class": "MalformedRecord",
        "error_message": "a\nb",
        "processing_version": "1.0",
        "replayed_at": None,
    }
    assert [row["offset"] for row in rules] == [9]


def test_the_list_of_a_route_that_was_never_parsed_is_empty(shop: Shop) -> None:
    """Which is no failure."""
    found = listing.find(shop.settings(), ["events"], Selection(replayed=True), 100)

    assert listing.as_text(*found) == "no dead letters"
