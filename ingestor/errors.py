"""Every way the ingestor can end badly: what happened, how to mend it, and the exit code that says so.

The exit codes are part of the contract (docs/operations.md): 2 configuration, 3 data loss or audit finding,
4 storage or Kafka refuses for good, 5 OCC retries exhausted, 1 anything else.
"""

from __future__ import annotations


class IngestorError(Exception):
    """Something a person has to know about: `message` says what happened, `hint` what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} — {self.hint}"


class ConfigError(IngestorError):
    """The configuration is wrong, or names something that is not there."""

    exit_code = 2


class DataLossError(IngestorError):
    """Kafka no longer has records that the table has not got, or an audit found the table wrong."""

    exit_code = 3


class RefusedError(IngestorError):
    """Storage or Kafka says no for good: no retry will help."""

    exit_code = 4


class OccExhaustedError(IngestorError):
    """Other writers won every slot of the log up to the configured limit; nothing was lost."""

    exit_code = 5


class Fenced(Exception):  # noqa: N818 - a verdict that steers the flow, not a failure
    """Another owner has moved the txn of a partition: what we hold was built on an old position."""


class Unavailable(Exception):  # noqa: N818 - a state that passes by itself, never shown as a failure
    """Storage or Kafka does not answer now; the same call may go through later."""
