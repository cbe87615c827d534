"""Dead letters get to their topic once, whatever dies on the way, and as they were."""

from __future__ import annotations

import base64
import itertools
import json
import signal
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from deltalake import DeltaTable

from ingestor.dead_letters import commands
from ingestor.dead_letters.service import parsed_routes, publish_once
from ingestor.errors import ConfigError, DataLossError, RefusedError
from ingestor.kafka.sender import Sender
from ingestor.records import Coordinate
from tests.support.kafka import topics
from tests.support.process.command import Command, ingestor
from tests.support.process.ingestors import eventually
from tests.support.quarantine import (
    ROUTE,
    SEPTEMBER_2001_MS,
    Shop,
    Stopped,
    headers,
    letter,
    open_shop,
    origins,
)

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def shop(kafka: Cluster, tmp_path: Path) -> Shop:
    """A route over a topic of two partitions."""
    return open_shop(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap, partitions=2))


def publish(shop: Shop, *, skip_gap: bool = False) -> str:
    """Publish as the command does; return what it tells."""
    told: list[str] = []
    settings = shop.settings()
    publish_once(settings, parsed_routes(settings, None), skip_gap=skip_gap, tell=told.append)
    return "\n".join(told)


def dead(shop: Shop) -> list[Message]:
    """Return the dead letters that readers of committed records see."""
    return topics.read(shop.bootstrap, shop.dead)


def coordinates(*rows: dict[str, Any]) -> list[Coordinate]:
    return [Coordinate(row["stream_topic"], row["stream_partition"], row["stream_offset"]) for row in rows]


def by_partition(messages: list[Message]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for message in messages:
        found.setdefault(message.partition() or 0, []).append(message)
    return found


# --- what a dead letter looks like -----------------------------------------------------------------------------------


def test_a_dead_letter_has_the_key_value_and_partition_of_its_record_and_says_why(shop: Shop) -> None:
    """A tombstone, a null key, and bytes that are no text stay what they are; the record's own headers too."""
    own = [{"key": "trace", "value": b"\x00\xff"}, {"key": "trace", "value": None}]
    plain = letter(shop.topic, 1, 7, message_headers=own, error_reason="required:id;rule:x", error_message="no id — ß")
    tombstone = letter(shop.topic, 0, 3, message_payload=None, message_key=None, message_timestamp=None)
    binary = letter(shop.topic, 0, 2, message_payload=b"\x00\xff\xfe", message_key=b"\xff")
    shop.quarantine(plain, tombstone, binary)

    assert publish(shop) == "events: 3 dead letters published"

    found = by_partition(dead(shop))
    assert [(m.key(), m.value()) for m in found[0]] == [(b"\xff", b"\x00\xff\xfe"), (None, None)]
    assert [(m.key(), m.value()) for m in found[1]] == [(b"key 7", b"7 of 1")]
    all_headers: Any = found[1][0].headers()
    assert all_headers[:2] == [("trace", b"\x00\xff"), ("trace", None)]
    ours = dict(all_headers[2:])
    assert int(ours.pop("dlq.timestamp")) > SEPTEMBER_2001_MS
    assert len(ours.pop("dlq.mark")) == 32
    assert ours == {
        "dlq.original.topic": shop.topic.encode(),
        "dlq.original.partition": b"1",
        "dlq.original.offset": b"7",
        "dlq.original.timestamp": b"1000000000007",
        "dlq.error.reason": b"required:id;rule:x",
        "dlq.error.class": b"MalformedRecord",
        "dlq.error.message": "no id — ß".encode(),
        "dlq.version": b"1.0",
    }
    assert headers(found[0][1])["dlq.original.timestamp"] is None


def test_an_envelope_is_one_json_object(shop: Shop) -> None:
    """What is no text is in base64, and says so; the key is that of the record, so that order by key stays."""
    shop.configure(dead_letters={"format": "envelope"})
    text = letter(shop.topic, 0, 5, message_payload='{"ä": 1'.encode(), message_headers=[{"key": "h", "value": b"1"}])
    binary = letter(shop.topic, 1, 6, message_payload=b"\xff\x00", message_key=b"\xfe")
    empty = letter(shop.topic, 1, 8, message_payload=None, message_key=None, message_timestamp=None)
    shop.quarantine(text, binary, empty)

    publish(shop)

    found = by_partition(dead(shop))
    assert [message.key() for message in found[1]] == [b"\xfe", None]
    own: Any = found[0][0].headers()
    assert [own[0], own[1][0]] == [("h", b"1"), "dlq.mark"]
    first, second, third = (json.loads(m.value() or b"") for m in (*found[0], *found[1]))
    assert first.pop("dlq_timestamp") > SEPTEMBER_2001_MS
    assert first == {
        "original_topic": shop.topic,
        "original_partition": 0,
        "original_offset": 5,
        "original_key": "key 5",
        "original_value": '{"ä": 1',
        "original_timestamp": SEPTEMBER_2001_MS + 5,
        "error_reason": "malformed",
        "error_message": "it does not fit",
        "error_class": "MalformedRecord",
        "error_stack_trace": None,
        "dlq_version": "1.0",
    }
    assert (base64.b64decode(second["original_value"]), second["original_value_encoding"]) == (b"\xff\x00", "base64")
    assert (base64.b64decode(second["original_key"]), second["original_key_encoding"]) == (b"\xfe", "base64")
    assert (third["original_value"], third["original_key"], third["original_timestamp"]) == (None, None, None)
    assert "original_value_encoding" not in third


# --- what is new -----------------------------------------------------------------------------------------------------


def test_each_letter_is_published_once_in_the_order_of_its_partition(shop: Shop) -> None:
    """Within an entry of the log by offset, however its files are sorted; entries one after another."""
    first, second = shop.letters(30), shop.letters(30, first=100)
    shop.quarantine(*reversed(first))
    shop.quarantine(*second[::2], *second[1::2])
    publish(shop)
    late = shop.letters(2, first=50)
    shop.quarantine(*late)

    assert publish(shop) == "events: 2 dead letters published"
    assert publish(shop) == "events: 0 dead letters published"

    assert origins(dead(shop)) == coordinates(*first, *second, *late)


def test_rows_that_were_only_rewritten_are_not_new(shop: Shop) -> None:
    """Compaction, a mark on a row and a deletion write files too; and what they passed is not looked at for ever."""
    rows = shop.letters(4)
    shop.quarantine(*rows[:2])
    shop.quarantine(*rows[2:3])
    publish(shop)
    DeltaTable(shop.table).optimize.compact()
    DeltaTable(shop.table).update({"replayed_at": "now()"}, predicate="stream_offset = 0")
    DeltaTable(shop.table).delete("stream_offset = 1")
    shop.quarantine(*rows[3:])

    assert publish(shop) == "events: 1 dead letters published".replace("letters", "letter")
    DeltaTable(shop.table).optimize.compact()
    publish(shop)
    version = DeltaTable(shop.table).version()
    publish(shop)

    assert origins(dead(shop)) == coordinates(*rows)
    assert DeltaTable(shop.table).version() == version, "with nothing new nothing is written"


def test_a_route_that_was_never_parsed_has_nothing_to_do(shop: Shop) -> None:
    """It is no failure: the cron job may come before the first parse."""
    ended = ingestor("dlq", "publish", shop.config)

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == f"events: nothing to do: there is no quarantine table at {shop.table} yet\n"
    assert not shop.table.exists()


def test_a_configuration_without_parse_is_refused(shop: Shop) -> None:
    """Then nothing is ever quarantined, and whoever asks means something else."""
    shop.configure(parse={})

    with pytest.raises(ConfigError, match="no route has a parse section"):
        publish(shop)
    with pytest.raises(ConfigError, match="there is no route elsewhere"):
        parsed_routes(shop.settings(), "elsewhere")


def test_entries_that_clean_up_removed_are_not_skipped_silently(shop: Shop) -> None:
    """Nobody knows what they held; who goes on behind them says so."""
    rows = shop.letters(4)
    for row in rows[:3]:
        shop.quarantine(row)
    DeltaTable(shop.table).create_checkpoint()
    (shop.table / "_delta_log" / f"{0:020d}.json").unlink()

    with pytest.raises(DataLossError, match="log clean-up removed") as caught:
        publish(shop)

    assert caught.value.exit_code == 3
    assert "--skip-gap" in caught.value.hint
    assert publish(shop, skip_gap=True) == "events: 2 dead letters published"
    shop.quarantine(rows[3])
    publish(shop)
    assert origins(dead(shop)) == coordinates(*rows[1:])


def test_clean_up_of_an_idle_table_is_no_loss(shop: Shop) -> None:
    """Our own entry is the last one that counts; it may go as well."""
    shop.quarantine(*shop.letters(1))
    publish(shop)
    newest = DeltaTable(shop.table).version()
    shop.quarantine(*shop.letters(1, first=1))
    DeltaTable(shop.table).create_checkpoint()
    for version in range(newest + 1):
        (shop.table / "_delta_log" / f"{version:020d}.json").unlink()

    publish(shop)

    assert origins(dead(shop)) == coordinates(*shop.letters(2))


def test_a_file_that_vacuum_removed_is_named(shop: Shop) -> None:
    """Whoever compacts and vacuums before anything was published loses dead letters, and hears of it."""
    shop.quarantine(*shop.letters(1))
    for path in shop.table.glob("*.parquet"):
        path.unlink()

    with pytest.raises(DataLossError, match=r"VACUUM removed \S+\.parquet of log entry 0"):
        publish(shop)

    assert publish(shop, skip_gap=True) == "events: 0 dead letters published"


# --- topics ----------------------------------------------------------------------------------------------------------


def test_a_missing_topic_is_made_with_as_many_partitions(shop: Shop) -> None:
    """And takes larger records than its source, for headers say why, and base64 is longer."""
    shop.quarantine(*shop.letters(1))

    publish(shop)

    admin = AdminClient({"bootstrap.servers": shop.bootstrap})
    assert len(admin.list_topics(shop.dead, timeout=10).topics[shop.dead].partitions) == 2
    resource = ConfigResource(ConfigResource.Type.TOPIC, shop.dead)
    made = admin.describe_configs([resource])[resource].result(10)
    assert made["cleanup.policy"].value == "delete"
    assert int(str(made["max.message.bytes"].value)) > 64 << 20


def test_a_topic_that_may_not_be_made_is_named(shop: Shop) -> None:
    """With the number of partitions that it needs."""
    shop.configure(dead_letters={"create": False}).quarantine(*shop.letters(1))

    with pytest.raises(ConfigError, match=f"topic {shop.dead} does not exist — create it with 2 partitions"):
        publish(shop)


def test_a_topic_with_too_few_partitions_is_refused_and_nothing_is_sent(shop: Shop) -> None:
    """The partition number could not be kept; mended, all are sent."""
    topics.create(shop.bootstrap, shop.dead, partitions=1)
    shop.quarantine(*shop.letters(1), *shop.letters(1, partition=1))

    ended = ingestor("dlq", "publish", shop.config)

    assert ended.code == 2
    assert f"topic {shop.dead} has 1 partitions, {shop.topic} needs 2" in ended.last_line
    assert dead(shop) == []
    topics.grow(shop.bootstrap, shop.dead, 2)
    publish(shop)
    assert len(dead(shop)) == 2


def test_letters_never_go_to_a_topic_that_is_ingested(shop: Shop) -> None:
    """They would come back for ever; a regex may match what the configuration can't foresee."""
    shop.document["routes"][ROUTE]["topics"] = [f"^{shop.topic}(-dlq)?$"]
    shop.configure().quarantine(*shop.letters(1))

    with pytest.raises(ConfigError, match=f"would go to {shop.dead}, which route events ingests"):
        publish(shop)


def limit(shop: Shop, topic: str, size: int) -> None:
    """Set how large a record a topic takes."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": shop.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10)


def test_a_letter_that_is_too_large_for_its_topic_is_named_and_nothing_is_lost(shop: Shop) -> None:
    """Its headers may make it so; with the limit raised it is published, each letter once."""
    topics.create(shop.bootstrap, shop.dead, partitions=2, config={"max.message.bytes": 20_000})
    noise = bytes(range(256)) * 78  # 19,968 bytes
    rows = shop.letters(5)
    rows[3] |= {"message_payload": noise, "message_headers": [{"key": "h", "value": b"h" * 256}]}
    shop.configure(kafka={**shop.document["kafka"], "compression.type": "none"}).quarantine(*rows)

    with pytest.raises(RefusedError, match=f"{shop.topic}/0/3 is too large for topic {shop.dead}") as caught:
        publish(shop)

    assert caught.value.exit_code == 4
    assert "max.message.bytes" in caught.value.hint
    limit(shop, shop.dead, 30_000)
    publish(shop)
    assert origins(dead(shop)) == coordinates(*rows)


def test_many_small_letters_go_to_a_topic_that_takes_only_small_batches(shop: Shop) -> None:
    """The broker refuses a batch by its size; that is no reason to refuse the records in it."""
    topics.create(shop.bootstrap, shop.dead, partitions=2, config={"max.message.bytes": 2_000})
    rows = shop.letters(200)
    shop.configure(kafka={**shop.document["kafka"], "compression.type": "none"}).quarantine(*rows)

    publish(shop)

    assert origins(dead(shop)) == coordinates(*rows)


def test_small_letters_are_told_from_an_outage_while_more_of_them_are_sent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch refused for its size fails the transaction before its report says so: the next record waits for it."""
    topics.create(shop.bootstrap, shop.dead, partitions=2, config={"max.message.bytes": 2_000})
    rows = shop.letters(200)
    shop.configure(kafka={**shop.document["kafka"], "compression.type": "none"}).quarantine(*rows)
    produce = Sender._produce
    calls = itertools.count(1)

    def late(*record: Any) -> None:
        if next(calls) == 100:
            time.sleep(0.5)  # by now the broker has refused those before, and no report was served
        produce(*record)

    monkeypatch.setattr(Sender, "_produce", late)

    publish(shop)

    assert origins(dead(shop)) == coordinates(*rows)


def test_a_large_record_is_published_like_any_other(shop: Shop) -> None:
    """What the source takes, librdkafka's own limit of a megabyte must not keep back."""
    shop.quarantine(letter(shop.topic, 0, 0, message_payload=bytes(3 << 20)))

    publish(shop)

    assert [len(message.value() or b"") for message in dead(shop)] == [3 << 20]


# --- kills, and two at once ------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize(
    ("step", "nth", "style"),
    [
        ("dead_letters.publish:Publisher._note", 1, "headers"),  # the first ends are noted, nothing is sent
        ("kafka.sender:Sender.send", 1, "headers"),  # one portion of the first entry is there
        ("kafka.sender:Sender.send", 3, "envelope"),  # the first entry is there, a part of the second too
        ("dead_letters.publish:Publisher._send_entry", 2, "headers"),  # all is there, and only the progress is missing
    ],
)
def test_a_publisher_killed_at_any_step_leaves_nothing_out_and_doubles_nothing(
    shop: Shop, step: str, nth: int, style: str
) -> None:
    """The topic itself tells the next one what is there."""
    rows = shop.letters(20)
    shop.configure(dead_letters={"format": style})
    shop.quarantine(*rows[:10])
    shop.quarantine(*rows[10:])

    with Stopped(step, "dlq", "publish", shop.config, nth=nth, rows=5) as publisher:
        publisher.killed()
    shop.configure(dead_letters={"format": "headers"})
    publish(shop)

    assert [offset_of(message) for message in dead(shop)] == list(range(20))


def offset_of(message: Message) -> int:
    """Return the offset of a dead letter's record, in either format."""
    value = message.value() or b""
    if value.startswith(b"{"):
        found: int = json.loads(value)["original_offset"]
        return found
    return origins([message])[0].offset


@pytest.mark.faults
@pytest.mark.parametrize(
    ("step", "when", "nth"),
    [
        ("kafka.sender:Sender.send", "before", 2),  # it still has letters to send
        ("kafka.sender:Sender.send", "after", 4),  # all are sent: then it asks where the topics end, and notes that
        ("dead_letters.publish:Publisher._note", "before", 2),  # it has asked, and only notes
    ],
)
def test_a_publisher_that_was_held_still_sends_nothing_that_another_has_sent(
    shop: Shop, step: str, when: str, nth: int
) -> None:
    """However long it slept, and wherever: Kafka refuses what it sends, or the table what it notes."""
    rows = shop.letters(22)
    shop.quarantine(*rows[:20])

    with Stopped(step, "dlq", "publish", shop.config, when=when, number=signal.SIGSTOP, nth=nth, rows=5) as sleeper:
        eventually(lambda: sleeper.held)
        publish(shop)
        shop.quarantine(*rows[20:])
        publish(shop)
        sleeper.go_on()
        code, said = sleeper.ended()
    publish(shop)

    assert code == 0, said
    assert origins(dead(shop)) == coordinates(*rows)


@pytest.mark.faults
def test_two_publishers_at_once_send_each_letter_once(shop: Shop) -> None:
    """Each may shut the other out; between them all is sent."""
    rows = shop.letters(200)
    for first in range(0, 200, 20):
        shop.quarantine(*rows[first : first + 20])
    start = threading.Barrier(2)

    def one(_: int) -> None:
        start.wait(10)
        publish(shop)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(2)))  # raises what any of them raised

    assert origins(dead(shop)) == coordinates(*rows)


@pytest.mark.faults
def test_a_topic_of_which_retention_was_quicker_gets_a_letter_again_rather_than_never(shop: Shop) -> None:
    """What was there can't be seen any more; at least once is what is left."""
    rows = shop.letters(2)
    shop.quarantine(rows[0])
    publish(shop)
    shop.quarantine(rows[1])
    with Stopped("kafka.sender:Sender.send", "dlq", "publish", shop.config) as publisher:
        publisher.killed()
    end = max(message.offset() or 0 for message in dead(shop)) + 1
    topics.expire(shop.bootstrap, shop.dead, 0, end)

    publish(shop)

    assert origins(dead(shop)) == coordinates(rows[1])


# --- every so often --------------------------------------------------------------------------------------------------


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own
        text: str = answer.read().decode()
    return text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_publisher_that_goes_on_shows_itself_and_ends_at_a_signal(shop: Shop, number: signal.Signals) -> None:
    """It counts what it sent, says that dead letters get through, and ends with 0."""
    shop.configure(http={"port": 0}, log={"format": "json"})
    shop.quarantine(*shop.letters(2))

    with Command("dlq", "publish", shop.config, "--every", "1s") as publisher:
        publisher.wait_for('"dead letters published"')
        lines = [json.loads(line) for line in publisher.stderr.splitlines()]
        url = next(line["url"] for line in lines if line["event"] == "http server listens")
        shop.quarantine(*shop.letters(3, partition=1))
        publisher.wait_for('"dead letters published"', count=2)
        eventually(lambda: json.loads(get(f"{url}/api/status"))["routes"][ROUTE]["published"] == 5)
        health = json.loads(get(f"{url}/actuator/health"))
        metrics = get(f"{url}/metrics")
        ready = get(f"{url}/readyz")
        publisher.signal(number)
        ended = publisher.end()

    assert ended.code == 0, ended.stderr
    up = {"status": "UP"}
    assert health == {"status": "UP", "components": dict.fromkeys(("kafka", "storage", "breaker", "dead_letters"), up)}
    assert f'ingestor_dead_letters_total{{route="events",topic="{shop.topic}"}} 5.0' in metrics
    assert ready == "ready\n"
    assert len(dead(shop)) == 5


def test_a_pause_that_is_none_is_refused(shop: Shop) -> None:
    """In our words, not in those of a library."""
    for text in ("often", "0s"):
        with pytest.raises(ConfigError, match=f"--every {text}: is (no duration|less than)"):
            commands.publish(shop.settings(), [ROUTE], text, skip_gap=False, tell=print)
