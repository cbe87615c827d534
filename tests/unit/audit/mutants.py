"""Breaks of ingestor/audit, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "an audit believes a txn that goes back",
        at="_Walk._one_txn",
        old="        elif before is not None and txn <= before:\n",
        new="        elif False:\n",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit takes a truncation for a choice",
        at="_chosen",
        old=' and (entry.operation != "DELETE" or predicate not in _EVERYTHING)',
        new="",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit takes files that came back for landed twice",
        at="_Walk._files_of",
        old="if path in facts.live or (seen and file.new and moved):",
        new="if seen and file.new:",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit overlooks RESTORE",
        at="_Walk._files_of",
        old='if declared or (removed and (entry.takes_rows or entry.operation == "RESTORE")):',
        new='if declared or (removed and entry.takes_rows and entry.operation != "RESTORE"):',
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit takes rows that came back for gone",
        at="Removals._mark",
        old="                covered.bits[window][:] = bits\n",
        new="                pass\n",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit takes what was declared for all that went",
        at="Removals._say",
        old="if removal.chosen:",
        new="if removal.chosen or removal.declared:",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit says that every offset is there when rows are gone",
        at="_report",
        old="complete=not findings.gone",
        new="complete=True",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit leaves out what a person passed over",
        at="KafkaAudit._plan",
        old="txn), chain.gaps)",
        new="txn), [*chain.gaps, *chain.passed])",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit is off by one",
        at="first_after",
        old="return 0 if txn is None else txn + 1",
        new="return 0 if txn is None else txn",
        tests=(
            "tests/unit/audit/test_audit.py",
            "tests/unit/audit/test_audit_removed.py",
        ),
    ),
    Mutant(
        "an audit holds a packed file's rows all at once",
        at="_unpacked",
        old="(np.flatnonzero(np.diff(ends // _BATCH_BYTES)) + 1).tolist()",
        new="[]",
        tests=("tests/unit/audit/test_audit_files.py",),
    ),
    Mutant(
        "the audit takes an entry that was cut off for whole",
        at="_parsed",
        old="        wrong = _cut(entry, len(actions))\n",
        new="        wrong = '' if actions else 'it is empty'\n",
        tests=("tests/unit/audit/test_audit_delta.py",),
    ),
)
