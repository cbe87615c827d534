from __future__ import annotations

import io
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor import logs
from ingestor.ingest.steps import SILENT, Steps, logged
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger(logs.NAME), logs.librdkafka_logger()]
    before = [(logger.handlers[:], logger.filters[:], logger.level) for logger in loggers]
    yield
    for logger, (handlers, filters, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.filters[:] = handlers, filters
        logger.setLevel(level)


def configured(style: Literal["console", "json"] = "console", level: str = "INFO") -> io.StringIO:
    out = io.StringIO()
    logs.configure(style, level, stream=out)
    return out


def as_json(out: io.StringIO) -> dict[str, Any]:
    (line,) = out.getvalue().splitlines()
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def test_json_has_a_utc_timestamp_the_level_and_the_event_first() -> None:
    out = configured("json")

    logs.get(route="orders").info("committed", rows=5, tp=TopicPartition("a", 1))

    found = as_json(out)
    assert list(found)[:3] == ["timestamp", "level", "event"]
    assert found.pop("timestamp").endswith("Z")
    assert found == {"level": "info", "event": "committed", "route": "orders", "rows": 5, "tp": "a:1"}


def test_console_has_one_readable_line_per_event() -> None:
    out = configured()

    logs.get().warning("storage failed", route="orders", reason="no such bucket", rows=5)

    (line,) = out.getvalue().splitlines()
    assert line.endswith("[warning] storage failed route=orders reason='no such bucket' rows=5")
    assert "\x1b" not in line


def test_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console", "INFO")

    logs.get().info("hello")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hello" in captured.err


def test_configuring_again_replaces_the_form() -> None:
    first = configured()
    second = configured("json")

    logs.get().info("hello")

    assert first.getvalue() == ""
    assert as_json(second)["event"] == "hello"


def test_a_logger_may_be_made_before_the_configuration() -> None:
    log = logs.get()
    out = configured("json")

    log.info("hello")

    assert as_json(out)["event"] == "hello"


def test_events_below_the_level_are_left_out() -> None:
    out = configured(level="WARNING")

    logs.get().info("quiet")
    logs.get().warning("loud")

    assert "quiet" not in out.getvalue()
    assert "loud" in out.getvalue()


def test_other_libraries_are_heard_from_warning_on_in_the_same_form() -> None:
    out = configured("json", level="DEBUG")

    logging.getLogger("elsewhere").info("quiet")
    logging.getLogger("elsewhere").warning("loud %s", 5)

    found = as_json(out)
    assert (found["level"], found["event"]) == ("warning", "loud 5")


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_traceback_is_for_debug_only(style: Literal["console", "json"]) -> None:
    out = configured(style)
    try:
        raise OSError("broken\npipe")  # noqa: TRY301 - raised to be logged
    except OSError:
        logs.get().exception("failed")

    assert len(out.getvalue().splitlines()) == 1
    assert "Traceback" not in out.getvalue()
    assert "OSError: broken" in out.getvalue()


def test_an_exception_may_be_passed_and_keeps_an_error_that_is_named() -> None:
    out = configured("json")

    logs.get().error("failed", exc_info=ValueError("a"), error="b")

    assert as_json(out)["error"] == "b"


def test_debug_shows_the_traceback_with_a_mark_on_every_line() -> None:
    out = configured(level="DEBUG")
    try:
        raise OSError("broken\n2026-01-01T00:00:00Z [info] forged")  # noqa: TRY301 - raised to be logged
    except OSError:
        logs.get().exception("failed")

    first, *trace = out.getvalue().splitlines()
    assert "failed" in first
    assert any("Traceback" in line for line in trace)
    assert all(line.startswith("    | ") for line in trace)


def test_debug_puts_the_traceback_into_one_line_of_json() -> None:
    out = configured("json", level="DEBUG")

    try:
        raise OSError("broken")  # noqa: TRY301 - raised to be logged
    except OSError:
        logs.get().exception("failed")

    assert "Traceback" in as_json(out)["exception"]


@pytest.mark.parametrize("evil", ["a\nb", "a\rb", "a\x1b[31mb", "a\x85b", "a\u2028b", "a\u202eb", "a\x00b"])
def test_a_value_can_not_forge_a_line(evil: str) -> None:
    out = configured()

    logs.get().warning(f"event {evil}", text=evil, inside=[evil], exc_info=OSError(evil))

    line = out.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()


def test_a_value_can_not_forge_a_key() -> None:
    out = configured()

    logs.get().info("event", text='a" level=error')

    assert out.getvalue().rstrip().endswith("text='a\" level=error'")


@given(st.dictionaries(st.text(), st.text() | st.floats() | st.binary() | st.lists(st.text()), max_size=3))
def test_any_value_comes_out_on_one_line(values: dict[str, object]) -> None:
    for style in ("console", "json"):
        out = configured(style)
        logs.get().info("event", values=values)
        assert len(out.getvalue().splitlines()) == 1


def test_what_json_does_not_know_becomes_text() -> None:
    out = configured("json")

    logs.get().info("event", a=float("nan"), b={TopicPartition("a", 1): 5}, c={1}, d=b"\xff")

    found = as_json(out)
    assert (found["a"], found["b"], found["c"], found["d"]) == ("nan", {"a:1": 5}, [1], "b'\\xff'")


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    colourful, plain = Terminal(), Terminal()
    logs.configure("console", "INFO", stream=colourful)
    logs.get().info("hello")
    monkeypatch.setenv("NO_COLOR", "1")
    logs.configure("console", "INFO", stream=plain)
    logs.get().info("hello")

    assert "\x1b" in colourful.getvalue()
    assert "\x1b" not in plain.getvalue()


def test_librdkafka_logs_in_the_same_form_and_does_not_repeat_itself() -> None:
    out = configured("json")
    logger = logs.librdkafka_logger()

    for number in range(5):
        logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", f"down for {number} ms")
    logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "something else")

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        "FAIL [rdkafka#consumer-1] down for 0 ms",
        "FAIL [rdkafka#consumer-1] something else",
    ]
    assert {line["level"] for line in lines} == {"warning"}  # it goes on by itself


def test_librdkafka_is_thinned_out_once_however_often_it_is_configured() -> None:
    configured()
    configured()

    assert len(logs.librdkafka_logger().filters) == 1


def test_nothing_is_lost_without_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers[:] = []

    logs.get().warning("hello")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hello" in captured.err
    assert sys.stderr is not None


def test_a_throttle_lets_one_through_and_counts_the_others() -> None:
    now = 0.0
    throttle = logs.Throttle(10, clock=lambda: now)

    assert throttle.allow("a") == 0
    assert throttle.allow("a") is None
    assert throttle.allow("a") is None
    assert throttle.allow("b") == 0
    now = 10.0
    assert throttle.allow("a") == 2
    now = 20.0
    assert throttle.allow("a") == 0


def test_a_throttle_forgets_the_oldest_of_many() -> None:
    throttle = logs.Throttle(10, clock=lambda: 0.0)

    for number in range(1001):
        assert throttle.allow(number) == 0

    assert throttle.allow(0) == 0
    assert throttle.allow(1000) is None


def test_a_step_of_a_commit_is_told_at_debug_with_its_process() -> None:
    out = configured("json", "DEBUG")

    txns = {TopicPartition("a", 1): None}
    logged("orders")("looked", version=3, txns=txns, tps={TopicPartition("b", 0), TopicPartition("a", 1)})

    found = as_json(out)
    del found["timestamp"]
    assert found.pop("process") == os.getpid()
    assert found == {
        "level": "debug",
        "event": "step",
        "route": "orders",
        "step": "looked",
        "version": 3,
        "txns": {"a:1": None},
        "tps": ["a:1", "b:0"],
    }


def test_a_step_costs_nothing_where_nobody_listens() -> None:
    class Untouchable:
        """Fails as soon as anybody looks at it."""

        def __str__(self) -> str:
            raise AssertionError

    out = configured("json", "INFO")
    for steps in (logged("orders"), SILENT):
        steps("looked", txns={Untouchable(): 1}, tps={Untouchable()})
    assert out.getvalue() == ""


def test_a_step_says_what_was_so_when_it_was_told() -> None:
    told: list[object] = []
    txns = {TopicPartition("a", 1): 5}
    Steps(told.append, on=lambda: True)("sealed", last=txns, at=TopicPartition("a", 1))
    txns.clear()
    assert told == [{"step": "sealed", "last": {"a:1": 5}, "at": "a:1"}]
