"""What storage really said when it failed, word for word, and what is made of it.

Collected from deltalake 1.6.6 and pyarrow 26 against versitygw, moto, a local disk and a proxy; hosts and ids are made
up. tests/faults/test_failures_real.py provokes them anew.
"""

from __future__ import annotations

import pytest

from ingestor.delta.failures import MESSAGE_LENGTH_MAX, classify
from ingestor.errors import IngestorError, RefusedError, Unavailable

ARROW = "\n          \x1b[31m↳\x1b[0m "
GET = "Error performing GET http://127.0.0.1:9000/lake/table/_delta_log/00000000000000000007.json"
PUT = "Error performing PUT http://127.0.0.1:9000/lake/table/_delta_log/00000000000000000008.json"
PART = "http://127.0.0.1:9000/lake/table/f.parquet?partNumber=1&uploadId=8ce4c65b-401e-4cda-b56d-ca2d98762912"
NON_2XX = "Server returned non-2xx status code"
RETRIED = f"after 3 retries, max_retries{ARROW}3, retry_timeout{ARROW}10s  - "
SIGNED = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature '
    "we calculated does not match the signature you provided. Check your key and signing method.</Message>"
    "<AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId><StringToSign>AWS4-HMAC-SHA256&#xA;20260131T131726Z&#xA;"
    "20260131/us-east-1/s3/aws4_request&#xA;187fd1aeb8484228717f3ae8b30b64df64fc429961cc139ee63243919beaf759"
    "</StringToSign><SignatureProvided>b017defeb35ec74edbd</SignatureProvided></Error>\n"
)


def _xml(code: str, message: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>\n'


REFUSED = {
    "wrong key": (
        (
            f"Kernel error -> Generic S3 error{ARROW}Error performing list request{ARROW}{GET} in 1.2ms - {NON_2XX}"
            f"{ARROW}404 Not Found{ARROW}{_xml('XAdminUserNotFound', 'No user exists with the provided access key.')}"
        ),
        "the credentials are refused",
    ),
    "wrong key at AWS": (
        (
            f"The operation lacked the necessary privileges to complete for path x{ARROW}{GET} in 1ms - {NON_2XX}"
            f"{ARROW}403 Forbidden{ARROW}{_xml('InvalidAccessKeyId', 'The Access Key Id you provided does not exist')}"
        ),
        "the credentials are refused",
    ),
    "wrong secret": (
        (
            "Kernel error -> The operation lacked the necessary privileges to complete for path table/_delta_log/"
            f"_last_checkpoint{ARROW}{GET} in 1.6ms - {NON_2XX}{ARROW}403 Forbidden{ARROW}{SIGNED}"
        ),
        "the credentials are refused",
    ),
    "wrong secret, told without a body": (
        (
            "The operation lacked the necessary privileges to complete for path table/0.json"
            f"{ARROW}Error performing HEAD http://127.0.0.1:9000/lake/table/x.json in 875.5µs - {NON_2XX}"
            f"{ARROW}403 Forbidden\n"
        ),
        "access is denied",
    ),
    "401": (
        (
            "The operation lacked valid authentication credentials for path table/f.parquet: Error performing PUT "
            f"{PART} in 10.9ms - {NON_2XX}: 401 Unauthorized: <Error><Code>Error</Code></Error>"
        ),
        "the credentials are refused",
    ),
    "expired token": (
        (
            f"Generic S3 error{ARROW}{GET} in 519.2µs - {NON_2XX}{ARROW}400 Bad Request{ARROW}"
            f"{_xml('ExpiredToken', 'The provided token has expired.')}"
        ),
        "the credentials are refused",
    ),
    "wrong clock": (
        (
            f"The operation lacked the necessary privileges to complete for path x{ARROW}{GET} in 1ms - {NON_2XX}"
            f"{ARROW}403 Forbidden{ARROW}{_xml('RequestTimeTooSkewed', 'The difference is too large.')}"
        ),
        "the clock is wrong",
    ),
    "no credentials": (
        (
            f"Kernel error -> Operation not supported{ARROW}an error occurred while loading credentials{ARROW}"
            f"failed to load IMDS session token{ARROW}dispatch failure\n"
        ),
        "there are no credentials",
    ),
    "no credentials where there is no metadata service": (
        (
            f"Kernel error -> Generic S3 error{ARROW}Error performing PUT http://127.0.0.1:1/latest/api/token in 1.1s, "
            f"{RETRIED}HTTP error{ARROW}error sending request{ARROW}client error (Connect)\n"
        ),
        "there are no credentials",
    ),
    "missing bucket": (
        (
            f"Object at location table/f.parquet not found{ARROW}Error performing POST http://127.0.0.1:9000/gone/"
            f"table/f.parquet?uploads= in 557.9µs - {NON_2XX}{ARROW}404 Not Found{ARROW}"
            f"{_xml('NoSuchBucket', 'The specified bucket does not exist.')}"
        ),
        "the bucket does not exist",
    ),
    "read-only bucket": (
        (
            "The operation lacked the necessary privileges to complete for path table/8.json"
            f"{ARROW}{PUT} in 425.5µs - {NON_2XX}{ARROW}403 Forbidden{ARROW}{_xml('AccessDenied', 'Access Denied.')}"
        ),
        "access is denied",
    ),
    "http not allowed": (
        (
            f"Kernel error -> Generic S3 error{ARROW}{GET} in 92µs - HTTP error{ARROW}builder error{ARROW}"
            "URL scheme is not allowed\n"
        ),
        "the endpoint is not https",
    ),
    "TLS to a port without": (
        (
            f"Kernel error -> Generic S3 error{ARROW}{GET} in 556.6ms, {RETRIED}HTTP error{ARROW}error sending request"
            f"{ARROW}client error (Connect){ARROW}received corrupt message of type InvalidContentType\n"
        ),
        "TLS fails",
    ),
    "a certificate of nobody's": (
        (
            f"Kernel error -> Generic S3 error{ARROW}{GET} in 556.6ms, {RETRIED}HTTP error{ARROW}error sending request"
            f"{ARROW}client error (Connect){ARROW}invalid peer certificate: UnknownIssuer\n"
        ),
        "TLS fails",
    ),
    "no conditional PUT": (
        (
            f"Generic S3 error{ARROW}{PUT} in 401.079415ms, {RETRIED}{NON_2XX}{ARROW}501 Not Implemented{ARROW}"
            f"{_xml('NotImplemented', 'A header you provided implies functionality that is not implemented')}"
        ),
        "the store can't do what is needed",
    ),
    "unknown scheme": ("Unknown scheme: foo. Known schemes: s3a,sftp,dbfs,lakefs,gs,az,file,s3,memory", "URL"),
    "malformed URL": ('Generic error: Unable to recognise URL "s3:///table"', "URL"),
    "malformed bucket": ("Could not parse s3://buc ket/t as a URL: invalid domain character", "URL"),
    "no account": (f"Generic MicrosoftAzure error{ARROW}Account must be specified\n", "URL"),
    "malformed time-out": (f'Generic Config error{ARROW}failed to parse "5" as Duration\n', "storage_options"),
    "malformed number": (
        (
            'Generic DeltaTable error: Failed to parse config: [("max_retries", "Generic error: failed to parse '
            '\\"many\\" as usize")]'
        ),
        "storage_options",
    ),
    "malformed endpoint": (
        'Generic DeltaTable error: task 77 panicked with message "TokioMultiThreadExecutor has crashed: RecvError"',
        "delta-rs broke down",
    ),
    "full disk": ("Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)", "full"),
    "file size limit": ("Generic LocalFileSystem error: Unable to copy data: File too large (os error 27)", "limit"),
}
UNAVAILABLE = {
    "refused": f"Kernel error -> Generic S3 error{ARROW}{GET} in 373ms, {RETRIED}HTTP error{ARROW}error sending request"
    f"{ARROW}client error (Connect){ARROW}tcp connect error{ARROW}Connection refused (os error 111)\n",
    "no such host": f"Generic S3 error{ARROW}{GET} in 524ms, {RETRIED}HTTP error{ARROW}error sending request{ARROW}"
    f"client error (Connect){ARROW}dns error{ARROW}failed to lookup address information{ARROW}"
    "Name or service not known\n",
    "reset": f"Generic S3 error{ARROW}{PUT} in 467.7µs - HTTP error{ARROW}error sending request{ARROW}"
    f"client error (SendRequest){ARROW}connection error{ARROW}Connection reset by peer (os error 104)\n",
    "time-out": f"Generic S3 error{ARROW}{GET} in 15.000626024s - HTTP error{ARROW}error sending request{ARROW}"
    "operation timed out\n",
    "answer cut off": f"Generic S3 error{ARROW}HTTP error{ARROW}request or response body error{ARROW}"
    f"error reading a body from connection{ARROW}end of file before message length reached\n",
    "400": f"Generic S3 error{ARROW}{GET} in 320µs - {NON_2XX}{ARROW}400 Bad Request{ARROW}"
    f"{_xml('RequestTimeout', 'Your socket connection was not read from within the time-out period.')}",
    "409": f"Object at location table/f.parquet already exists: Error performing PUT {PART} in 8.4ms - {NON_2XX}: "
    "409 Conflict: <Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>",
    "409 or 412 of the log": "Failed to commit transaction: 0",
    "429": f"Generic S3 error{ARROW}{GET} in 463ms, {RETRIED}{NON_2XX}{ARROW}429 Too Many Requests\n",
    "500": f"Generic S3 error{ARROW}{GET} in 403.1ms, {RETRIED}{NON_2XX}{ARROW}500 Internal Server Error{ARROW}"
    f"{_xml('InternalError', 'We encountered an internal error. Please try again.')}",
    "502": f"Generic S3 error{ARROW}{GET} in 401.6ms, {RETRIED}{NON_2XX}{ARROW}502 Bad Gateway\n",
    "503": f"Generic S3 error{ARROW}{GET} in 403.9ms, {RETRIED}{NON_2XX}{ARROW}503 Service Unavailable{ARROW}"
    f"{_xml('SlowDown', 'Please reduce your request rate.')}",
    "503 of the metadata service": f"Generic S3 error{ARROW}Error performing PUT http://127.0.0.1:1/latest/api/token "
    f"in 1.1s, {RETRIED}{NON_2XX}{ARROW}503 Service Unavailable\n",
    "504": f"Generic S3 error{ARROW}{GET} in 597ms, {RETRIED}{NON_2XX}{ARROW}504 Gateway Timeout\n",
    "nothing there": f"Object at location table/f not found{ARROW}{GET} in 1ms - {NON_2XX}{ARROW}404 Not Found{ARROW}"
    f"{_xml('NoSuchKey', 'The specified key does not exist.')}",
}


def _assert_fit_to_be_shown(message: str) -> None:
    assert len(message) <= MESSAGE_LENGTH_MAX
    assert message.isprintable()
    assert "[31m" not in message
    for secret in ("AKIAEXAMPLE", "187fd1aeb848", "b017defeb35e", "StringToSign", "uploadId"):
        assert secret not in message


@pytest.mark.parametrize(("text", "what"), REFUSED.values(), ids=REFUSED)
def test_it_stays_until_somebody_mends_it(text: str, what: str) -> None:
    """And the message names it."""
    found = classify(OSError(text), doing="opening table s3://lake/table")
    assert isinstance(found, RefusedError)
    assert what in found.message
    assert found.message.startswith("opening table s3://lake/table: ")
    _assert_fit_to_be_shown(found.message)


@pytest.mark.parametrize("text", UNAVAILABLE.values(), ids=UNAVAILABLE)
def test_it_passes_by_itself(text: str) -> None:
    """However long a request took, and whatever numbers are in it."""
    found = classify(OSError(text), doing="opening table s3://lake/table")
    assert isinstance(found, Unavailable)
    _assert_fit_to_be_shown(str(found))


def test_the_cause_survives_being_cut() -> None:
    """delta-rs puts it last, behind all that it went through."""
    found = str(classify(OSError(UNAVAILABLE["refused"]), doing="opening table s3://lake/table"))
    assert found.endswith("Connection refused (os error 111)")
    assert "Generic S3 error: Error performing GET" in found


@pytest.mark.parametrize(
    "text",
    [
        "GET https://lake.blob.core.windows.net/c/x?sv=2024-11-04&sig=hUsh%2BhUsh%3D in 1ms - 403 Forbidden",
        "GET https://lake.s3.amazonaws.com/x?X-Amz-Credential=hUsh&X-Amz-Signature=hUsh&X-Amz-Security-Token=hUsh",
        "could not reach https://me:hUsh@store.example/lake",
        "could not reach s3://AKIA:hU/hUsh@bucket/lake",
        "could not reach s3://hUsh@bucket/lake",
        "config: AWS_SECRET_ACCESS_KEY=hUsh, AWS_SESSION_TOKEN: hUsh",
        '{"account_key": "hUsh", "sas_token": "hUsh", "password": "hUsh"}',
        "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message><SignatureProvided>hUsh</SignatureProvided>",
    ],
)
def test_secrets_are_not_shown(text: str) -> None:
    """Neither in the text nor in what was being done."""
    found = classify(OSError(text), doing=f"opening {text}")
    assert "hUsh" not in str(found)
    _assert_fit_to_be_shown(found.message if isinstance(found, IngestorError) else str(found))


@pytest.mark.parametrize(
    "url", ["abfss://box@account.dfs.core.windows.net/a", "s3://bucket/a@b", "http://host:9000/a@b", "az://c/x"]
)
def test_what_is_no_secret_of_a_url_stays(url: str) -> None:
    """A container, a port, an @ in a path."""
    assert url in str(classify(OSError(f"could not reach {url}"), doing="reading"))


def test_a_mistake_of_ours_is_not_tried_again() -> None:
    """It would be for ever."""
    found = classify(AttributeError("'Table' object has no attribute 'x'"), doing="reading")
    assert isinstance(found, IngestorError)
    assert found.exit_code == 1
    assert "no attribute" in found.message
