"""Breaks of ingestor/ingest, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "commit through a fresh handle",
        at="Committer.land",
        old="            compared_at = self._clock()\n",
        new="            compared_at = self._clock()\n            self._table.refresh()\n",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "retry on a new slot while the old one is empty",
        at="Committer._put",
        old="            found = self._table.slot(slot)\n",
        new=(
            "            found = self._table.slot(slot)\n"
            "            if found is None:\n"
            "                self._table.refresh()\n"
        ),
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "no txn in the commit",
        at="Committer._put",
        old="        txns = {self._app_ids.of(tp): last for tp, last in staged.last.items()}\n",
        new="        txns: dict[str, int] = {}\n",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "no fence check",
        at="Committer._compare",
        old="        if stale:\n",
        new="        if False:\n",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "compare before the first try only",
        at="Committer.land",
        old="            self._compare(staged)\n",
        new="            self._table.refresh() if conflicts else self._compare(staged)\n",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "staged file deleted after an unknown outcome",
        at="Committer._put",
        old="            found = self._table.slot(slot)\n",
        new=(
            "            found = self._table.slot(slot)\n"
            "            self._table.storage.discard(staged.files[0].path)\n"
        ),
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "another's entry in our slot taken for ours",
        at="put_once",
        old="Outcome.LANDED_UNANSWERED if found == commit_id else Outcome.CONFLICT",
        new="Outcome.LANDED_UNANSWERED",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "our entry in our slot taken for another's",
        at="put_once",
        old="Outcome.LANDED_UNANSWERED if found == commit_id else Outcome.CONFLICT",
        new="Outcome.CONFLICT",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "an exception taken for not landed",
        at="put_once",
        old="        found = owner()  # no exception tells whether the entry is there\n",
        new="        found = None\n",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "acknowledged before it is durable",
        at="Committer.land",
        old='self._patience.until_answered(lambda: self._table.settle(slot), doing="syncing the log entry")',
        new="pass",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
            "tests/faults/test_power_cut.py::test_a_writer_s_power_is_cut",
        ),
    ),
    Mutant(
        "one retry too few",
        at="compare_and_swap",
        old="range(occ.max_retries + 1)",
        new="range(occ.max_retries or 1)",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "an overlong commit trusted",
        at="Committer.land",
        old="            self._check_fresh(compared_at)\n",
        new="",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a topic that was created again is landed on",
        at="Committer.land",
        old='        self._refuse_recreated(staged, said.get("topic_ids", {}))\n',
        new="",
        tests=("tests/unit/ingest/test_committer.py",),
    ),
    Mutant(
        "the ledger read without a look",
        at="Committer._look",
        old='        self._patience.until_answered(self._table.refresh, doing="reading the Delta log")\n',
        new="",
        tests=(
            "tests/unit/ingest/test_committer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "the breaker never opens",
        at="Breaker.failed",
        old="self._count >= self._failures_max",
        new="False",
        tests=(
            "tests/unit/ingest/test_retry.py",
            "tests/unit/ingest/test_committer.py",
        ),
    ),
    Mutant(
        "the breaker closes with its first probe",
        at="Breaker.succeeded",
        old="self._count >= self._successes_min",
        new="True",
        tests=("tests/unit/ingest/test_retry.py",),
    ),
    Mutant(
        "many probe at a time",
        at="Breaker.enter",
        old="            if self._probing:\n",
        new="            if False:\n",
        tests=("tests/unit/ingest/test_retry.py",),
    ),
    Mutant(
        "a wrong app id looked for at the placement only",
        at="Committer._compare",
        old="                self.check_guards(staged.expected)\n",
        new="                pass\n",
        tests=("tests/unit/ingest/test_committer.py",),
    ),
    Mutant(
        "a wrong app id looked for at the commit only",
        at="Placer.refuse",
        old="            self.committer.check_guards(tps)\n",
        new="            pass\n",
        tests=("tests/unit/ingest/test_placement.py",),
    ),
    Mutant(
        "a removal kept in memory only",
        at="Committer._remember_removal",
        old='                self._put(set_positions({}, marks=marks), {"operation_kind": "refused"})\n',
        new="                raise refusal\n",
        tests=("tests/unit/ingest/test_committer.py",),
    ),
    Mutant(
        "a file that was swapped is committed",
        at="Committer._put",
        old="            if moved_away:\n",
        new="            if False:\n",
        tests=("tests/unit/ingest/test_committer.py",),
    ),
    Mutant(
        "loss accepted without being asked",
        at="Placer.refuse_loss",
        old="if gaps and not self.skip_lost:",
        new="if False:",
        tests=(
            "tests/unit/ingest/test_placement.py",
            "tests/unit/ingest/test_pipeline.py",
        ),
    ),
    Mutant(
        "latest skips an open transaction",
        at="first_positions",
        old="marks.stable for",
        new="marks.high for",
        tests=("tests/unit/ingest/test_placement.py",),
    ),
    Mutant(
        "kept partitions of a dropped file not read again",
        at="Lane.drop",
        old="            again = set(self._draft.last) - set(tps)\n",
        new="",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "gaps not recorded",
        at="Lane.flush",
        old="for tp in sorted(tps) if tp in self._gaps)",
        new="for tp in () if tp in self._gaps)",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "draft kept after a fence",
        at="Lane._start_over",
        old=(
            "        if self._draft is not None:\n"
            "            self._draft.abort()\n"
            "            self._draft = None\n"
            "        if not isinstance(error, Fenced):\n"
        ),
        new="        if not isinstance(error, Fenced):\n",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "positions kept after a fence",
        at="Lane._start_over",
        old="        progress.to_place |= self.positions.keys()\n        self._forget(list(self.positions))\n",
        new="        progress.to_place |= self.positions.keys()\n",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "file of a fenced batch removed",
        at="Lane._look_at_landing",
        old="        error = landing.landed.exception()\n",
        new=(
            "        error = landing.landed.exception()\n"
            "        if error is not None and landing.staged.exception() is None:\n"
            "            self._storage().discard(landing.staged.result().files[0].path)\n"
        ),
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "the chain does not grow",
        at="Lane.flush",
        old="        self._chain.update(draft.last)\n",
        new="",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "the position is the last record taken",
        at="Lane.accept",
        old="span.last + 1",
        new="span.last",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "two batches land at once",
        at="Lane.look",
        old="if self._landing is None and (reason",
        new="if (reason",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a failed file not noticed",
        at="Lane.look",
        old="        if self._draft is not None and self._draft.failure is not None:\n",
        new="        if False:\n",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "positions of revoked partitions kept",
        at="Lane.drop",
        old="        self._forget([*tps, *again])\n",
        new="        self._forget([*again])\n",
        tests=(
            "tests/unit/ingest/test_lane.py",
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "seek instead of assigned offsets",
        at="Partitions.place_pending",
        old="self._source.reposition(starts, kept)",
        new="self._source.seek(starts, kept)",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "an eager assignment forgets the others",
        at="Partitions.place_pending",
        old="self._source.reposition(starts, kept)",
        new="self._source.reposition(starts, {})",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "acknowledging unassigned partitions",
        at="Pipeline._handle",
        old="ours = self._partitions.assigned & flushed.staged.last.keys()",
        new="ours = flushed.staged.last.keys()",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "acknowledging the last offset",
        at="Pipeline._handle",
        old="flushed.staged.last[tp] + 1",
        new="flushed.staged.last[tp]",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "on_lost lands the draft",
        at="Pipeline.on_lost",
        old="        self._joined = False\n        self._partitions.let_go(tps)\n",
        new="        self._joined = False\n        self.on_revoked(tps)\n",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "on_revoked drops what it could land",
        at="Pipeline.on_revoked",
        old="                self._flush_and_wait(holding, FlushReason.REVOKED, deadline)\n",
        new="                pass\n",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a revocation without a deadline",
        at="Pipeline._flush_and_wait",
        old="route.lane.flush_and_wait(reason, deadline.left)",
        new="route.lane.flush_and_wait(reason, lambda: 1e6)",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "waiting partitions resumed",
        at="BackPressure.apply",
        old="reading = (tp for tp in route.lane.positions if tp not in route.adrift)",
        new="reading = (tp for tp in route.pending | set(route.lane.positions) if tp not in route.adrift)",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "adrift partitions resumed",
        at="BackPressure.apply",
        old="reading = (tp for tp in route.lane.positions if tp not in route.adrift)",
        new="reading = list(route.lane.positions)",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a lost position throws away what was read",
        at="Partitions.move_adrift",
        old="        if route.lane.holds(route.adrift):\n",
        new="        if False:\n",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "fetching from the position after a truncation",
        at="Partitions._enter",
        old="starts[tp] = placement.fetch_from",
        new="starts[tp] = placement.position",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "revoked partitions stay in their state",
        at="Partitions.let_go",
        old="            route.forget(gone)\n",
        new="",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "partitions of a fenced batch not placed again",
        at="Pipeline._handle",
        old="            self._partitions.start_again(route, progress.to_place, later=bool(progress.unavailable))\n",
        new="",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "the end of a partition forgotten",
        at="Pipeline._take",
        old="        self._partitions.ends.update(polled.ends)\n",
        new="",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "the breaker does not pause",
        at="BackPressure._reason",
        old="if not route.breaker.answering:",
        new="if False:",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a full memory does not pause",
        at="BackPressure.apply",
        old="full = self._budget.exhausted",
        new="full = False",
        tests=(
            "tests/unit/ingest/test_pipeline.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "redelivered records taken again",
        at="buffer:select",
        old="if all_rise and position is not None and first >= position:",
        new="if all_rise and position is not None:",
        tests=(
            "tests/unit/ingest/test_buffer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "the record at the position dropped",
        at="_fresh",
        old="([position - 1], offsets",
        new="([position], offsets",
        tests=("tests/unit/ingest/test_buffer.py",),
    ),
    Mutant(
        "a partition that comes back splits in two",
        at="_runs",
        old="    if len(set(keys[starts].tolist())) == len(starts):\n        return None, starts\n    order",
        new="    return None, starts\n    order",
        tests=(
            "tests/unit/ingest/test_buffer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a placement comes between a file and its commit",
        at="Lane.flush",
        old="draft.finish().add_done_callback(lambda _finished: self._store.submit(lambda: run_into(landed, land)))",
        new=(
            "draft.finish().add_done_callback(lambda _: self._store.submit(lambda: "
            "None).add_done_callback(lambda _: self._store.submit(lambda: run_into(landed, land))))"
        ),
        tests=("tests/unit/ingest/test_pipeline.py",),
    ),
    Mutant(
        "a run that goes back is taken whole",
        at="_all_rise",
        old="    return bool(rising.all())",
        new="    return True",
        tests=(
            "tests/unit/ingest/test_buffer.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "missing timestamps are 1969",
        at="_timestamps",
        old="(milliseconds == -1) |",
        new="",
        tests=("tests/unit/ingest/test_buffer.py",),
    ),
    Mutant(
        "statistics' maxima are minima",
        at="file_statistics",
        old="_bounds(maxima, max)",
        new="_bounds(maxima, min)",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
    Mutant(
        "memory of a dropped draft stays counted",
        at="FileWriter.abort",
        old="        self._drop_gathered()\n        for",
        new="        for",
        tests=(
            "tests/unit/ingest/test_stager.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "payloads that do not repeat go into a dictionary",
        at="_repeats",
        old="<= _REPEATING_MAX * len(sample)",
        new=">= 0",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
    Mutant(
        "payloads that repeat go into no dictionary",
        at="parquet_writer",
        old=" + repeating,",
        new=",",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
    Mutant(
        "small batches are never merged",
        at="FileWriter._gather",
        old="if len(self._batches) - self._merged == _BATCHES_MAX:",
        new="if False:",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
    Mutant(
        "drafts gather more than memory has",
        at="FileWriter._gather",
        old="min(ROW_GROUP_BYTES, self._budget.share)",
        new="ROW_GROUP_BYTES",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
    Mutant(
        "gathered rows are not counted out",
        at="FileWriter._drop_gathered",
        old="        self._budget.give_back(self._gathered_bytes)\n",
        new="",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
    Mutant(
        "the file is committed before it is durable",
        at="FileWriter._close",
        old="            self._held.settle(self._size)\n",
        new="",
        tests=(
            "tests/unit/ingest/test_stager.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "flush a row late",
        at="due",
        old="stats.rows >= limits.rows",
        new="stats.rows > limits.rows",
        tests=("tests/unit/ingest/test_policy.py",),
    ),
    Mutant(
        "log entries go before the parse has read them",
        at="Maintenance._remove_expired",
        old="unread is not None and _expired(",
        new="False and _expired(",
        tests=("tests/unit/ingest/test_maintenance.py",),
    ),
    Mutant(
        "log entries go while a commit may be compared with them",
        at="Maintenance._remove_expired",
        old="seconds is None or seconds < _RETENTION_MIN_SECONDS",
        new="seconds is None",
        tests=("tests/unit/ingest/test_maintenance.py",),
    ),
    Mutant(
        "log entries go without a checkpoint",
        at="Maintenance.run",
        old="            self._watcher.checkpoint_failed(self._route, str(error))\n            return\n",
        new="            self._watcher.checkpoint_failed(self._route, str(error))\n            version = -1\n",
        tests=("tests/unit/ingest/test_maintenance.py",),
    ),
    Mutant(
        "a half-open breaker left alone",
        at="Partitions._must_probe",
        old="return route.breaker.state is BreakerState.HALF_OPEN and not route.lane.landing",
        new="return False",
        tests=("tests/unit/ingest/test_pipeline.py",),
    ),
    Mutant(
        "writers gather all the memory there is",
        at="Budget.__init__",
        old="self.share = limit // (2 * writers)",
        new="self.share = limit",
        tests=("tests/unit/ingest/test_stager.py",),
    ),
)
