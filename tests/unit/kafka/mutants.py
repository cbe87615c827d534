"""Breaks of ingestor/kafka, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "events taken for records",
        at="Stamps.all_there",
        old="len(self.ms) == 0 or bool(self.ms.min() >= 0)",
        new="True",
        tests=("tests/unit/kafka/test_extract.py",),
    ),
    Mutant(
        "a partition that comes back is not led to our queue again",
        at="NativeIntake.take",
        old="        self._lead_again()\n",
        new="",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "records on the consumer's own queue are left out",
        at="NativeIntake._take_others",
        old="[extract_all(piece, self._extras) for piece in portions(records, self._extras)] if records else []",
        new="[]",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "the queue of an intake is never given back",
        at="NativeIntake",
        old="            self._native.destroy_queue(queue)\n\n    def __del__",
        new="            pass\n\n    def __del__",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "memory of the native intake is never given back",
        at="_Memory.__del__",
        old="        self._give_back(self._address)",
        new="        pass",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "topics are not told apart",
        at="intake.c:put_topic",
        old="if (code >= count || met[code] != wanted)",
        new="if (code >= count)",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "nulls are empty",
        at="intake.c:put_bytes",
        old="        one->nulls++;\n",
        new="        ;\n",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "only the first eight values may be null",
        at="intake.c:put_bytes",
        old="one->valid.bytes[row >> 3]",
        new="one->valid.bytes[0]",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "a poll brings whatever is there",
        at="intake.c:put_record",
        old="into->bytes += (int64_t)record->payload_bytes;",
        new="",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "a full batch takes more",
        at="intake.c:take",
        old="while (rest->count == asked && !is_full(into)) {",
        new="while (rest->count == asked) {",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "a batch takes all that was read at once, however large",
        at="intake.c:put",
        old=" && (into->out_of_memory || !is_full(into)); from->at++",
        new="; from->at++",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "large memory asks librdkafka for more than it allows",
        at="_reading_ahead",
        old="min(max(1 << 10, queue_bytes >> 10), _QUEUE_KBYTES_MAX)",
        new="max(1 << 10, queue_bytes >> 10)",
        tests=("tests/unit/kafka/test_consumer_options.py",),
    ),
    Mutant(
        "what was read and did not fit is left behind",
        at="NativeIntake.take",
        old="while rest.left:",
        new="while False:",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "more records are read at once than are wanted",
        at="intake.c:at_once",
        old="    if (fit > into->records_max - into->records)\n",
        new="    if (0)\n",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "more bytes are read at once than are wanted",
        at="intake.c:at_once",
        old="int64_t fit = records ?",
        new="int64_t fit = records ? AT_ONCE_MAX : records ?",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "errors are kept to oneself",
        at="intake.c:take",
        old="    put_errors(into, of);\n",
        new="",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "errors of another client are told",
        at="intake.c:put_errors",
        old="if (errors[at % ERRORS_MAX].of == of) {",
        new="if (errors[at % ERRORS_MAX].of) {",
        tests=("tests/unit/kafka/test_native.py",),
    ),
    Mutant(
        "errors may go elsewhere",
        at="intake.c:take_client",
        old="return taken && errors_are_noted(taken) ?",
        new="return taken && (errors_are_noted(taken) || 1) ?",
        tests=("tests/unit/kafka/test_native.py",),
    ),
)
