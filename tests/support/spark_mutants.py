"""The breaks of the Spark jobs that `tests.mutants` tries: of how a step lands exactly once, and which rows it has."""

from __future__ import annotations

from tests.support.mutant import Mutant

_STEPS = ("tests/unit/spark_jobs/test_spark_steps.py", "tests/unit/spark_jobs/test_spark_exactly_once.py")
_EXACTLY_ONCE = _STEPS[1:]
_KEYS = ("tests/spark/test_dedupe.py::test_keys_of_bytes_are_compared_as_bytes",)
_BITS = ("tests/spark/test_avro_bits.py::test_numbers_of_their_types_are_kept_and_no_others",)

SPARK_MUTANTS = (
    # --- a claim ---
    Mutant(
        "a claim takes another's place",
        "spark_jobs/steps/checkpoint.py",
        "        if not Files(self.session).create(self._step_path(step.number), step.to_json()):\n"
        "            return False\n",
        "        Files(self.session).replace(self._step_path(step.number), step.to_json())\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a claim of long ago",
        "spark_jobs/steps/checkpoint.py",
        "        if max(self._numbers()) > step.number:",
        "        if False:",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a step ended twice",
        "spark_jobs/steps/checkpoint.py",
        "        return mine\n",
        "        return True\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a claim's hash of what this version would write",
        "spark_jobs/steps/steps.py",
        "        if self.text is not None:\n",
        "        if False:\n",
        _STEPS,
    ),
    # --- a commit ---
    Mutant(
        "a commit by another plan taken for ours",
        "spark_jobs/steps/tables.py",
        "        if claim != step.claim:\n",
        "        if False:\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a step that others have gone past lands",
        "spark_jobs/steps/tables.py",
        "        if txn is None or txn < step.number:\n",
        "        if txn != step.number:\n",
        _EXACTLY_ONCE,
    ),
    # --- an open step ---
    Mutant(
        "an open step passed over",
        "spark_jobs/steps/work.py",
        '            return self.take_up("parse")\n',
        "            pass\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "an open step by the present plan",
        "spark_jobs/steps/work.py",
        "        found = self._carry_out(step)\n",
        "        found = self._carry_out(dataclasses.replace(step, plan=self.job.plan))\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a step carried out that is given up by half",
        "spark_jobs/steps/work.py",
        "        if landed is not None:\n            return landed.void\n",
        "",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a step given up that has landed in one table",
        "spark_jobs/steps/work.py",
        "            if not landed.void:\n                return False\n",
        "",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a step given up without a fence",
        "spark_jobs/steps/work.py",
        "            landed = sink.landed(step) or sink.fence(step, void=True)\n",
        "            landed = sink.landed(step)\n            if landed is None:\n                continue\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "rows deleted since a claim",
        "spark_jobs/steps/work.py",
        "        changed = step.batch is not None and self.job.raw.deleted_since(step.batch.version)\n",
        "        changed = False\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "a reset deletes and then claims",
        "spark_jobs/steps/reset.py",
        "        step = _claimed(session, route, checkpoint, empty=empty)\n"
        "        process(session, (route.settings.table, route.settings.quarantine), step)\n",
        "        step = _step(session, route, checkpoint, empty=empty)\n"
        "        process(session, (route.settings.table, route.settings.quarantine), step)\n"
        "        checkpoint.claim(step)\n",
        _EXACTLY_ONCE,
    ),
    # --- which rows ---
    Mutant(
        "rows deleted before a claim",
        "spark_jobs/steps/raw.py",
        "any(self._entry(version).removes for version in range(since, newest + 1)) if files else False",
        "False",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "rows that a MERGE rewrites are new",
        "spark_jobs/steps/raw.py",
        "            replaced = entry.removes if entry.rewrites else ()\n",
        "            replaced = ()\n",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "two entries that rewrite files in one batch",
        "spark_jobs/steps/raw.py",
        "            if files and (replaced or entry.rewrites):\n                break\n",
        "",
        _EXACTLY_ONCE,
    ),
    Mutant(
        "keys compared as text",
        "spark_jobs/rows/duplicates.py",
        "    return F.when(~missing, whole)\n",
        '    return F.when(~missing, F.to_json(F.struct(*(column.cast("string") for column in columns))))\n',
        _KEYS,
    ),
    Mutant(
        "Avro's ints cut to 32 bits",
        "spark_jobs/rows/avro_resolution.py",
        '    return _with_ints_as("long", _unrounded(schema))\n',
        '    return _with_ints_as("int", _unrounded(schema))\n',
        _BITS,
    ),
    Mutant(
        "Avro's longs cut to 64 bits",
        "spark_jobs/rows/avro_records.py",
        "        lost |= shapes.anywhere(found, each.type, each.name, cut)\n",
        "",
        _BITS,
    ),
)
