"""Breaks of ingestor/config, and the tests of which one must notice each."""

from __future__ import annotations

from tests.support.mutant import Mutant

MUTANTS = (
    Mutant(
        "a path that delta-rs reads as another one is taken",
        at="types:",
        old="AfterValidator(place), AfterValidator(_unescaped)",
        new="AfterValidator(place)",
        tests=("tests/unit/config/test_settings_refused.py",),
    ),
    Mutant(
        "one character as delimiter and quote",
        at="CsvSettings._told_apart",
        old="        if self.delimiter in (self.quote, self.escape):\n",
        new="        if False:\n",
        tests=("tests/unit/config/test_settings_refused.py",),
    ),
    Mutant(
        "timestamps that nobody looks at",
        at="ParseSettings._nothing_is_left_unread",
        old="        if self.timestamps and not self.strict:\n",
        new="        if False:\n",
        tests=("tests/unit/config/test_settings_refused.py",),
    ),
    Mutant(
        "a duration's unit is passed over",
        at="duration",
        old='_DURATION_UNITS[match[2] or "s"]',
        new='"seconds"',
        tests=("tests/unit/config/test_settings.py",),
    ),
    Mutant(
        "the schema takes no variable",
        at="_mended",
        old='    return {"anyOf": [*rest.get("anyOf", [rest]), _VARIABLE], **about}\n',
        new="    return made\n",
        tests=("tests/unit/config/test_settings_schema.py",),
    ),
)
