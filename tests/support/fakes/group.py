"""A consumer group's coordinator: hands out partitions to members, eagerly or cooperatively.

A member learns of a change only when it polls. One that does not poll may be expired: the others get its partitions,
and it goes on as if it had them, until its next poll tells it that they are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ingestor.records import TopicPartition


class Member(Protocol):
    """Who is told of changes, from inside its own poll."""

    name: str
    held: set[TopicPartition]

    def gain(self, tps: Collection[TopicPartition]) -> None:
        """Take partitions over."""

    def yield_up(self, tps: Collection[TopicPartition]) -> None:
        """Give partitions back in good order."""

    def lose(self, tps: Collection[TopicPartition]) -> None:
        """Hear that partitions are gone already."""


class FakeGroup:
    """The coordinator. `owners` is what it believes, `wanted` what it is after."""

    def __init__(self, tps: Iterable[TopicPartition], *, eager: bool) -> None:
        self.eager = eager
        self.members: list[str] = []
        self.owners: dict[TopicPartition, str] = {}
        self.wanted: dict[TopicPartition, str] = {}
        self._tps = sorted(tps)
        self._generation = 0
        self._joined: dict[str, int] = {}  # eager: the generation that a member has joined with empty hands
        self._given: dict[str, int] = {}  # eager: the generation in which a member got its share
        self._expired: set[str] = set()

    def join(self, name: str) -> None:
        """Take a member in, and share anew."""
        self.members.append(name)
        self.share()

    def leave(self, name: str) -> None:
        """Let a member go: it said so, or it is known to be dead."""
        if name in self.members:
            self.members.remove(name)
        self._release(name, self._tps)
        self.share()

    def expire(self, name: str) -> None:
        """Give up a member that has not been heard of; it does not know yet."""
        if name in self.members:
            self._expired.add(name)
            self.leave(name)

    def share(self, wanted: Mapping[TopicPartition, str] | None = None) -> None:
        """Begin a rebalance towards an assignment: the given one, or an even one."""
        even = {tp: self.members[at % len(self.members)] for at, tp in enumerate(self._tps)} if self.members else {}
        self.wanted = {tp: (wanted or {}).get(tp, name) for tp, name in even.items()}
        self._generation += 1

    def serve(self, member: Member) -> None:
        """Tell a member, which polls, all that changed for it."""
        if member.name in self._expired:
            self._expired.discard(member.name)
            member.lose(set(member.held))
            self.join(member.name)
        if member.name in self.members:
            (self._serve_eagerly if self.eager else self._serve_cooperatively)(member)

    def _serve_eagerly(self, member: Member) -> None:
        generation = self._generation
        if self._joined.get(member.name) != generation:
            if member.held:
                gone = set(member.held)
                member.yield_up(gone)
                self._release(member.name, gone)
            self._joined[member.name] = generation
        all_here = all(self._joined.get(name) == self._generation for name in self.members)
        if all_here and self._given.get(member.name) != self._generation:
            self._given[member.name] = self._generation
            self._hand_over(member, {tp for tp, name in self.wanted.items() if name == member.name})

    def _serve_cooperatively(self, member: Member) -> None:
        gone = {tp for tp in member.held if self.wanted.get(tp) != member.name}
        if gone:
            member.yield_up(gone)
            self._release(member.name, gone)
        mine = {tp for tp, name in self.wanted.items() if name == member.name}
        free = {tp for tp in mine - member.held if tp not in self.owners}
        if free:
            self._hand_over(member, free)

    def _hand_over(self, member: Member, tps: set[TopicPartition]) -> None:
        self.owners.update(dict.fromkeys(tps, member.name))
        member.gain(tps)

    def _release(self, name: str, tps: Iterable[TopicPartition]) -> None:
        for tp in list(tps):
            if self.owners.get(tp) == name:
                del self.owners[tp]
