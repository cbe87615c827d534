"""The one table that decides whether a failure of storage passes by itself or stays until somebody mends it.

delta-rs and pyarrow report most storage trouble as `OSError` or a bare exception with text, so the text is all there
is to go by. It decides only whether to try again, never whether a commit landed: the log decides that.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from ingestor.errors import IngestorError, RefusedError, Unavailable

_PERMANENT_ERRNO = {
    errno.ENOSPC: ("the disk is full", "free space or enlarge the volume, then start again"),
    errno.EDQUOT: ("the disk quota is used up", "raise the quota, then start again"),
    errno.EROFS: ("the file system is read-only", "mount it writable, then start again"),
    errno.EACCES: ("access is denied", "give the ingestor's user write access to the table's folder"),
    errno.EPERM: ("access is denied", "give the ingestor's user write access to the table's folder"),
    errno.ENOTDIR: ("a part of the path is a file", "choose a table path whose parents are all folders"),
    errno.EEXIST: ("the path is a file", "choose another table path, or move the file away"),
    errno.EISDIR: ("a folder is where a file should be", "choose another table path"),
}


@dataclass(frozen=True, slots=True)
class _Permanent:
    pattern: re.Pattern[str]
    what: str
    hint: str


def _rule(pattern: str, what: str, hint: str) -> _Permanent:
    return _Permanent(re.compile(pattern, re.IGNORECASE), what, hint)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs paints its error chains
# The first match counts; what matches nothing is taken to pass by itself.
_PERMANENT_TEXT = (
    _rule(r"os error 28\b|no space left", *_PERMANENT_ERRNO[errno.ENOSPC]),
    _rule(r"os error 122\b|quota exceeded", *_PERMANENT_ERRNO[errno.EDQUOT]),
    _rule(r"os error 30\b|read-only file system", *_PERMANENT_ERRNO[errno.EROFS]),
    _rule(r"os error (13|1)\b|permission denied", *_PERMANENT_ERRNO[errno.EACCES]),
    _rule(r"os error 20\b|not a directory", *_PERMANENT_ERRNO[errno.ENOTDIR]),
    _rule(r"os error 21\b|is a directory", *_PERMANENT_ERRNO[errno.EISDIR]),
    _rule(r"os error 17\b|file exists", *_PERMANENT_ERRNO[errno.EEXIST]),
    _rule(
        r"NoSuchBucket|bucket does not exist|NoSuchContainer|ContainerNotFound",
        "the bucket does not exist",
        "create the bucket or correct the table's URL",
    ),
    _rule(
        r"AccessDenied|\b403\b|Forbidden|AuthorizationFailed|not authorized|lacks? permission",
        "access is denied",
        "give these credentials read and write access to the table",
    ),
    _rule(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|\b401\b|Unauthenticated|Unauthorized"
        r"|ExpiredToken|InvalidToken|missing credentials|CredentialsNotLoaded",
        "the credentials are refused",
        "correct the credentials in storage_options or in the environment",
    ),
    _rule(
        r"allow_unsafe_rename|unknown scheme|Unsupported URL|invalid table (uri|url|location)",
        "the table's URL or storage_options can't be used",
        "correct the table's URL or storage_options",
    ),
)


def classify(error: BaseException, *, doing: str) -> IngestorError | Unavailable:
    """Return what to make of a failed storage call: a refusal to stop on, or a reason to wait and try again."""
    if isinstance(error, IngestorError | Unavailable):
        return error
    known = _PERMANENT_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None
    text = _COLOUR.sub("", str(error))
    if known is None:
        known = next(((rule.what, rule.hint) for rule in _PERMANENT_TEXT if rule.pattern.search(text)), None)
    detail = " ".join(text.split())[:300]
    if known is None:
        return Unavailable(f"{doing}: {detail or type(error).__name__}")
    what, hint = known
    return RefusedError(f"{doing}: {what} ({detail})", hint=hint)
