"""The one table that decides whether a failure of storage passes by itself or stays until somebody mends it.

delta-rs and pyarrow report most storage trouble as `OSError` or a bare exception with text, so the text is all there
is to go by. It decides only whether to try again, never whether a commit landed: the log decides that.

Where the texts come from: tests/faults/test_failures_real.py provokes each against real stores and a real disk.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from ingestor.errors import IngestorError, RefusedError, Unavailable
from ingestor.masking import without_credentials

MESSAGE_LENGTH_MAX = 300

_FREE_SPACE = ("the disk is full", "free space or enlarge the volume, then start again")
_NO_ACCESS = ("access is denied", "give the ingestor's user write access to the table's folder")
_GONE = (
    "a file or folder of the table is gone",
    "see whether the table's folder was moved, removed or unmounted; put it back, then start again",
)
_NO_BUCKET = ("the bucket does not exist", "create the bucket or correct the table's URL")
_NOT_SUPPORTED = (
    "the file system can't do what a commit needs",
    "keep the table on a file system with hard links (ext4, xfs, NFS); name a bucket by its URL, don't mount it",
)
_PERMANENT_ERRNO = {
    errno.ENOENT: _GONE,
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: ("the disk quota is used up", "raise the quota, then start again"),
    errno.EFBIG: ("a file reached the size limit", "raise the limit (ulimit -f) or lower flush.bytes"),
    errno.EROFS: ("the file system is read-only", "mount it writable, then start again"),
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.ENOTDIR: ("a part of the path is a file", "choose a table path whose parents are all folders"),
    errno.EEXIST: ("the path is a file", "choose another table path, or move the file away"),
    errno.EISDIR: ("a folder is where a file should be", "choose another table path"),
    errno.EOPNOTSUPP: _NOT_SUPPORTED,
    errno.ENOSYS: _NOT_SUPPORTED,
}


@dataclass(frozen=True, slots=True)
class _Permanent:
    pattern: re.Pattern[str]
    what: str
    hint: str


def _rule(pattern: str, what: str, hint: str) -> _Permanent:
    return _Permanent(re.compile(pattern, re.IGNORECASE), what, hint)


# A number alone is no status: "in 401.079ms" is a time, and a file's name may hold any number.
# The first match counts; what matches nothing is taken to pass by itself.
_PERMANENT_TEXT = (
    _rule(r"os error 2\b|no such file or directory", *_GONE),
    _rule(r"os error 28\b|no space left", *_FREE_SPACE),
    _rule(r"os error 122\b|quota exceeded", *_PERMANENT_ERRNO[errno.EDQUOT]),
    _rule(r"os error 27\b|file too large", *_PERMANENT_ERRNO[errno.EFBIG]),
    _rule(r"os error 30\b|read-only file system", *_PERMANENT_ERRNO[errno.EROFS]),
    _rule(r"os error (13|1)\b|permission denied", *_NO_ACCESS),
    _rule(r"os error 20\b|not a directory", *_PERMANENT_ERRNO[errno.ENOTDIR]),
    _rule(r"os error 21\b|is a directory", *_PERMANENT_ERRNO[errno.EISDIR]),
    _rule(r"os error 17\b|file exists", *_PERMANENT_ERRNO[errno.EEXIST]),
    _rule(r"os error (95|38)\b", *_NOT_SUPPORTED),
    _rule(
        # Azure says the last one also of an account.
        r"NoSuchBucket|InvalidBucketName|bucket does not exist|NoSuchContainer|ContainerNotFound|ResourceNotFound",
        *_NO_BUCKET,
    ),
    _rule(
        r"while loading credentials|missing credentials|CredentialsNotLoaded|no credentials"
        r"|LakeFS (username|password) is missing|Failed to get a credential from UnityCatalog"
        # Where credentials come from if none are given; an answer of 5xx there passes by itself.
        r"|/latest/(api/token|meta-data/iam)\b(?!.*\b5\d\d [A-Z])|token request\b(?!.*\b5\d\d [A-Z])",
        "there are no credentials",
        "give them in storage_options (AWS_ACCESS_KEY_ID, …) or in the environment",
    ),
    _rule(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|\b401 Unauthorized|Unauthenticated"
        r"|ExpiredToken|InvalidToken|TokenRefreshRequired|UserNotFound|lacked valid authentication"
        r"|LakeFS request was unauthorized",
        "the credentials are refused",
        "correct the credentials in storage_options or in the environment",
    ),
    _rule(
        r"RequestTimeTooSkewed",
        "the clock is wrong",
        "set this machine's clock: the store refuses requests that are minutes off",
    ),
    _rule(
        r"AccessDenied|AllAccessDisabled|AccountProblem|\b403 Forbidden|AuthorizationFailed|not authorized"
        r"|lack(s|ed)? (the necessary )?(permission|privilege)",
        "access is denied",
        "give these credentials read and write access to the table",
    ),
    _rule(
        r"invalid peer certificate|UnknownIssuer|self.signed certificate|certificate (has )?expired|InvalidContentType",
        "TLS fails",
        "let the endpoint's certificate be one that this machine trusts (certificate_path), and https be right",
    ),
    _rule(
        r"URL scheme is not allowed",
        "the endpoint is not https",
        "use https, or set AWS_ALLOW_HTTP: true in storage_options where nobody listens",
    ),
    _rule(
        r"\bpanicked\b|has crashed",
        "delta-rs broke down",
        "check endpoint and other storage_options, which it breaks down on when malformed; else report it",
    ),
    _rule(
        r"\b501 Not Implemented|<Code>NotImplemented",
        "the store can't do what is needed",
        "use a store that has conditional PUT (If-None-Match) and multipart uploads",
    ),
    _rule(
        r"Kernel error: Unsupported|Unsupported minimum (reader|writer) version|Feature '.*' is not supported",
        "the table needs what this program can't do",
        "drop the feature (ALTER TABLE … DROP FEATURE) or ingest into a new table",
    ),
    _rule(
        r"allow_unsafe_rename|unknown scheme|unsupported url|invalid table (uri|url|location)|relative URL"
        r"|unable to recogni[sz]e url|could not parse .* as a url|Account must be specified|No NameNode hosts"
        r"|LakeFS endpoint is missing|Invalid Unity Catalog Table URI|AuthorizationHeaderMalformed"
        r"|incorrectly configured region"
        r"|Generic Config error|Failed to parse config|failed to parse \S+ as (Duration|usize|f64|bool)",
        "the table's URL or storage_options can't be used",
        "correct the table's URL or storage_options",
    ),
    # What can't be listed is no table but a bucket or a repository, whatever its store calls it.
    _rule(r"Error performing list request\b.*\b404 Not Found|LakeFS \w+ failed\b.*\b404 Not Found", *_NO_BUCKET),
    _rule(
        r"\b400 Bad Request|\b405 Method Not Allowed",
        "the store refuses the request",
        "see what it says; correct the table's URL or storage_options (endpoint, region, http or https, credentials)",
    ),
)

# What passes although it looks like what stays. An upload of ours that has ended, be it that the answer to its end was
# lost: the file is written anew, by another one. Time-outs, throttling and bytes that went wrong on their way, which
# S3 and Azure answer with 400.
_PASSES = re.compile(
    r"NoSuchUpload|<Code>\s*(RequestTimeout|OperationTimedOut|SlowDown|Throttl\w*|\w*\.?Throttling\w*|TooManyRequests\w*"
    r"|ServerBusy|InternalError|ServiceUnavailable|IncompleteBody|BadDigest|Md5Mismatch|XAmzContent\w*Mismatch|InvalidPart)"
    r"\s*</Code>"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs paints its error chains
_XML = re.compile(r"<\?xml.*|<Error>.*", re.DOTALL)
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_SAID = re.compile(r"<Message>([^<]*)</Message>")
_QUERY = re.compile(r"(\w+://[^\s?'\"]*)\?[^\s'\"]*")
_SECRET = re.compile(
    r"((?:signature|\bsig|token|secret|password|credential|(?:account|access|api|private)_?key)\w*[\"']?\s*[=:]\s*)"
    r"[^\s&,;]+",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


# What no store raises but a mistake in a program: trying again would go on for ever.
_OURS = (AttributeError, TypeError, NameError, AssertionError, ImportError)


def classify(error: BaseException, *, doing: str) -> IngestorError | Unavailable:
    """Return what to make of a failed storage call: a refusal to stop on, or a reason to wait and try again."""
    if isinstance(error, IngestorError | Unavailable):
        return error
    if isinstance(error, _OURS):
        return IngestorError(
            _fit(doing, type(error).__name__, plain(str(error))), hint="this is a bug: please report it"
        )
    text = _COLOUR.sub("", str(error))
    known = None if _PASSES.search(text) else _permanent(error, text)
    detail = plain(text) or type(error).__name__
    if known is None:
        return Unavailable(_fit(doing, "", detail))
    what, hint = known
    return RefusedError(_fit(doing, what, detail), hint=hint)


def _permanent(error: BaseException, text: str) -> tuple[str, str] | None:
    """Return what somebody has to mend, and how; None if it passes by itself."""
    known = _PERMANENT_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None
    if known is None and isinstance(error, FileNotFoundError):  # also of an object in a store
        known = _GONE
    if known is not None:
        return known
    line = " ".join(text.split())
    return next(((rule.what, rule.hint) for rule in _PERMANENT_TEXT if rule.pattern.search(line)), None)


def _fit(doing: str, what: str, detail: str) -> str:
    """Return a message of bounded length that says what was done, what is wrong, and in the store's words why."""
    begin = f"{_cut(plain(doing), MESSAGE_LENGTH_MAX // 2)}: {what}"
    if not what:
        return begin + _cut(detail, MESSAGE_LENGTH_MAX - len(begin))
    return f"{begin} ({_cut(detail, MESSAGE_LENGTH_MAX - len(begin) - 3)})"


def plain(text: str) -> str:
    """Return what people may see of an error: one line, no colours, nothing that opens anything.

    Of a store's answer only its code and message are kept, for the rest spells out what was signed; of URLs what
    stands before the `?`, for behind it signatures are carried.
    """
    text = _XML.sub(_answer, _COLOUR.sub("", text))
    text = re.sub(r"\s*\n\s*↳\s*", ": ", text)  # how delta-rs shows causes
    text = _QUERY.sub(r"\1", text)
    text = without_credentials(text)
    text = _SECRET.sub(r"\1…", text)
    return " ".join(_CONTROL.sub(" ", text).split())


def _answer(xml: re.Match[str]) -> str:
    found = (_CODE.search(xml[0]), _SAID.search(xml[0]))
    return ": ".join(match[1] for match in found if match)


def _cut(text: str, length: int) -> str:
    """Shorten a text in its middle: it begins with what was tried and ends with the cause."""
    if len(text) <= length:
        return text
    tail = length * 2 // 3
    return f"{text[: length - tail - 3]} … {text[-tail:]}"
