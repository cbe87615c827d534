"""What a Spark job refuses before Spark starts: told in a second, with nothing touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ingestor.config.parse import ParseSettings
from ingestor.errors import RefusedError
from spark_jobs import cli
from spark_jobs.plan import rules
from spark_jobs.plan.plan import Plan, make

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENT: dict[str, Any] = {
    "app_id": "shop",
    "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"},
    "routes": {"events": {"topics": ["events"], "table": "raw"}},
}
GOOD: dict[str, Any] = {
    "schema": "user_id STRING, amount DOUBLE, cob STRING, place STRUCT<city: STRING>, raw BINARY, at TIMESTAMP, "
    "visits ARRAY<STRUCT<at: TIMESTAMP>>"
}


class Refusal:
    """Runs a job where there is no Java."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, parse: dict[str, Any] | None) -> tuple[int, str]:
        """Return the exit code and the only line that was said."""
        command, *options = arguments or ("parse",)
        config = write(self._folder, parse)
        self._monkeypatch.setattr(sys, "argv", ["spark_jobs", command, str(config), *options])
        self._monkeypatch.setenv("PATH", "")
        self._monkeypatch.setenv("JAVA_HOME", str(self._folder / "nowhere"))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = self._capsys.readouterr()
        assert said.out == ""
        assert sorted(path.name for path in self._folder.iterdir() if path.suffix != ".avsc") == ["config.yaml"]
        (line,) = said.err.splitlines()
        assert isinstance(ended.value.code, int)
        return ended.value.code, line


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Refusal]:
    """Runs a job where there is no Java; signals go where they went afterwards."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield Refusal(tmp_path, monkeypatch, capsys)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def write(folder: Path, parse: dict[str, Any] | None) -> Path:
    config = folder / "config.yaml"
    parsed = {} if parse is None else {"parse": {"events": {**GOOD, **parse}}}
    config.write_text(yaml.safe_dump({**DOCUMENT, **parsed}))
    return config


def test_a_process_ends_with_one_line_and_the_code(tmp_path: Path) -> None:
    config = write(tmp_path, {"rules": {"r": "amuont >= 0"}})
    environ = {**os.environ, "PATH": "", "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "spark_jobs", "parse", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("spark_jobs: parse.events.rules.r: names amuont")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no command is given — see `python -m spark_jobs --help`"),
        (("--bogus",), "No such option: --bogus — see `python -m spark_jobs --help`"),
        (("parse", "x.yaml", "--bogus"), "No such option: --bogus — see `python -m spark_jobs parse --help`"),
        (("parse",), "Missing argument 'config' — see `python -m spark_jobs parse --help`"),
    ],
)
def test_a_command_line_that_can_not_be_meant_is_refused(arguments: tuple[str, ...], told: str) -> None:
    """In the same way as everything else: one last line that says what to do."""
    command = [sys.executable, "-m", "spark_jobs", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == f"spark_jobs: {told}"


@pytest.mark.parametrize(
    ("parse", "told"),
    [
        (
            {"rules": {"r": "amuont >= 0"}},
            "parse.events.rules.r: names amuont, which is no field of the schema — did you",
        ),
        ({"rules": {"r": "amount >= (0"}}, "rules.r: has brackets that don't match"),
        ({"rules": {"r": "cob < current_date"}}, "rules.r: uses current_date, which does not say the same thing twice"),
        ({"rules": {"r": "cob < timestamp'now'"}}, "rules.r: uses timestamp 'now', which does not say the same thing"),
        ({"rules": {"r": 'cob < DATE /* */ R"toDay"'}}, 'rules.r: uses date R"toDay", which does not say'),
        ({"rules": {"r": "cob < date'\\u006eow'"}}, "rules.r: uses date '\\u006eow', which"),
        ({"rules": {"r": "cob < identifier('current_' || 'date')()"}}, "rules.r: uses identifier, which does not"),
        ({"rules": {"r": "amount < reflect('java.lang.System', 'nanoTime')"}}, "rules.r: uses reflect, which does"),
        ({"rules": {"r": "amount in (select 1)"}}, "rules.r: asks other tables"),
        ({"schema": "nosuch.avsc"}, "nosuch.avsc can't be read: No such file"),
        ({"schema": "user_id STRNG"}, "parse.events.schema: user_id: type STRNG is not one that silver can hold"),
        ({"schema": "a STRING, A STRING"}, "stands twice"),
        ({"schema": "stream_offset LONG"}, "stream_offset is a column that silver has anyway"),
        ({"schema": "`odd-name` STRING"}, "odd-name can't be a field of Avro"),
        ({"schema": None}, "parse.events.schema: is missing"),
        ({"quarantine": "raw-silver"}, "parse.events.quarantine: is the location of parse.events.table too"),
        ({"required": ["user"]}, "parse.events.required: user is no field of the schema"),
        ({"required": ["place.town"]}, "place.town is no field"),
        ({"cob": {"field": "amount"}}, "parse.events.cob.field: amount is DOUBLE"),
        ({"cob": {"field": "cob", "column": "amount"}}, "parse.events.cob.column: amount is a field of the schema too"),
        ({"dedupe": {"by": ["place"]}}, "parse.events.dedupe.by: place is no flat field"),
        ({"partition_by": ["day"]}, "parse.events.partition_by: day is no column of silver"),
        ({"partition_by": ["raw"]}, "parse.events.partition_by: raw is BINARY, which no folder's name can hold"),
        (
            {"timestamps": {"amount": "millis"}},
            "parse.events.timestamps: amount is DOUBLE — name TIMESTAMP fields: at, visits.at",
        ),
        ({"timestamps": {"nosuch": "millis"}}, "parse.events.timestamps: nosuch is no field of the schema"),
        ({"csv": {"columns": ["place"]}}, "parse.events.csv.columns: place is no flat field"),
        (None, "no route is parsed"),
    ],
)
def test_a_bad_configuration_is_refused_before_spark_starts(
    refusal: Refusal, parse: dict[str, Any] | None, told: str
) -> None:
    code, line = refusal(parse=parse)
    assert (code, told in line) == (2, True), line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is no JSON"),
        ('"string"', "it is not the schema of a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "strin"}]}', "type strin is unknown"),
        ('{"type": "record", "fields": []}', "it is no Avro schema"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}',
            "a: type R holds itself, which no column can",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["string", "int"]}]}',
            "a: a union of 2 types is no column",
        ),
    ],
)
def test_an_invalid_schema_file_is_named(refusal: Refusal, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "event.avsc").write_text(text)
    code, line = refusal(parse={"schema": "event.avsc"})
    assert (code, "event.avsc" in line, told in line) == (2, True, True), line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("parse", "--route", "evnts"), "--route evnts: no such route is parsed — routes: events"),
        (("parse", "--every", "often"), "--every often: is no duration"),
        (("parse", "--conf", "x=1"), "--conf x=1: is no setting"),
        (("compact", "--target-size", "big"), "--target-size big: is no size"),
        (("compact", "--zorder", "nosuch"), "--zorder nosuch: is no column"),
        (("parse",), "no java in JAVA_HOME"),
    ],
)
def test_bad_arguments_are_refused_too(refusal: Refusal, arguments: tuple[str, ...], told: str) -> None:
    code, line = refusal(*arguments, parse={})
    assert (code, told in line) == (2, True), line


def test_rules_may_say_all_that_sql_can() -> None:
    """The look without a JVM must not refuse what Spark would take."""
    fields = ["amount", "user_id", "tags", "place", "date", "message_timestamp", "odd name"]
    for sql in (
        "amount is null or amount >= 0",
        "user_id rlike '^u[0-9]+$' and length(user_id) between 2 and 10",
        "exists(tags, t -> t = 'x') or aggregate(tags, 0, (a, b) -> a + 1) < 3",
        "place.city in ('Bonn', 'nosuch') -- nosuch",
        "`odd name` is not null and date < date '2030-01-01'",
        "user_id = 'now' or date > date 'epoch' or message_timestamp < timestamp \" 2030-01-01\"",
        "message_timestamp > timestamp'2020-01-01' + interval 1 day",
        "case when amount > 1e3 then cast(user_id as int) > 0 else true end",
        "extract(year from message_timestamp) >= 2020 and AMOUNT <> 1.5D",
        "tags[0] = \"a\" /* nosuch */ and not array_contains(tags, 'it''s')",
    ):
        rules.check(sql, fields)


def test_a_plan_survives_being_written_down() -> None:
    parse = {
        "schema": GOOD["schema"],
        "rules": {"r": "amount > 0"},
        "required": ["user_id"],
        "cob": {"field": "cob"},
        "dedupe": {"by": ["user_id"], "within": "90s"},
        "timestamps": {"at": "millis", "visits.at": "seconds"},
        "csv": {"header": True, "quote": None, "null": "-"},
        "partition_by": ["user_id"],
    }
    plan = make("events", ParseSettings.model_validate(parse)).with_writers({7: None, 3: json.dumps("x")})
    assert Plan.from_json(plan.to_json()) == plan


def test_a_batch_that_another_version_began_is_not_ended_by_this_one() -> None:
    """The half that is in the tables was made by other rules; asked again, the answer is the same."""
    older = json.loads(make("events", ParseSettings.model_validate(GOOD)).to_json())
    del older["edition"]  # as in the first version
    for _ in range(2):
        with pytest.raises(RefusedError, match="a batch was begun by another version") as refused:
            Plan.from_json(json.dumps(older))
        assert "finish the batch with that version" in refused.value.hint


def test_an_avro_schema_says_what_numbers_mean(tmp_path: Path) -> None:
    """Its logical types do, within arrays and named types too; the configuration has the last word."""
    at = {"type": "long", "logicalType": "timestamp-millis"}
    place = {"type": "record", "name": "Place", "fields": [{"name": "seen", "type": ["null", at]}]}
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "home", "type": place},
        {"name": "work", "type": {"type": "array", "items": "Place"}},
        {"name": "other", "type": "long"},
    ]
    (tmp_path / "event.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    parse = {"schema": str(tmp_path / "event.avsc"), "timestamps": {"at": "iso", "local": "seconds"}}
    plan = make("events", ParseSettings.model_validate(parse))
    assert dict(plan.timestamps) == {"local": "seconds", "home.seen": "millis", "work.seen": "millis"}
    assert (plan.unit("at"), plan.unit("home.seen")) == ("iso", "millis")
