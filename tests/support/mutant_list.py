"""The breaks that `tests.mutants` tries: what each changes, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass

_MACHINE = "tests/machine/test_exactly_once.py"
_CONTRACT = "tests/contract/test_table_contract.py"


def _unit(name: str) -> str:
    return f"tests/unit/test_{name}.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One break: `old` stands exactly once in the file and becomes `new`; one of `tests` must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_COMMITTER = (_unit("committer"), _MACHINE)
_LEDGER = (_unit("ledger"), _unit("placement"), _MACHINE)
_LANE = (_unit("lane"), _unit("pipeline"), _MACHINE)
_PIPELINE = (_unit("pipeline"), _MACHINE)

MUTANTS = (
    # --- the commit ---
    Mutant(
        "commit through a fresh handle",
        "committer.py",
        "            compared_at = self._clock()\n",
        "            compared_at = self._clock()\n            self._table.refresh()\n",
        _COMMITTER,
    ),
    Mutant(
        "retry on a new slot while the old one is empty",
        "committer.py",
        "                if owner is None:\n",
        "                if owner is None:\n                    self._table.refresh()\n",
        _COMMITTER,
    ),
    Mutant(
        "no txn in the commit",
        "committer.py",
        "        txns = {self._app_ids.of(tp): last for tp, last in staged.last.items()}\n",
        "        txns: dict[str, int] = {}\n",
        _COMMITTER,
    ),
    Mutant("no fence check", "committer.py", "        if stale:\n", "        if False:\n", _COMMITTER),
    Mutant(
        "compare before the first try only",
        "committer.py",
        "            self._compare(staged)\n",
        "            self._table.refresh() if conflicts else self._compare(staged)\n",
        _COMMITTER,
    ),
    Mutant(
        "staged file deleted after an unknown outcome",
        "committer.py",
        "                owner = self._table.slot(slot)\n",
        "                owner = self._table.slot(slot)\n"
        "                self._table.storage.discard(staged.files[0].path)\n",
        _COMMITTER,
    ),
    Mutant(
        "another's entry in our slot taken for ours",
        "committer.py",
        "Outcome.LANDED_UNANSWERED if owner == staged.commit_id else Outcome.CONFLICT",
        "Outcome.LANDED_UNANSWERED",
        _COMMITTER,
    ),
    Mutant(
        "our entry in our slot taken for another's",
        "committer.py",
        "Outcome.LANDED_UNANSWERED if owner == staged.commit_id else Outcome.CONFLICT",
        "Outcome.CONFLICT",
        _COMMITTER,
    ),
    Mutant(
        "an exception taken for not landed",
        "committer.py",
        "                owner = self._table.slot(slot)\n",
        "                owner = None\n",
        _COMMITTER,
    ),
    Mutant(
        "acknowledged before it is durable",
        "committer.py",
        'self._patience.until_answered(lambda: self._table.settle(slot), doing="syncing the log entry")  # noqa: B023',
        "pass",
        _COMMITTER,
    ),
    Mutant(
        "one retry too few",
        "committer.py",
        "range(self._occ.max_retries + 1)",
        "range(self._occ.max_retries or 1)",
        _COMMITTER,
    ),
    Mutant(
        "an overlong commit trusted",
        "committer.py",
        "                self._check_fresh(compared_at)\n",
        "",
        _COMMITTER,
    ),
    Mutant(
        "the ledger read without a look",
        "committer.py",
        '        self._patience.until_answered(self._table.refresh, doing="reading the Delta log")\n',
        "",
        _COMMITTER,
    ),
    Mutant(
        "the breaker never opens",
        "breaker.py",
        "self._count >= self._failures_max",
        "False",
        (_unit("retry"), _unit("committer")),
    ),
    Mutant(
        "the breaker closes with its first probe",
        "breaker.py",
        "self._count >= self._successes_min",
        "True",
        (_unit("retry"),),
    ),
    Mutant(
        "many probe at a time",
        "breaker.py",
        "            if self._probing:\n",
        "            if False:\n",
        (_unit("retry"),),
    ),
    # --- the ledger ---
    Mutant(
        "None and 0 confused when comparing",
        "ledger.py",
        "if actual[tp] != was}",
        "if (actual[tp] or 0) != (was or 0)}",
        _LEDGER,
    ),
    Mutant(
        "None and 0 confused when looking up",
        "ledger.py",
        "txns.get(self.of(tp))",
        "(txns.get(self.of(tp)) or None)",
        _LEDGER,
    ),
    Mutant(
        "None and 0 confused when placing", "ledger.py", "    if position is None:\n", "    if not position:\n", _LEDGER
    ),
    Mutant(
        "None and 0 confused in a position", "ledger.py", "None if txn is None else", "None if not txn else", _LEDGER
    ),
    Mutant("position is the last offset", "ledger.py", "else txn + 1", "else txn", _LEDGER),
    Mutant("txn is the position", "ledger.py", "return position - 1", "return position", _LEDGER),
    Mutant("retention not noticed", "ledger.py", "    if position < low:\n", "    if False:\n", _LEDGER),
    Mutant("truncation not noticed", "ledger.py", "    if position > high:\n", "    if False:\n", _LEDGER),
    Mutant("a gap one too long", "ledger.py", 'low - 1, "retention"', 'low, "retention"', _LEDGER),
    # --- placement ---
    Mutant("a recreated topic not noticed", "placement.py", "now != before", "False", (_unit("placement"),)),
    Mutant(
        "a wrong app id not noticed",
        "placement.py",
        "        if fresh:\n",
        "        if False:\n",
        (_unit("placement"),),
    ),
    Mutant(
        "loss accepted without being asked",
        "placement.py",
        "if gaps and not self.skip_lost:",
        "if False:",
        (_unit("placement"), _unit("pipeline")),
    ),
    Mutant(
        "latest skips an open transaction", "placement.py", "marks.stable for", "marks.high for", (_unit("placement"),)
    ),
    # --- the lane ---
    Mutant(
        "kept partitions of a dropped file not read again",
        "lane.py",
        "            again = set(self._draft.last) - set(tps)\n",
        "",
        _LANE,
    ),
    Mutant(
        "gaps not recorded",
        "lane.py",
        "for tp in sorted(tps) if tp in self._gaps)",
        "for tp in () if tp in self._gaps)",
        _LANE,
    ),
    Mutant(
        "draft kept after a fence",
        "lane.py",
        "        if self._draft is not None:\n            self._draft.abort()\n            self._draft = None\n"
        "        if not isinstance(error, Fenced):\n",
        "        if not isinstance(error, Fenced):\n",
        _LANE,
    ),
    Mutant(
        "positions kept after a fence",
        "lane.py",
        "        progress.to_place |= self.positions.keys()\n        self._forget(list(self.positions))\n",
        "        progress.to_place |= self.positions.keys()\n",
        _LANE,
    ),
    Mutant(
        "file of a fenced batch removed",
        "lane.py",
        "        error = landing.landed.exception()\n",
        "        error = landing.landed.exception()\n"
        "        if error is not None and landing.staged.exception() is None:\n"
        "            self._storage().discard(landing.staged.result().files[0].path)\n",
        _LANE,
    ),
    Mutant("the chain does not grow", "lane.py", "        self._chain.update(draft.last)\n", "", _LANE),
    Mutant("the position is the last record taken", "lane.py", "span.last + 1", "span.last", _LANE),
    Mutant("two batches land at once", "lane.py", "if self._landing is None and (reason", "if (reason", _LANE),
    Mutant(
        "a failed file not noticed",
        "lane.py",
        "        if self._draft is not None and self._draft.failure is not None:\n",
        "        if False:\n",
        _LANE,
    ),
    Mutant(
        "positions of revoked partitions kept",
        "lane.py",
        "        self._forget([*tps, *again])\n",
        "        self._forget([*again])\n",
        _LANE,
    ),
    # --- the pipeline ---
    Mutant(
        "seek instead of assigned offsets",
        "partitions.py",
        "self._source.reposition(starts, kept)",
        "self._source.seek(starts, kept)",
        _PIPELINE,
    ),
    Mutant(
        "an eager assignment forgets the others",
        "partitions.py",
        "self._source.reposition(starts, kept)",
        "self._source.reposition(starts, {})",
        _PIPELINE,
    ),
    Mutant(
        "acknowledging unassigned partitions",
        "pipeline.py",
        "ours = self._partitions.assigned & flushed.staged.last.keys()",
        "ours = flushed.staged.last.keys()",
        _PIPELINE,
    ),
    Mutant(
        "acknowledging the last offset",
        "pipeline.py",
        "flushed.staged.last[tp] + 1",
        "flushed.staged.last[tp]",
        _PIPELINE,
    ),
    Mutant(
        "on_lost lands the draft",
        "pipeline.py",
        "        self._joined = False\n        self._partitions.let_go(tps)\n",
        "        self._joined = False\n        self.on_revoked(tps)\n",
        _PIPELINE,
    ),
    Mutant(
        "on_revoked drops what it could land",
        "pipeline.py",
        "                self._land(holding, FlushReason.REVOKED, deadline)\n",
        "                pass\n",
        _PIPELINE,
    ),
    Mutant(
        "a revocation without a deadline",
        "pipeline.py",
        "route.lane.flush(reason, deadline.left)",
        "route.lane.flush(reason, lambda: 1e6)",
        _PIPELINE,
    ),
    Mutant(
        "waiting partitions resumed",
        "back_pressure.py",
        "reading = (tp for tp in route.lane.positions if tp not in route.adrift)",
        "reading = (tp for tp in route.pending | set(route.lane.positions) if tp not in route.adrift)",
        _PIPELINE,
    ),
    Mutant(
        "adrift partitions resumed",
        "back_pressure.py",
        "reading = (tp for tp in route.lane.positions if tp not in route.adrift)",
        "reading = list(route.lane.positions)",
        _PIPELINE,
    ),
    Mutant(
        "a lost position throws away what was read",
        "partitions.py",
        "        if route.lane.holds(route.adrift):\n",
        "        if False:\n",
        _PIPELINE,
    ),
    Mutant(
        "fetching from the position after a truncation",
        "partitions.py",
        "starts[tp] = placement.fetch_from",
        "starts[tp] = placement.position",
        _PIPELINE,
    ),
    Mutant(
        "revoked partitions stay in their state",
        "partitions.py",
        "            route.forget(gone)\n",
        "",
        _PIPELINE,
    ),
    Mutant(
        "partitions of a fenced batch not placed again",
        "pipeline.py",
        "            self._partitions.start_again(route, progress.to_place, later=bool(progress.unavailable))\n",
        "",
        _PIPELINE,
    ),
    Mutant(
        "the end of a partition forgotten",
        "pipeline.py",
        "        self._partitions.ends.update(polled.ends)\n",
        "",
        _PIPELINE,
    ),
    Mutant(
        "the breaker does not pause",
        "back_pressure.py",
        "if not route.breaker.answering:",
        "if False:",
        _PIPELINE,
    ),
    Mutant(
        "a full memory does not pause", "back_pressure.py", "full = self._budget.exhausted", "full = False", _PIPELINE
    ),
    # --- from records to a file ---
    Mutant(
        "redelivered records taken again",
        "buffer.py",
        "if all_rise and position is not None and first >= position:",
        "if all_rise and position is not None:",
        (_unit("buffer"), _MACHINE),
    ),
    Mutant(
        "the record at the position dropped",
        "buffer.py",
        "([position - 1], offsets",
        "([position], offsets",
        (_unit("buffer"),),
    ),
    Mutant(
        "a partition that comes back splits in two",
        "buffer.py",
        "    if len(set(keys[starts].tolist())) == len(starts):\n        return None, starts\n    order",
        "    return None, starts\n    order",
        (_unit("buffer"), _MACHINE),
    ),
    Mutant(
        "a placement comes between a file and its commit",
        "lane.py",
        "draft.finish().add_done_callback(lambda _finished: self._store.submit(lambda: run_into(landed, land)))",
        "draft.finish().add_done_callback("
        "lambda _: self._store.submit(lambda: None).add_done_callback("
        "lambda _: self._store.submit(lambda: run_into(landed, land))))",
        (_unit("pipeline"),),
    ),
    Mutant(
        "a run that goes back is taken whole",
        "buffer.py",
        "    return bool(rising.all())",
        "    return True",
        (_unit("buffer"), _MACHINE),
    ),
    Mutant("missing timestamps are 1969", "buffer.py", "(milliseconds == -1) |", "", (_unit("buffer"),)),
    Mutant(
        "events taken for records",
        "extract.py",
        "len(self.ms) == 0 or bool(self.ms.min() >= 0)",
        "True",
        (_unit("extract"),),
    ),
    Mutant(
        "a partition that comes back is not led to our queue again",
        "native/intake.py",
        "        self._lead_again()\n",
        "",
        (_unit("native"),),
    ),
    Mutant(
        "records on the consumer's own queue are left out",
        "native/intake.py",
        "[extract_all(records, self._extras)] if records else []",
        "[]",
        (_unit("native"),),
    ),
    Mutant(
        "the queue of an intake is never given back",
        "native/intake.py",
        "            self._native.destroy_queue(queue)\n\n    def __del__",
        "            pass\n\n    def __del__",
        (_unit("native"),),
    ),
    Mutant(
        "memory of the native intake is never given back",
        "native/taken.py",
        "        self._give_back(self._address)",
        "        pass",
        (_unit("native"),),
    ),
    Mutant(
        "topics are not told apart",
        "native/intake.c",
        "if (code >= count || met[code] != wanted)",
        "if (code >= count)",
        (_unit("native"),),
    ),
    Mutant("nulls are empty", "native/intake.c", "        one->nulls++;\n", "        ;\n", (_unit("native"),)),
    Mutant(
        "only the first eight values may be null",
        "native/intake.c",
        "one->valid.bytes[row >> 3]",
        "one->valid.bytes[0]",
        (_unit("native"),),
    ),
    Mutant(
        "a poll brings whatever is there",
        "native/intake.c",
        "into->bytes += (int64_t)record->payload_bytes;",
        "",
        (_unit("native"),),
    ),
    Mutant(
        "a full batch takes more",
        "native/intake.c",
        "while (count == asked && !is_full(into)) {",
        "while (count == asked) {",
        (_unit("native"),),
    ),
    Mutant(
        "more records are read at once than are wanted",
        "native/intake.c",
        "    if (fit > into->records_max - into->records)\n",
        "    if (0)\n",
        (_unit("native"),),
    ),
    Mutant(
        "more bytes are read at once than are wanted",
        "native/intake.c",
        "int64_t fit = records ?",
        "int64_t fit = records ? AT_ONCE_MAX : records ?",
        (_unit("native"),),
    ),
    Mutant("errors are kept to oneself", "native/intake.c", "    put_errors(into, of);\n", "", (_unit("native"),)),
    Mutant(
        "errors of another client are told",
        "native/intake.c",
        "if (errors[at % ERRORS_MAX].of == of) {",
        "if (errors[at % ERRORS_MAX].of) {",
        (_unit("native"),),
    ),
    Mutant(
        "errors may go elsewhere",
        "native/intake.c",
        "return taken && errors_are_noted(taken) ?",
        "return taken && (errors_are_noted(taken) || 1) ?",
        (_unit("native"),),
    ),
    Mutant(
        "statistics' maxima are minima",
        "parquet.py",
        "_bounds(maxima, max)",
        "_bounds(maxima, min)",
        (_unit("stager"),),
    ),
    Mutant(
        "memory of a dropped draft stays counted",
        "parquet.py",
        "        self._drop_gathered()\n        for",
        "        for",
        (_unit("stager"), _MACHINE),
    ),
    Mutant(
        "payloads that do not repeat go into a dictionary",
        "row_group.py",
        "<= _REPEATING_MAX * len(sample)",
        ">= 0",
        (_unit("stager"),),
    ),
    Mutant(
        "payloads that do not repeat are packed",
        "row_group.py",
        "<= _REPEATING_MAX * (self._rows - self._nulls)",
        ">= 0",
        (_unit("stager"),),
    ),
    Mutant(
        "a packed row group is as small as any other",
        "row_group.py",
        "taken >= PACKED_BYTES",
        "taken >= PLAIN_BYTES",
        (_unit("row_group"),),
    ),
    Mutant(
        "a packed column's memory is not counted",
        "row_group.py",
        "self._batches_bytes + sum(column.memory_bytes for column in self._columns.values())",
        "self._batches_bytes",
        (_unit("stager"),),
    ),
    Mutant(
        "small batches are never merged",
        "row_group.py",
        "if len(self._batches) - self._merged == _BATCHES_MAX:",
        "if False:",
        (_unit("row_group"),),
    ),
    Mutant(
        "values are added to a dictionary that somebody reads",
        "native/dictionary.py",
        "self._ended or values.type",
        "values.type",
        (_unit("dictionary"),),
    ),
    Mutant(
        "plain columns are gathered as long as packed ones",
        "row_group.py",
        " or self._batches_bytes >= PLAIN_BYTES",
        " or (self._batches_bytes >= PLAIN_BYTES and not self._packed)",
        (_unit("row_group"),),
    ),
    Mutant(
        "an audit holds a packed file's rows all at once",
        "audit/files.py",
        "(np.flatnonzero(np.diff(ends // _BATCH_BYTES)) + 1).tolist()",
        "[]",
        (_unit("audit_files"),),
    ),
    Mutant(
        "values of one length and hash are the same",
        "native/dictionary.c",
        "            !memcmp(of->data + of->starts[number], at, (size_t)bytes))",
        "            1)",
        (_unit("dictionary"),),
    ),
    Mutant(
        "a column's nulls are values",
        "native/dictionary.c",
        "if (!valid || valid[row >> 3] >> (row & 7) & 1) {",
        "if (1) {",
        (_unit("dictionary"),),
    ),
    Mutant(
        "values are forgotten when their dictionary grows",
        "native/dictionary.c",
        "        slots[slot] = (int32_t)number;\n",
        "",
        (_unit("dictionary"),),
    ),
    Mutant(
        "a column's rows are those of its buffers",
        "native/dictionary.py",
        "            values.offset,\n",
        "            0,\n",
        (_unit("dictionary"),),
    ),
    Mutant(
        "dictionaries are never given back",
        "native/dictionary.py",
        "        self._native.dictionary_free(self._address)\n",
        "        ...\n",
        (_unit("dictionary"),),
    ),
    Mutant(
        "payloads that repeat go into no dictionary",
        "parquet.py",
        " + sorted(repeating),",
        ",",
        (_unit("stager"),),
    ),
    Mutant(
        "drafts gather more than memory has",
        "row_group.py",
        "taken >= share or ",
        "",
        (_unit("stager"),),
    ),
    Mutant(
        "the file is committed before it is durable",
        "parquet.py",
        "            self._storage.settle(self._path)\n",
        "",
        (_unit("stager"), _MACHINE),
    ),
    Mutant(
        "flush a row late", "policy.py", "stats.rows >= limits.rows", "stats.rows > limits.rows", (_unit("policy"),)
    ),
    # --- the table ---
    Mutant(
        "delta-rs rebases a stale handle",
        "table_log.py",
        "                max_commit_retries=0,\n",
        "                max_commit_retries=15,\n",
        (_CONTRACT,),
    ),
    Mutant(
        "an entry on a disk replaces another one",
        "table_log.py",
        ".hardlink_to(aside)",
        ".write_bytes(aside.read_bytes())",
        (_CONTRACT, _unit("table_log")),
    ),
    Mutant(
        "an entry on a disk is there before it is synced",
        "table_log.py",
        "                os.fsync(file.fileno())\n",
        "",
        (_unit("table_log"),),
    ),
    Mutant(
        "an entry on a disk is put after any other",
        "table_log.py",
        "            if deltalog.fingerprint(self.storage, version - 1) != after:\n",
        "            if False:\n",
        (_unit("table_log"),),
    ),
    Mutant(
        "an empty slot is the log's end while a checkpoint says more",
        "table_log.py",
        "        return hinted > found or not",
        "        return not",
        (_unit("table_log"),),
    ),
    Mutant(
        "a hint that was removed is not missed",
        "table_log.py",
        "for version in (0, seen))",
        "for version in (seen,))",
        (_unit("table_log"),),
    ),
    Mutant(
        "a version that only a checkpoint tells of is overlooked",
        "deltalog.py",
        "max((*_versions(names), *checkpoints), default=None)",
        "max(_versions(names), default=None)",
        (_unit("table_log"),),
    ),
    Mutant(
        "a damaged checkpoint on a disk is not looked for",
        "table_log.py",
        "            self._open_whole()  # checkpoints are nothing that we read: others do\n",
        "",
        (_unit("table_log"),),
    ),
    Mutant(
        "paths go into the log as they are",
        "table_log.py",
        "quote(file.path, safe=_PLAIN_IN_PATHS)",
        "file.path",
        (_unit("table_log"),),
    ),
    Mutant(
        "a lost race creates the table again",
        "table_open.py",
        "            commit_properties=CommitProperties(max_commit_retries=0),\n        )\n",
        "        )\n",
        (_CONTRACT,),
    ),
    Mutant(
        "a txn that goes back not noticed",
        "table.py",
        "version < txns.get(app_id, version)",
        "False",
        (_CONTRACT,),
    ),
    Mutant(
        "an empty slot waited for in a log that was replaced",
        "table.py",
        "            self._refuse_another_past(self._seen)\n",
        "",
        (_CONTRACT,),
    ),
    Mutant(
        "a table that is gone waited for",
        "table_open.py",
        "    return believed(lambda: open_handle(uri, storage_options), gone=_table_gone)\n",
        "    return open_handle(uri, storage_options)\n",
        (_CONTRACT,),
    ),
    Mutant("a changed table not looked at", "table.py", "        if changed:\n", "        if False:\n", (_CONTRACT,)),
    Mutant(
        "origins of old commits win",
        "table.py",
        "origins.update(entry.origins)",
        "origins = entry.origins | origins",
        (_CONTRACT,),
    ),
    Mutant(
        "entries taken in one by one",
        "table.py",
        "txns, origins = dict(self.txns), dict(self.origins)",
        "txns, origins = self.txns, self.origins",
        (_CONTRACT,),
    ),
    Mutant(
        "a half-open breaker left alone",
        "partitions.py",
        "return route.breaker.state is BreakerState.HALF_OPEN and not route.lane.landing",
        "return False",
        (_unit("pipeline"),),
    ),
    Mutant(
        "writers gather all the memory there is",
        "budget.py",
        "self.share = limit // (2 * writers)",
        "self.share = limit",
        (_unit("stager"),),
    ),
    Mutant(
        "expiring txns accepted",
        "table_rules.py",
        "    if _RETENTION in metadata.configuration:\n",
        "    if False:\n",
        (_CONTRACT,),
    ),
    Mutant(
        "an upload that has ended counts as a table that is gone",
        "failures.py",
        "None if _ENDED_UPLOAD.search(text) else _permanent(error, text)",
        "_permanent(error, text)",
        (_unit("failures"),),
    ),
    Mutant(
        "a replay given up without looking again",
        "dead_letters/replay.py",
        "self.table.compare_and_swap(lambda newest: self._give_up(newest, txn))",
        "self._give_up(version, txn)",
        ("tests/integration/test_replay.py::test_a_replay_is_given_up_beside_other_writers",),
    ),
    Mutant(
        "one character as delimiter and quote",
        "settings_parse.py",
        "        if self.delimiter in (self.quote, self.escape):\n",
        "        if False:\n",
        (_unit("settings_refused"),),
    ),
    Mutant(
        "timestamps that nobody looks at",
        "settings_parse.py",
        "        if self.timestamps and not self.strict:\n",
        "        if False:\n",
        (_unit("settings_refused"),),
    ),
)
