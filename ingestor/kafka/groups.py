"""Asks the coordinator of a consumer group for its members, under the classic protocol and KIP-848.

A child process asks. If the connection to the coordinator is lost at the wrong moment, librdkafka's request aborts the
whole process by an assertion (confluentinc/librdkafka issue 4605, of 2024, open in 2026-04). A killed broker would
then take down every ingestor that asks why nothing is assigned.

This file is both parent and child. The child runs it as a script, so it imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Mapping

_REBALANCING = (
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
    ConsumerGroupState.UNKNOWN,  # KIP-848 has states that the client does not know
)
# A broker's answers while it takes over a group, for example the first group of a new cluster.
_COORDINATOR_MOVES = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_ASK_AGAIN_SECONDS = 0.3
_START_SECONDS_MAX = 20.0  # for the child's start on an overloaded machine
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as its coordinator sees it; a group that does not exist has no members."""

    members: tuple[str, ...]  # client id and host of each
    rebalancing: bool = False  # it waits for its members; for dead ones until their sessions time out

    @property
    def shown(self) -> str:
        """Return some of the members, for people."""
        return ", ".join(self.members[:_SHOWN]) + (", …" if len(self.members) > _SHOWN else "")


class NoAnswer(Exception):  # noqa: N818 - the caller classifies its errors
    """Kafka gave no answer; `errors` has the request's error first, then those of the error callback."""

    def __init__(self, errors: list[KafkaError]) -> None:
        super().__init__("; ".join(error.str() for error in errors))
        self.errors = errors


class Coordinators:
    """Asks the coordinators of groups, one request at a time."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._lock = threading.Lock()
        self._other: subprocess.Popen[bytes] | None = None
        self._ended = False

    def describe(self, group_id: str, seconds: float) -> Group | None:
        """Return a group, None if the cluster can't describe groups (librdkafka's mock); wait at most `seconds`."""
        answer = self._ask({"describe": group_id, "seconds": seconds})
        return None if answer is None else Group(tuple(answer["members"]), answer["rebalancing"])

    def forget(self, group_id: str, seconds: float) -> None:
        """Delete an empty group if the cluster allows it; otherwise Kafka expires it."""
        with contextlib.suppress(NoAnswer):
            self._ask({"forget": group_id, "seconds": seconds})

    def end(self) -> None:
        """Kill the child, and start no other."""
        with self._lock:
            self._ended = True
            other = self._other
        if other is not None:
            other.kill()
            other.wait()

    def _ask(self, question: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        with self._lock:
            if self._ended:
                raise NoAnswer([KafkaError(KafkaError._DESTROY, "the process ends")])
            # -P keeps this folder off the module path: names here may hide modules of the standard library.
            command = [sys.executable, "-P", __file__]
            pipe = subprocess.PIPE
            other = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603 - ourselves
            self._other = other
        said = _talk(other, {**question, "config": self._config})
        with self._lock:
            self._other = None
        if not said.endswith(b"\n"):
            raise NoAnswer([KafkaError(KafkaError._FAIL, "the Kafka client died during the request")])
        answer = json.loads(said)
        if "errors" in answer:
            raise NoAnswer([KafkaError(code, text) for code, text in answer["errors"]])
        return answer["answer"]


def _talk(other: subprocess.Popen[bytes], question: Mapping[str, Any]) -> bytes:
    """Send a question to the child, and return its answer; kill the child after the time limit."""
    with contextlib.suppress(BrokenPipeError), other:
        assert other.stdin is not None  # noqa: S101 - for the type checker
        assert other.stdout is not None  # noqa: S101 - same
        late = threading.Timer(question["seconds"] + _START_SECONDS_MAX, other.kill)
        late.daemon = True
        late.start()
        try:
            other.stdin.write(f"{json.dumps(question)}\n".encode())
            other.stdin.flush()
            return other.stdout.readline()
        finally:
            late.cancel()
            other.kill()
    return b""


# --- the child process ---


def _main() -> None:
    """Answer one question; end when the parent ends."""
    question = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_asker, daemon=True).start()
    heard: list[KafkaError] = []
    client: dict[str, Any] = {**question["config"], "error_cb": heard.append}
    admin = AdminClient(client)
    try:
        if "forget" in question:
            seconds = question["seconds"]
            group_id = question["forget"]
            found = admin.delete_consumer_groups([group_id], request_timeout=seconds)[group_id].result(seconds + 1)
        else:
            found = _describe(admin, question["describe"], question["seconds"])
        answer: dict[str, Any] = {"answer": found}
    except (KafkaException, TimeoutError) as error:
        admin.poll(0)
        first = error.args[0] if isinstance(error, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
        answer = {"errors": [(each.code(), each.str()) for each in (first, *heard)]}
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)


def _describe(admin: AdminClient, group_id: str, seconds: float) -> dict[str, Any] | None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = admin.describe_consumer_groups([group_id], request_timeout=seconds)[group_id].result(seconds + 1)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return {"members": [], "rebalancing": False}
            if code == KafkaError._UNSUPPORTED_FEATURE:
                return None
            if code not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_SECONDS)
        else:
            members = [f"{member.client_id} at {member.host.removeprefix('/')}" for member in found.members]
            return {"members": members, "rebalancing": found.state in _REBALANCING}


def _end_with_the_asker() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    _main()
