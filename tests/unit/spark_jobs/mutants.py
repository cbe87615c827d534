"""Breaks of the Spark jobs, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "a claim takes another's place",
        at="Checkpoint.claim",
        old=(
            "        if not Files(self.session).create(self._step_path(step.number), step.to_json()):\n"
            "            return False\n"
        ),
        new="        Files(self.session).replace(self._step_path(step.number), step.to_json())\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a claim of long ago",
        at="Checkpoint.claim",
        old="        if max(self._numbers()) > step.number:",
        new="        if False:",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a step ended twice",
        at="Checkpoint.end",
        old="        return mine\n",
        new="        return True\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a claim's hash of what this version would write",
        at="Step.to_json",
        old="        if self.text is not None:\n",
        new="        if False:\n",
        tests=(
            "tests/unit/spark_jobs/test_spark_steps.py",
            "tests/unit/spark_jobs/test_spark_exactly_once.py",
        ),
    ),
    Mutant(
        "a commit by another plan taken for ours",
        at="Sink._require_claim",
        old="        if claim != step.claim:\n",
        new="        if False:\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a step that others have gone past lands",
        at="Sink.landed",
        old="        if txn is None or txn < step.number:\n",
        new="        if txn != step.number:\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "an open step passed over",
        at="Work.parse_next",
        old='            return self.take_up("parse")\n',
        new="            pass\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "an open step by the present plan",
        at="Work.take_up",
        old="        found = self._carry_out(step)\n",
        new="        found = self._carry_out(dataclasses.replace(step, plan=self.job.plan))\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a step carried out that is given up by half",
        at="Work._to_give_up",
        old="        if landed is not None:\n            return landed.void\n",
        new="",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a step given up that has landed in one table",
        at="Work._given_up",
        old="            if not landed.void:\n                return False\n",
        new="",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a step given up without a fence",
        at="Work._given_up",
        old="            landed = sink.landed(step) or sink.fence(step, void=True)\n",
        new="            landed = sink.landed(step)\n            if landed is None:\n                continue\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "rows deleted since a claim",
        at="Work._to_give_up",
        old="        changed = step.batch is not None and self.job.raw.deleted_since(step.batch.version)\n",
        new="        changed = False\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "a reset deletes and then claims",
        at="reset:reset",
        old=(
            "        step = _claimed(session, route, checkpoint, empty=empty)\n"
            "        process(session, (route.settings.table, route.settings.quarantine), step)\n"
        ),
        new=(
            "        step = _step(session, route, checkpoint, empty=empty)\n"
            "        process(session, (route.settings.table, route.settings.quarantine), step)\n"
            "        checkpoint.claim(step)\n"
        ),
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "rows deleted before a claim",
        at="Raw._batch",
        old="any(self._entry(version).removes for version in range(since, newest + 1)) if files else False",
        new="False",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "rows that a MERGE rewrites are new",
        at="Raw.next",
        old="            replaced = entry.removes if entry.rewrites else ()\n",
        new="            replaced = ()\n",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "two entries that rewrite files in one batch",
        at="Raw.next",
        old="            if files and (replaced or entry.rewrites):\n                break\n",
        new="",
        tests=("tests/unit/spark_jobs/test_spark_exactly_once.py",),
    ),
    Mutant(
        "keys compared as text",
        at="_combined",
        old="    return F.when(~missing, whole)\n",
        new='    return F.when(~missing, F.to_json(F.struct(*(column.cast("string") for column in columns))))\n',
        tests=("tests/spark/test_dedupe.py::test_keys_of_bytes_are_compared_as_bytes",),
    ),
    Mutant(
        "Avro's ints cut to 32 bits",
        at="readable",
        old='    return _with_ints_as("long", _unrounded(schema))\n',
        new='    return _with_ints_as("int", _unrounded(schema))\n',
        tests=("tests/spark/test_avro_bits.py::test_numbers_of_their_types_are_kept_and_no_others",),
    ),
    Mutant(
        "Avro's longs cut to 64 bits",
        at="avro_records:_fault",
        old="        lost |= shapes.anywhere(found, each.type, each.name, cut)\n",
        new="",
        tests=("tests/spark/test_avro_bits.py::test_numbers_of_their_types_are_kept_and_no_others",),
    ),
)
