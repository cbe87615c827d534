"""Runs of one route that meet: each step lands once, by one plan, whoever is held where, and whoever dies.

The jobs run in threads of one session, each held at a point of its own code while another one runs to its end; what
became of the rows is told by delta-rs and Python (`account`). Real processes: test_parse_kills.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ingestor.errors import IngestorError, OccExhaustedError
from spark_jobs.parse import parse
from spark_jobs.reparse import reparse
from spark_jobs.rows.balance import Balance
from spark_jobs.steps.reset import reset
from tests.support.process import held_steps
from tests.support.process.held_steps import Held
from tests.support.silver import Lake, account, event

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


BY_REQUEST: dict[str, Any] = {"formats": ["json"], "dedupe": {"by": ["request_id"], "within": "24h"}}
OLD: dict[str, Any] = {"rules": {"r": "amount < 10"}, **BY_REQUEST}
NEW: dict[str, Any] = {"rules": {"r": "amount >= 10"}, **BY_REQUEST, "processing_version": "2.0"}
MENDED: dict[str, Any] = {**OLD, "rules": {"r": "amount < 100"}}
Job = "Callable[[SparkSession, Route], Any]"


def land(lake: Lake) -> None:
    """Land rows for all four ways; keys repeat within what is landed, and only there."""
    at = lake.next_offset
    lake.land(
        event(amount=1, request_id=f"a{at}"),
        event(amount=20, request_id=f"b{at}"),
        event(amount=2, request_id=f"a{at}"),
        event(amount=30, request_id=f"b{at}"),
        event(amount=500, request_id=f"c{at}"),
        b"{}",
        None,
    )


def by_one_plan(lake: Lake) -> None:
    """See that no batch is torn between two plans: of what is landed at once all has one version."""
    rows = [
        *lake.silver("stream_offset", "processing_version"),
        *lake.quarantine("stream_offset", "processing_version"),
    ]
    for first in range(0, lake.next_offset, 7):
        versions = {version for offset, version in rows if first <= offset < first + 7}
        assert len(versions) <= 1, f"batch at {first} is of {versions}"


class Meeting:
    """Two jobs of one route at once: one is held at each of its points in turn, while the other runs to its end."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake

    def hold(self, point: str, held: Callable[[], Any], other: Callable[[], Any]) -> None:
        with pytest.MonkeyPatch.context() as patch, Held(point, held, patch.setattr) as one:
            other()
            account(self._lake, key="request_id", ended=False)
        assert one.error is None or isinstance(one.error, OccExhaustedError), one.error
        account(self._lake, key="request_id")


@pytest.fixture
def meeting(spark: SparkSession, lake: Lake) -> Meeting:
    return Meeting(spark, lake)


def some_in_make_test(every: list[str], *some: str) -> list[Any]:
    """Return all points as parameters; those not named are for long runs only."""
    return [pytest.param(each, marks=() if each in some else pytest.mark.soak) for each in every]


@pytest.mark.parametrize("point", some_in_make_test(held_steps.PARSE, "append:1:after"))
def test_two_parses_of_different_configurations_land_each_batch_by_one(
    spark: SparkSession, lake: Lake, meeting: Meeting, point: str
) -> None:
    old, new = lake.route(**OLD), lake.route(**NEW)
    land(lake)
    meeting.hold(point, lambda: parse(spark, old), lambda: parse(spark, new))
    by_one_plan(lake)
    land(lake)
    parse(spark, new)
    account(lake, key="request_id")
    by_one_plan(lake)


@pytest.mark.parametrize("point", some_in_make_test(held_steps.REPARSE, "append:1:after"))
def test_two_reparses_move_each_row_once(spark: SparkSession, lake: Lake, meeting: Meeting, point: str) -> None:
    land(lake)
    parse(spark, lake.route(**OLD))
    mended = lake.route(**MENDED)
    meeting.hold(point, lambda: reparse(spark, mended), lambda: reparse(spark, mended))
    assert lake.quarantine("stream_offset") == [4, 5]
    assert lake.silver("stream_offset") == [0, 1]


@pytest.mark.parametrize("point", some_in_make_test(held_steps.REPARSE, "append:1:before"))
def test_a_parse_in_the_midst_of_a_reparse(spark: SparkSession, lake: Lake, meeting: Meeting, point: str) -> None:
    """Also where both would bring the same key to silver."""
    land(lake)
    parse(spark, lake.route(**OLD))
    lake.land(event(amount=3, request_id="b0"))
    mended = lake.route(**MENDED)
    meeting.hold(point, lambda: reparse(spark, mended), lambda: parse(spark, mended))
    reparse(spark, mended)
    account(lake, key="request_id")
    assert [row for row in lake.silver("request_id") if row == "b0"] == ["b0"]


@pytest.mark.parametrize("point", some_in_make_test(held_steps.PARSE, "append:2:before"))
def test_a_reparse_in_the_midst_of_a_parse(spark: SparkSession, lake: Lake, meeting: Meeting, point: str) -> None:
    land(lake)
    parse(spark, lake.route(**OLD))
    land(lake)
    mended = lake.route(**MENDED)
    meeting.hold(point, lambda: parse(spark, mended), lambda: reparse(spark, mended))
    reparse(spark, mended)
    account(lake, key="request_id")


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("point", some_in_make_test(held_steps.PARSE, "append:1:after"))
def test_a_reset_in_the_midst_of_a_parse(
    spark: SparkSession, lake: Lake, meeting: Meeting, point: str, *, empty: bool
) -> None:
    """What the parse has yet to write is not written any more; the next one begins at the start."""
    route = lake.route(**OLD)
    land(lake)

    def begin_anew() -> None:
        reset(spark, route, empty=empty)
        parse(spark, route)

    meeting.hold(point, lambda: parse(spark, route), begin_anew)
    parse(spark, route)
    account(lake, key="request_id")
    assert (lake.silver("stream_offset"), lake.quarantine("stream_offset")) == ([0], [1, 3, 4, 5])


@pytest.mark.parametrize("point", some_in_make_test(held_steps.RESET[1:], "claim:1:after", "change:1:after"))
def test_a_reset_that_was_cut_is_ended_by_the_next_parse(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """However far it had come; and one that is only held finds nothing left to do."""
    land(lake)
    parse(spark, lake.route(**OLD))
    with (
        monkeypatch.context() as patch,
        Held(point, lambda: reset(spark, lake.route(**OLD), empty=True), patch.setattr),
    ):
        found = parse(spark, lake.route(**NEW))
        account(lake, key="request_id")
    assert parse(spark, lake.route(**NEW)) == Balance()
    account(lake, key="request_id")
    assert found == Balance(raw=7, silver=2, quarantine=3, duplicates=1, tombstones=1)
    assert {*lake.silver("processing_version"), *lake.quarantine("processing_version")} == {"2.0"}


def test_a_step_that_was_given_up_by_half_is_given_up(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a run that has its plan: what has been told in one table holds for both."""
    land(lake)
    for route, point in ((lake.route(**OLD), "append:1:before"), (lake.route(**NEW), "append:2:before")):
        with monkeypatch.context() as patch:
            held_steps.arm(point, crash, patch.setattr)
            with pytest.raises(IngestorError, match="crash"):
                parse(spark, route)
    assert parse(spark, lake.route(**OLD)) == Balance(raw=7, silver=1, quarantine=4, duplicates=1, tombstones=1)
    account(lake, key="request_id")
    by_one_plan(lake)


def crash() -> None:
    raise RuntimeError("crash")


def test_a_first_parse_and_a_reparse_may_begin_together(spark: SparkSession, lake: Lake, meeting: Meeting) -> None:
    """Both make the tables."""
    land(lake)
    route = lake.route(**OLD)
    meeting.hold("claim:1:before", lambda: parse(spark, route), lambda: reparse(spark, route))
    parse(spark, route)
    assert lake.silver("stream_offset") == [0]
    account(lake, key="request_id")
