"""Which failures of storage pass by themselves, and which stay until somebody mends them."""

from __future__ import annotations

import errno

import pytest

from ingestor.delta.failures import classify
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable

# As delta-rs, its object stores and pyarrow word them.
PASSES = [
    OSError("Generic S3 error: error sending request for url (http://127.0.0.1:9000/b): connection refused"),
    OSError("Generic S3 error: Client error with status 503 Service Unavailable: SlowDown"),
    OSError("Generic S3 error: Client error with status 429 Too Many Requests"),
    OSError("Generic S3 error: server returned 500 Internal Server Error"),
    OSError("Generic S3 error: status 502 Bad Gateway"),
    OSError("Generic S3 error: status 504 Gateway Timeout"),
    OSError("operation timed out"),
    OSError(errno.ETIMEDOUT, "Connection timed out"),
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.EMFILE, "Too many open files"),
    FileNotFoundError("Object at location t/x.parquet not found: 404 Not Found: <Code>NoSuchUpload</Code>"),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    TimeoutError(),
    Exception("Transaction failed: concurrent modification"),
    RuntimeError("something that nobody has seen before"),
    *(
        OSError(f"Server returned non-2xx status code ↳ 400 Bad Request ↳ <Error><Code>{code}</Code></Error>")
        for code in ("RequestTimeout", "SlowDown", "ThrottlingException", "KMS.ThrottlingException", "IncompleteBody")
    ),
    OSError("request id 94013 took 1403 ms: timed out"),
]
STAYS: dict[str, list[Exception]] = {
    "disk is full": [OSError(errno.ENOSPC, "No space left on device"), OSError("IO error: os error 28")],
    "quota": [OSError(errno.EDQUOT, "Disk quota exceeded")],
    "read-only": [OSError(errno.EROFS, "Read-only file system"), OSError("Read-only file system (os error 30)")],
    "access is denied": [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EPERM, "Operation not permitted"),
        OSError("Permission denied (os error 13)"),
        OSError("Client error with status 403 Forbidden: <Code>AccessDenied</Code>"),
        OSError("AuthorizationFailed"),
    ],
    "the file system can't do what a commit needs": [
        OSError(errno.EOPNOTSUPP, "Operation not supported"),
        OSError(errno.ENOSYS, "Function not implemented"),
        OSError("Unable to rename file: Operation not supported (os error 95)"),
    ],
    "a part of the path is a file": [NotADirectoryError(errno.ENOTDIR, "Not a directory"), OSError("os error 20")],
    "a folder is where a file should be": [IsADirectoryError(errno.EISDIR, "Is a directory")],
    "bucket does not exist": [
        OSError("<Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message>"),
        OSError("ContainerNotFound"),
        OSError("<Code>ResourceNotFound</Code><Message>The specified resource does not exist.</Message>"),
    ],
    "credentials are refused": [
        OSError("<Code>InvalidAccessKeyId</Code>"),
        OSError("<Code>SignatureDoesNotMatch</Code>"),
        OSError("status 401 Unauthorized"),
        OSError("ExpiredToken: The provided token has expired"),
    ],
    "the store refuses the request": [
        OSError("Server returned non-2xx status code ↳ 400 Bad Request"),
        OSError("Server returned non-2xx status code ↳ 400 Bad Request ↳ <Error><Code>InvalidArgument</Code></Error>"),
    ],
    "URL or storage_options": [OSError("Unsupported URL scheme"), OSError("unknown scheme ftp")],
}


@pytest.mark.parametrize("error", PASSES, ids=str)
def test_it_passes_by_itself(error: Exception) -> None:
    """Connections, time-outs, throttling, server errors, and whatever nobody knows."""
    found = classify(error, doing="writing")
    assert isinstance(found, Unavailable)
    assert str(found).startswith("writing: ")


@pytest.mark.parametrize(("what", "error"), [(what, error) for what, errors in STAYS.items() for error in errors])
def test_it_stays_until_somebody_mends_it(what: str, error: Exception) -> None:
    """With what is wrong, and what to do about it."""
    found = classify(error, doing="writing")
    assert isinstance(found, RefusedError)
    assert what in found.message
    assert found.hint
    assert found.exit_code == 4


def test_colours_don_t_hide_what_is_wrong() -> None:
    """delta-rs paints its error chains."""
    assert isinstance(classify(OSError("\x1b[31mAccess\x1b[0mDenied"), doing="x"), RefusedError)


def test_a_long_answer_is_cut() -> None:
    """An error page of a proxy is no log line."""
    assert len(str(classify(OSError("a b\n" * 5000), doing="x"))) < 400


def test_an_error_without_words_is_called_by_its_class() -> None:
    """Something must stand in the log."""
    assert str(classify(TimeoutError(), doing="reading")) == "reading: TimeoutError"


@pytest.mark.parametrize(
    "error", [Unavailable("later"), ConfigError("wrong", hint="right"), IngestorError("odd", hint="even")]
)
def test_our_own_errors_are_left_alone(error: Exception) -> None:
    """They were classified where they were raised."""
    assert classify(error, doing="x") is error


@pytest.mark.parametrize(
    "error",
    [
        OSError("Object at location part-0f403e11.parquet: connection reset"),
        OSError("Generic S3 error: connection reset (request-id 401d2)"),
    ],
)
def test_numbers_in_names_are_no_status(error: Exception) -> None:
    """A file's name may contain 403."""
    assert isinstance(classify(error, doing="x"), Unavailable)
