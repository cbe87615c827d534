"""Each dead letter once, whatever people do to the quarantine table and to the topics between two runs.

Every refusal is met by a supervisor, who starts again, twice: it must refuse again until a person has answered.
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from ingestor.dead_letters.letters import SCHEMA
from tests.support.kafka import topics
from tests.support.process.command import Ended, ingestor
from tests.support.process.ingestors import eventually
from tests.support.process.peak import peak_mib
from tests.support.quarantine import Shop, Stopped, headers, letter, open_shop, origins

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def shop(kafka: Cluster, tmp_path: Path) -> Shop:
    """A route over a topic of one partition."""
    return open_shop(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap))


def publish(shop: Shop, *options: object) -> Ended:
    """Publish in a process of its own."""
    return ingestor("dlq", "publish", shop.config, *options)


def replay(shop: Shop, *options: object) -> Ended:
    """Replay in a process of its own."""
    return ingestor("dlq", "replay", shop.config, "--yes", *options)


def published(count: int) -> str:
    return f"events: {count} dead {'letter' if count == 1 else 'letters'} published\n"


def dead(shop: Shop) -> list[int]:
    """Return the offsets of the records whose letters are on the dead letter topic."""
    return sorted(each.offset for each in origins(topics.read(shop.bootstrap, shop.dead)))


def sent_back(shop: Shop) -> list[int]:
    """Return the offsets of the letters that were sent back."""
    back = (headers(message).get("dlq.replayed.from") for message in topics.read(shop.bootstrap, shop.topic))
    return sorted(int(name.decode().rpartition("/")[2]) for name in back if name is not None)


def refused(shop: Shop, code: int, *words: str, command: Any = publish) -> None:
    """Start, and start again, twice; each time it has to refuse, and to send nothing."""
    for _ in range(3):
        ended = command(shop)
        assert ended.code == code, ended.stderr + ended.stdout
        for word in words:
            assert word in ended.last_line


def killed_between_portions(*command: object, rows: int = 3) -> None:
    """Start a command, and kill it when Kafka has its first portion."""
    with Stopped("kafka.sender:Sender.send", "dlq", *command, rows=rows) as process:
        process.killed()


# --- what is sent is known by marks only ------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("style", ["headers", "envelope"])
def test_a_record_that_names_another_one_costs_no_letter(shop: Shop, style: str) -> None:
    """Neither its payload nor its own headers are believed, whatever the format, after a kill."""
    rows = shop.letters(6)
    told = {"original_topic": shop.topic, "original_partition": 0, "original_offset": 4}
    rows[0] |= {"message_payload": json.dumps(told).encode()}
    named = {"topic": shop.topic, "partition": "0", "offset": "5"}
    rows[1] |= {"message_headers": [{"key": f"dlq.original.{part}", "value": v.encode()} for part, v in named.items()]}
    shop.configure(dead_letters={"format": style}).quarantine(*rows)

    killed_between_portions("publish", shop.config)

    assert publish(shop).stdout == published(3)
    assert publish(shop).stdout == published(0)
    keys = [message.key() for message in topics.read(shop.bootstrap, shop.dead)]
    assert keys == [row["message_key"] for row in rows]


@pytest.mark.faults
def test_a_record_that_says_it_is_a_replay_costs_no_letter(shop: Shop) -> None:
    """Anybody may write to the source topic, and copy headers."""
    shop.quarantine(*shop.letters(6))

    killed_between_portions("replay", shop.config, "--yes")
    copied: Any = topics.read(shop.bootstrap, shop.topic)[0].headers()
    marks = [(name, value) for name, value in copied if name != "dlq.replayed.from"]
    forged = [("dlq.replayed.from", f"{shop.topic}/0/5".encode()), *marks]
    topics.produce(shop.bootstrap, shop.topic, [topics.Record(value=b"copy", headers=forged)])

    assert replay(shop).code == 0
    assert sent_back(shop) == [0, 1, 2, 3, 4, 5, 5], "the copy, and each letter once"
    assert "nothing to replay" in replay(shop).stdout


@pytest.mark.faults
def test_a_publisher_that_was_overtaken_notes_nothing_any_more(shop: Shop) -> None:
    """It was held when it had sent all of its letters; what others sent meanwhile is not its to note."""
    shop.quarantine(*shop.letters(4))
    command = ("dlq", "publish", shop.config)
    with Stopped("kafka.sender:Sender.send", *command, number=signal.SIGSTOP, rows=2, nth=2) as sleeper:
        eventually(lambda: sleeper.held)
        shop.quarantine(*shop.letters(2, first=4))
        with Stopped("dead_letters.publish:Publisher._send_entry", *command, rows=2, nth=2) as other:
            other.killed()  # the new letters are sent, and nobody has noted that
        sleeper.go_on()
        code, said = sleeper.ended()
    assert code == 0, said

    assert publish(shop).code == 0
    assert dead(shop) == list(range(6))


# --- portions ---------------------------------------------------------------------------------------------------------


def packed(shop: Shop, count: int, size: int) -> None:
    """Quarantine letters of one payload, which the file holds once, all in one row group."""
    columns = {name: [row[name] for row in shop.letters(count)] for name in SCHEMA.names}
    rows = pa.table(columns, schema=SCHEMA)
    value = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([bytes(size)]))
    rows = rows.set_column(SCHEMA.get_field_index("message_payload"), "message_payload", value)
    write_deltalake(shop.table, SCHEMA.empty_table())
    pq.write_table(rows, shop.table / "packed.parquet", row_group_size=count, store_schema=False)
    table = DeltaTable(shop.table)
    stats = json.dumps({"numRecords": count})
    add = AddAction("packed.parquet", (shop.table / "packed.parquet").stat().st_size, {}, 0, True, stats)  # noqa: FBT003
    table.create_write_transaction([add], "append", table.schema(), [])


def offsets_on(shop: Shop) -> list[int]:
    """Return the offsets of the letters on the dead letter topic, without keeping the messages."""
    consumer = Consumer(
        {"bootstrap.servers": shop.bootstrap, "group.id": topics.unique(), "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(shop.dead, 0, 0)])
    found: list[int] = []
    while True:
        for message in consumer.consume(100, 10):
            if message.error() is not None:
                consumer.close()
                return found
            found.append(origins([message])[0].offset)


@pytest.mark.timeout(300)
def test_a_row_group_of_more_than_two_gigabytes_is_published_in_little_memory(shop: Shop) -> None:
    """Its file has 50 KB; its letters pass in portions of 16 MiB."""
    packed(shop, 4_400, 500_000)

    code, mib = peak_mib("dlq", "publish", shop.config)

    assert code == 0
    assert offsets_on(shop) == list(range(4_400))
    assert mib < 600


# --- RESTORE and overwrite --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restore", "restore over a new one", "overwrite"])
def test_rows_that_were_put_back_wait_for_an_answer_and_are_not_sent_again(shop: Shop, how: str) -> None:
    """The refusal stands in the log; so does the answer, after which everything new is sent."""
    rows = shop.letters(4)
    there = shop.quarantine(*rows)
    publish(shop)
    DeltaTable(shop.table).delete()
    if how != "restore":
        shop.quarantine(*shop.letters(1, first=4))
    if how == "overwrite":
        write_deltalake(shop.table, DeltaTable(shop.table, version=there).to_pyarrow_table(), mode="overwrite")
    else:
        DeltaTable(shop.table).restore(there)
    at = DeltaTable(shop.table).version()

    refused(shop, 4, f"at version {at} put rows there", f"--accept {at}")
    assert publish(shop, "--accept", at - 1).code == 2
    refused(shop, 4, f"--accept {at}")

    shop.quarantine(*shop.letters(2, first=5))
    answered = publish(shop, "--accept", at)
    assert answered.stdout.endswith(published(2)), answered.stderr
    assert publish(shop).stdout == published(0)
    assert dead(shop) == [0, 1, 2, 3, 5, 6], "the one that was taken away before it was sent is not"


def test_an_answer_that_is_given_before_a_kill_need_not_be_given_again(shop: Shop) -> None:
    """It is a txn of its own."""
    there = shop.quarantine(*shop.letters(2))
    publish(shop)
    DeltaTable(shop.table).delete()
    DeltaTable(shop.table).restore(there)
    at = DeltaTable(shop.table).version()
    shop.quarantine(*shop.letters(1, first=2))

    with Stopped("dead_letters.publish:Publisher.accept", "dlq", "publish", shop.config, "--accept", at) as publisher:
        publisher.killed()

    assert publish(shop).stdout == published(1)
    assert dead(shop) == [0, 1, 2]


def test_what_was_replayed_stays_so_after_a_restore(shop: Shop) -> None:
    """RESTORE takes the marks in the rows away, log clean-up takes the log; the txns stay."""
    there = shop.quarantine(*shop.letters(4))
    assert replay(shop, "--offsets", "1..").code == 0
    DeltaTable(shop.table).restore(there)
    assert shop.replayed() == set()

    for _ in range(2):
        again = replay(shop, "--offsets", "1..")
        assert (again.code, again.stdout.startswith("nothing to replay")) == (0, True), again.stderr
    DeltaTable(shop.table).create_checkpoint()
    for entry in sorted((shop.table / "_delta_log").glob("0*.json"))[:-1]:
        entry.unlink()

    assert replay(shop).stdout == "events: 1 dead letter sent back\n"
    assert sent_back(shop) == [0, 1, 2, 3]
    assert "1 dead letter sent back" in replay(shop, "--force", "--offsets", "2").stdout


# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_was_deleted_under_a_publisher_waits_for_an_answer(shop: Shop, again: bool) -> None:  # noqa: FBT001
    """Nobody can tell what the old one had got; after the answer the new one has each letter once, over more kills."""
    shop.quarantine(*shop.letters(20))
    publish(shop)
    shop.quarantine(*shop.letters(51, first=20))
    with Stopped("dead_letters.publish:Publisher._send_entry", "dlq", "publish", shop.config) as publisher:
        publisher.killed()  # all are sent, and nobody has noted that
    topics.delete(shop.bootstrap, shop.dead)
    if again:
        topics.create(shop.bootstrap, shop.dead)

    refused(shop, 3, f"topic {shop.dead} was deleted since", "--resend")
    with Stopped("kafka.sender:Sender.send", "dlq", "publish", shop.config, "--resend", rows=30) as publisher:
        publisher.killed()
    assert publish(shop).stdout == published(21)

    assert publish(shop).stdout == published(0)
    assert dead(shop) == list(range(20, 71))


def test_a_topic_that_was_made_anew_between_two_runs_gets_what_is_new(shop: Shop) -> None:
    """Then nothing is uncertain."""
    shop.quarantine(*shop.letters(2))
    publish(shop)
    topics.delete(shop.bootstrap, shop.dead)
    shop.quarantine(*shop.letters(2, first=2))

    assert publish(shop).stdout == published(2)
    assert dead(shop) == [2, 3]


@pytest.mark.faults
def test_a_source_topic_that_was_deleted_under_a_replay_waits_for_an_answer(shop: Shop) -> None:
    """The new one may hold more records than the old one had."""
    shop.quarantine(*shop.letters(6))
    killed_between_portions("replay", shop.config, "--yes")
    topics.delete(shop.bootstrap, shop.topic)
    topics.create(shop.bootstrap, shop.topic)
    topics.produce(shop.bootstrap, shop.topic, [b"new"] * 20)

    refused(shop, 3, f"topic {shop.topic} was deleted since", "--force", command=replay)

    killed_between_portions("replay", shop.config, "--yes", "--force")
    assert replay(shop).code == 0
    assert sent_back(shop) == list(range(6))


def clean_by(shop: Shop, topic: str, policy: str) -> None:
    """Set a topic's clean-up policy."""
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": shop.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused_before_anything_is_sent(shop: Shop, policy: str) -> None:
    """Of two letters with one key it keeps one; it is told before there is any letter, too."""
    topics.create(shop.bootstrap, shop.dead, config={"cleanup.policy": policy})
    shop.quarantine()
    refused(shop, 2, f"topic {shop.dead} is compacted", "cleanup.policy=delete")
    shop.quarantine(*shop.letters(2))

    refused(shop, 2, f"topic {shop.dead} is compacted", "cleanup.policy=delete")

    clean_by(shop, shop.dead, "delete")
    assert publish(shop).stdout == published(2)


# --- what is no longer in the table, or elsewhere in it ---------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 2])
def test_a_letter_that_was_deleted_before_it_was_sent_is_not_sent(shop: Shop, before: int) -> None:
    """Whether it shared its file with others or not, whether that was compacted since or not."""
    if before:
        shop.quarantine(*shop.letters(before, first=100))
        publish(shop)
    shop.quarantine(*shop.letters(4))
    shop.quarantine(*shop.letters(2, first=4))
    shop.quarantine(*shop.letters(2, first=6))
    DeltaTable(shop.table).delete("stream_offset in (1, 2)")
    DeltaTable(shop.table).delete("stream_offset in (4, 5)")
    DeltaTable(shop.table).optimize.compact()

    assert publish(shop).stdout == published(4)
    assert publish(shop).stdout == published(0)
    assert dead(shop)[:4] == [0, 3, 6, 7]
    assert len(dead(shop)) == 4 + before


def vacuum(shop: Shop) -> None:
    """Compact, and remove every file that is no longer live."""
    DeltaTable(shop.table).optimize.compact()
    DeltaTable(shop.table).vacuum(0, dry_run=False, enforce_retention_duration=False)


def test_letters_that_were_compacted_before_any_was_sent_are_all_sent(shop: Shop) -> None:
    """VACUUM took the files that they came in, and the table still has them: there is no gap."""
    for first in (0, 2, 4):
        shop.quarantine(*shop.letters(2, first=first))
    vacuum(shop)

    assert publish(shop, "--skip-gap").stdout == published(6)
    assert publish(shop).stdout == published(0)
    assert dead(shop) == list(range(6))


def test_letters_that_were_compacted_with_those_that_were_sent_are_told_from_them(shop: Shop) -> None:
    """By a person's leave those are sent that lie behind the last one that was."""
    shop.quarantine(*shop.letters(3))
    publish(shop)
    shop.quarantine(*shop.letters(2, first=3))
    shop.quarantine(letter(shop.topic, 0, 9), letter(shop.topic, 0, 10))
    DeltaTable(shop.table).delete("stream_offset = 9")
    vacuum(shop)
    shop.quarantine(*shop.letters(1, first=11))

    refused(shop, 3, "VACUUM removed", "--skip-gap")

    assert publish(shop, "--skip-gap").stdout == published(4)
    assert publish(shop).stdout == published(0)
    assert dead(shop) == [0, 1, 2, 3, 4, 10, 11]


# --- what can't be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "place", "words"),
    [
        ("list", "foo://bucket/letters", "Unknown scheme"),
        ("list", "az://container/letters", "Account must be specified"),
        ("list", "hdfs://nowhere/letters", "NameNode"),
        ("list", "s3://a b/letters", "Could not parse"),
        ("publish", "foo://bucket/letters", "Unknown scheme"),
        ("replay", "foo://bucket/letters", "Unknown scheme"),
    ],
)
def test_a_table_whose_url_can_not_be_read_is_told(shop: Shop, command: str, place: str, words: str) -> None:
    """By its name, with what to correct, and never as an empty one."""
    shop.configure(parse={"events": {"quarantine": place}})

    ended = ingestor("dlq", command, shop.config)

    assert ended.code == 4, ended.stderr
    assert ended.last_line.startswith(f"ingestor: reading quarantine table {place}: ")
    assert words in ended.last_line
    assert "correct the table's URL or storage_options" in ended.last_line


def test_a_folder_that_may_not_be_read_is_no_empty_quarantine(shop: Shop) -> None:
    """Though delta-rs says that there is no table."""
    shop.quarantine(*shop.letters(1))
    shop.table.chmod(0)
    try:
        ended = ingestor("dlq", "list", shop.config, bound=True)
    finally:
        shop.table.chmod(0o755)

    assert ended.code == 4, ended.stdout
    assert f"reading quarantine table {shop.table}: access is denied" in ended.last_line
