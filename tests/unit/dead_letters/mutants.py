"""Breaks of ingestor/dead_letters, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "a replay given up without looking again",
        at="Replayer._read_intent",
        old="self.table.compare_and_swap(lambda newest: self._give_up(newest, txn))",
        new="self._give_up(version, txn)",
        tests=("tests/integration/test_replay.py::test_a_replay_is_given_up_beside_other_writers",),
    ),
    Mutant(
        "a mark that any letter of the attempt could bear",
        at="Attempt.mark",
        old="self.secret.encode(), str(origin).encode(), hashlib.sha256",
        new='self.secret.encode(), b"", hashlib.sha256',
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "a mark that other attempts' letters bear too",
        at="Attempt.mark",
        old="self.secret.encode(), str(origin).encode(), hashlib.sha256",
        new='b"", str(origin).encode(), hashlib.sha256',
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "marks in any header are believed",
        at="mark_of",
        old="name, value = headers[-1]",
        new="name, value = headers[0]",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "portions of any size",
        at="_Kept.put",
        old="while self._size > _BYTES_MAX and",
        new="while False and",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "a RESTORE of dead letters is passed over",
        at="puts_back",
        old='    if operation == "RESTORE":\n',
        new="    if False:\n",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "an overwrite of dead letters is passed over",
        at="puts_back",
        old=" and operation not in _KEEPS_ROWS",
        new=" and False",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "replays that touch are forgotten",
        at="_joined",
        old="max(last, joined[-1][1])",
        new="last",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "ids of dead letter topics are not compared",
        at="_is_other",
        old="return bool(noted.id) and ids.get(name, noted.id) != noted.id",
        new="return False",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "a topic whose id is not told is the same",
        at="_told_ids",
        old="    if untold:\n",
        new="    if False:\n",
        tests=("tests/unit/dead_letters/test_dead_letters.py",),
    ),
    Mutant(
        "what was replayed is not remembered",
        at="Replayer._close",
        old="self._replayed(version).txns_with(done) | closed",
        new="closed",
        tests=("tests/integration/test_letters_once.py::test_what_was_replayed_stays_so_after_a_restore",),
    ),
)
