"""Steps as text: what a claim says is what was written, also by a version that wrote it otherwise."""

from __future__ import annotations

import json

from ingestor.config.parse import ParseSettings
from spark_jobs.plan.plan import make
from spark_jobs.rows.balance import Balance
from spark_jobs.steps.raw import Batch, Position
from spark_jobs.steps.steps import End, Step, Tables


def step() -> Step:
    plan = make("events", ParseSettings.model_validate({"schema": "a STRING", "dedupe": {"by": ["a"]}}))
    batch = Batch(("a%20b.parquet",), 7, deleted=True, end=Position(8), replaced=("b",))
    return Step(3, "parse", "app", "me", Tables("r", "s", None), Position(5, 2, snapshot=True), plan, batch)


def test_a_claim_comes_back_as_it_was_written() -> None:
    written = step()
    found = Step.from_json(f"{written.to_json()}\n")
    assert (found.plan, found.batch, found.begin) == (written.plan, written.batch, written.begin)
    assert (found.tables, found.kind, found.claim) == (written.tables, "parse", written.claim)


def test_a_claim_of_a_version_with_fewer_settings_keeps_its_hash() -> None:
    """Its commits carry it: a step that is half landed when the jobs are updated must be known again."""
    text = json.loads(step().to_json())
    del text["plan"]["registry"]
    del text["batch"]["replaced"]
    older = json.dumps(text)
    found = Step.from_json(older)
    assert found.plan == step().plan
    assert found.batch is not None
    assert found.batch.replaced == ()
    assert found.to_json() == older
    assert found.claim == Step.from_json(f"{older}\n").claim != step().claim


def test_an_end_comes_back_as_it_was_written() -> None:
    end = End("me", Position(4), void=True, balance=Balance(raw=2, silver=2))
    assert End.from_json(end.to_json()) == end
    assert End.from_json(End("me", None).to_json()).position is None
