"""Refusals that the log itself remembers, so that no restart forgets them.

A checkpoint keeps txn actions for as long as the table lives. So what a guard has to know stands in txn actions of its
own, beside those of the partitions. Their app ids begin with `ingestor:` and end with `/`: no partition's does.

    ingestor:origin/{txn app id}/{topic}/{topic id}/   which topic the partition's rows came from; the version counts up
    ingestor:removed/{txn app id}/                     the log entry that took rows away; -1: a person has answered
    ingestor:adopted/{txn app id}/{foreign app id}/    the foreign txn that a person has taken over from

Everything here is pure. The committer asks before each commit, the placer before it reads a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from ingestor.errors import ConfigError, RefusedError
from ingestor.ledger import MEMORY, START_APPLIED, AppIds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ingestor.delta.removals import Removal
    from ingestor.records import TopicPartition

_ORIGIN = f"{MEMORY}origin/"
_REMOVED = f"{MEMORY}removed/"
_ADOPTED = f"{MEMORY}adopted/"
_ANSWERED = -1
_SHOWN = 3  # of many partitions an error names so many


class Answer(StrEnum):
    """What a person says about partitions that were refused, or may be."""

    SET = "the partition goes on from here, whoever wrote before, and whatever topic it was"
    ACCEPT = "what was removed stays gone"


class Origin(NamedTuple):
    """The topic that a partition's rows came from. `topic_id` is empty where the cluster could not tell it."""

    topic: str
    topic_id: str
    generation: int


@dataclass(slots=True)
class Guards:
    """The guards of one route's table. Holds nothing but what it has worked out of the txns it was last shown."""

    route: str
    table_uri: str
    app_ids: AppIds
    _count: int = -1  # keys are only ever added, and never change their meaning: an equal count means equal keys
    _origins: dict[str, Origin] = field(default_factory=dict)
    _foreign: dict[TopicPartition, list[str]] = field(default_factory=dict)

    # --- what the log says ---

    def origin(self, txns: Mapping[str, int], tp: TopicPartition) -> Origin | None:
        """Return which topic the partition's rows came from, None if the log does not tell."""
        self._learn(txns)
        return self._origins.get(self.app_ids.of(tp))

    def recreated(self, txns: Mapping[str, int], tp: TopicPartition, topic_id: str | None) -> bool:
        """Tell whether the topic is another one, of the same name, than the one that the rows came from."""
        origin = self.origin(txns, tp)
        return origin is not None and bool(topic_id) and bool(origin.topic_id) and origin.topic_id != topic_id

    def foreign(self, txns: Mapping[str, int], tps: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Return a foreign app id for each of these partitions that one accounts for, unless a person took over.

        A partition that we have never committed is taken by any app id that may mean it. One that is ours already
        only by an app id that names its very topic: other programs' app ids often end in a number, too.
        """
        self._learn(txns)
        found = {}
        for tp in self._foreign.keys() & set(tps):
            ours = self.app_ids.of(tp)
            for app_id in self._foreign[tp]:
                fresh = ours not in txns
                adopted = txns.get(_adopted_key(ours, app_id)) == txns[app_id]
                if fresh or (not adopted and self.app_ids.names_topic(app_id, tp)):
                    found[tp] = app_id
        return found

    def _learn(self, txns: Mapping[str, int]) -> None:
        if len(txns) == self._count:
            return
        self._count, self._origins, self._foreign = len(txns), _origins(txns), {}
        for app_id in txns:
            tp = self.app_ids.parse_foreign(app_id)
            if tp is not None:
                self._foreign.setdefault(tp, []).append(app_id)

    # --- what is refused ---

    def check(
        self,
        txns: Mapping[str, int],
        tps: Collection[TopicPartition],
        other_topics: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, str]] = lambda _tps: {},
    ) -> None:
        """Refuse to go on with any of these partitions if the log says that a person has to look first.

        `other_topics` tells which of the partitions share their number with rows of another topic. It is asked only
        where txns do not name the topic and the log does not tell their origin.
        """
        foreign = self.foreign(txns, tps)
        if foreign:
            tp = min(foreign)
            raise self.foreign_error(tp, f"under txn app id {foreign[tp]!r}")
        unnamed = set()
        for tp in () if self.app_ids.by_topic else tps:
            origin = self.origin(txns, tp)
            if origin is not None and origin.topic != tp.topic:
                raise self._renamed(tp, f"belongs to topic {origin.topic}")
            if origin is None and self.app_ids.of(tp) in txns:
                unnamed.add(tp)
        for tp, topic in other_topics(unnamed).items() if unnamed else ():
            raise self._renamed(tp, f"may belong to topic {topic}, of which the table holds rows")

    def refuse_removed(self, txns: Mapping[str, int], seen: Removal | None = None) -> None:
        """Refuse the route while any of its partitions is unanswered for; `seen` tells more of the entry."""
        version, tps = self.removed(txns)
        if tps:
            shown = ", ".join(map(str, tps[:_SHOWN])) + (", …" if len(tps) > _SHOWN else "")
            what = seen.what if seen is not None and seen.version == version else "it removed rows or moved txns back"
            msg = (
                f"route {self.route}: log entry {version} of table {self.table_uri} needs an answer: {what}; "
                f"nobody has answered for {shown}"
            )
            raise RefusedError(msg, hint=removed_hint(version))

    def removed(self, txns: Mapping[str, int]) -> tuple[int, list[TopicPartition]]:
        """Return the newest entry that took rows away, and our partitions that nobody has answered for."""
        found = {tp: txns.get(_removed_key(self.app_ids.of(tp)), _ANSWERED) for tp in self.app_ids.read(txns)}
        return max(found.values(), default=_ANSWERED), sorted(tp for tp, at in found.items() if at != _ANSWERED)

    def foreign_error(self, tp: TopicPartition, by: str) -> ConfigError:
        """Return the refusal of a partition whose rows somebody else has landed."""
        msg = (
            f"route {self.route}: table {self.table_uri} already holds {tp} {by}, none under app_id "
            f"{self.app_ids.app_id!r}: reading it again would double its rows"
        )
        return ConfigError(
            msg,
            hint=(
                "set app_id (and txn_app_id) back to what wrote those rows, or adopt the table with "
                f"`ingestor offsets CONFIG --set {tp}=OFFSET` for each partition (OFFSET: the next one to read)"
            ),
        )

    def _renamed(self, tp: TopicPartition, whose: str) -> ConfigError:
        msg = (
            f"route {self.route}: table {self.table_uri} has a txn {self.app_ids.of(tp)!r} that {whose}, not to "
            f"{tp.topic}: its position means nothing here"
        )
        return ConfigError(
            msg,
            hint=(
                "take a new table or a txn_app_id with {topic} for the new topic, or say where it begins with "
                f"`ingestor offsets CONFIG --set {tp}=earliest` for each partition"
            ),
        )

    # --- what is to be remembered ---

    def new_origins(
        self, txns: Mapping[str, int], tps: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[str, int]:
        """Return the txn actions that record where partitions come from, for those of which the log says otherwise."""
        found = {}
        for tp in tps:
            if tp == START_APPLIED:
                continue
            known = self.origin(txns, tp)
            topic_id = topic_ids.get(tp.topic, "")
            if known is not None and known.topic == tp.topic and (known.topic_id == topic_id or not topic_id):
                continue
            generation = 0 if known is None else known.generation + 1
            # Kafka writes topic ids in base64, which has slashes.
            found[f"{_ORIGIN}{self.app_ids.of(tp)}/{tp.topic}/{quote(topic_id, safe='')}/"] = generation
        return found

    def answers(
        self, txns: Mapping[str, int], tps: Collection[TopicPartition], answer: Answer, topic_ids: Mapping[str, str]
    ) -> dict[str, int]:
        """Return the txn actions by which a person answers for partitions."""
        removed = {_removed_key(self.app_ids.of(tp)) for tp in tps}
        found = {key: _ANSWERED for key in removed if txns.get(key, _ANSWERED) != _ANSWERED}
        if answer is Answer.ACCEPT:
            return found
        self._learn(txns)
        for tp in tps:
            for app_id in self._foreign.get(tp, ()):
                found[_adopted_key(self.app_ids.of(tp), app_id)] = txns[app_id]
        return found | self.new_origins(txns, tps, topic_ids)


def removed_hint(version: int) -> str:
    """Return what to do about an entry that took rows away."""
    return (
        "see with `ingestor audit` what is gone; then set the offsets to read again from, with `ingestor offsets "
        f"CONFIG --set`, or keep them as they are with `ingestor offsets CONFIG --accept {version}`"
    )


def removal_marks(txns: Mapping[str, int], version: int) -> dict[str, int]:
    """Return the txn actions that remember an entry which took rows away: one for each partition of anybody's."""
    return {_removed_key(app_id): version for app_id in txns if not app_id.startswith(MEMORY)}


def remembered_removal(txns: Mapping[str, int]) -> int:
    """Return the newest entry that any of these txn actions remembers as one that took rows away, else -1."""
    return max((at for app_id, at in txns.items() if app_id.startswith(_REMOVED)), default=_ANSWERED)


def _removed_key(app_id: str) -> str:
    return f"{_REMOVED}{app_id}/"


def _adopted_key(ours: str, foreign: str) -> str:
    return f"{_ADOPTED}{quote(ours, safe='')}/{quote(foreign, safe='')}/"


def _origins(txns: Mapping[str, int]) -> dict[str, Origin]:
    found: dict[str, Origin] = {}
    for key, generation in txns.items():
        if key.startswith(_ORIGIN):
            app_id, topic, topic_id, _ = key.removeprefix(_ORIGIN).rsplit("/", 3)
            if app_id not in found or found[app_id].generation < generation:
                found[app_id] = Origin(topic, unquote(topic_id), generation)
    return found
