"""Every way the ingestor can fail: what happened, what to do, and the exit code.

The exit codes are part of the contract (docs/operations.md): 2 configuration, 3 data loss or audit finding,
4 storage or Kafka refuses for good, 5 OCC retries exhausted, 1 anything else.
"""

from __future__ import annotations


class IngestorError(Exception):
    """A failure to show to a person: `message` says what happened, `hint` what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} — {self.hint}"


class ConfigError(IngestorError):
    """The configuration is wrong, or names something that does not exist."""

    exit_code = 2


class DataLossError(IngestorError):
    """Kafka no longer has records that the table needs, or an audit has findings."""

    exit_code = 3


class RefusedError(IngestorError):
    """Storage or Kafka refuses for good: no retry will help."""

    exit_code = 4


class OccExhaustedError(IngestorError):
    """Other writers won every try for a log version, up to the configured limit; nothing is lost."""

    exit_code = 5


class Fenced(Exception):  # noqa: N818 - controls the flow, is no failure
    """Another process has moved the txn of a partition: what we hold starts at an outdated position."""


class Unavailable(Exception):  # noqa: N818 - passes by itself, is no failure
    """Storage or Kafka does not answer now; the same call may succeed later."""
