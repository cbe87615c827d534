"""Breaks of the vocabulary, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "None and 0 confused when comparing",
        at="moved",
        old="if actual[tp] != was}",
        new="if (actual[tp] or 0) != (was or 0)}",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "None and 0 confused when looking up",
        at="AppIds.look_up",
        old="txns.get(self.of(tp))",
        new="(txns.get(self.of(tp)) or None)",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "None and 0 confused when placing",
        at="ledger:place",
        old="    if position is None:\n",
        new="    if not position:\n",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "None and 0 confused in a position",
        at="position_after",
        old="None if txn is None else",
        new="None if not txn else",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "position is the last offset",
        at="position_after",
        old="else txn + 1",
        new="else txn",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "txn is the position",
        at="txn_before",
        old="return position - 1",
        new="return position",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "retention not noticed",
        at="ledger:place",
        old="    if position < low:\n",
        new="    if False:\n",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "truncation not noticed",
        at="ledger:place",
        old="    if position > high:\n",
        new="    if False:\n",
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "a gap one too long",
        at="ledger:place",
        old='low - 1, "retention"',
        new='low, "retention"',
        tests=(
            "tests/unit/test_ledger.py",
            "tests/unit/ingest/test_placement.py",
            "tests/machine/test_exactly_once.py",
        ),
    ),
    Mutant(
        "SIGHUP kills",
        at="signals:",
        old="_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)",
        new="_ENDS = (signal.SIGTERM, signal.SIGINT)",
        tests=("tests/unit/test_signals.py",),
    ),
)
