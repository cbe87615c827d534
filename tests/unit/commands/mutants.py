"""Breaks of ingestor/commands, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "repair sets aside what others were built on",
        at="repair:find",
        old="    _refuse_torn_below(storage, newest)\n",
        new="",
        tests=("tests/unit/commands/test_repair.py",),
    ),
    Mutant(
        "repair sets aside what a checkpoint has",
        at="repair:find",
        old="        if max(checkpoints, default=-1) >= newest:\n",
        new="        if False:\n",
        tests=("tests/unit/commands/test_repair.py",),
    ),
    Mutant(
        "repair takes every torn entry for ours",
        at="_writer",
        old="_INGESTOR if is_ours(info) else",
        new="_INGESTOR if True else",
        tests=("tests/unit/commands/test_repair.py",),
    ),
    Mutant(
        "offsets set beside a running ingestor",
        at="_refuse_members",
        old="    if group.members:\n",
        new="    if False:\n",
        tests=("tests/unit/commands/test_set_offsets.py",),
    ),
    Mutant(
        "offsets set where nobody tells who is in the group",
        at="_refuse_members",
        old="    if group is None:\n        raise RefusedError(",
        new="    if group is None:\n        return\n        raise RefusedError(",
        tests=("tests/unit/commands/test_set_offsets.py",),
    ),
    Mutant(
        "rows doubled by setting an offset back",
        at="_refuse_doubling",
        old="        if last >= position:\n",
        new="        if last > position:\n",
        tests=("tests/unit/commands/test_set_offsets.py",),
    ),
    Mutant(
        "a drain that a signal ended is done",
        at="Drain.verdict",
        old="        if not self._done:\n            raise",
        new="        if False:\n            raise",
        tests=("tests/unit/commands/test_drain.py",),
    ),
    Mutant(
        "a drain is done with its own share",
        at="Drain._look_around",
        old="self._done = not lacking or self._others_are_done(lacking, now)",
        new="self._done = bool(ours) or self._others_are_done(lacking, now)",
        tests=("tests/unit/commands/test_drain.py",),
    ),
    Mutant(
        "a drain whose last rows were fenced is done",
        at="Drain.verdict",
        old="        if self._watch.dropped != self._dropped_before:",
        new="        if False:",
        tests=("tests/unit/commands/test_drain.py",),
    ),
    Mutant(
        "a drain that waits for others with its own rows in hand",
        at="Drain._look_around",
        old="        if lacking and not self._flushed:",
        new="        if False:",
        tests=("tests/unit/commands/test_drain.py",),
    ),
    Mutant(
        "a drain that waits for ever",
        at="Drain._look_around",
        old="now - self._moved_at > self._patience()",
        new="False",
        tests=("tests/unit/commands/test_drain.py",),
    ),
    Mutant(
        "a drain that gives up on a dead member's partitions",
        at="Drain._patience",
        old=("        return max(self._patience_seconds, self._membership.session_seconds + _AFTER_SESSION_SECONDS)\n"),
        new="        return self._patience_seconds\n",
        tests=("tests/unit/commands/test_drain.py",),
    ),
    Mutant(
        "init takes a topic that Kafka has not",
        at="_found",
        old="    if missing:\n        near",
        new="    if False:\n        near",
        tests=("tests/unit/commands/test_init.py",),
    ),
    Mutant(
        "init writes before the configuration is checked",
        at="init:init",
        old="    settings = check(",
        new="    _write(path, text, force=force)\n    force = True\n    settings = check(",
        tests=("tests/unit/commands/test_init.py",),
    ),
    Mutant(
        "init overwrites",
        at="init:init",
        old="    if path.exists() and not force:\n        raise _exists(path)\n",
        new="    force = True\n",
        tests=("tests/unit/commands/test_init.py",),
    ),
    Mutant(
        "status ends well though the process is not",
        at="status:status",
        old='    if not found["ready"] or not found["live"]:\n',
        new='    if not found["ready"]:\n',
        tests=("tests/unit/commands/test_status_command.py",),
    ),
    Mutant(
        "status lets a process steer the terminal",
        at="status:_text",
        old='char if char.isprintable() else " "',
        new="char",
        tests=("tests/unit/commands/test_status_command.py",),
    ),
    Mutant(
        "check --json is well where nobody foresaw the end",
        at="check:check",
        old="    code = IngestorError.exit_code\n",
        new="    code = 0\n",
        tests=("tests/unit/commands/test_check.py",),
    ),
)
