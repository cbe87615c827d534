"""`ingestor run`: ingests until a signal, or with `--once` up to the ends that Kafka has at the start."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.commands.assembly import Assembly, times
from ingestor.commands.drain import Drain, Endless, Landed, ended_early
from ingestor.config.routing import matching
from ingestor.dead_letters.downstream import Downstream
from ingestor.errors import ConfigError, RefusedError, Unavailable
from ingestor.kafka.written import first_written
from ingestor.observe.http import HttpServer
from ingestor.observe.membership import Membership
from ingestor.observe.metrics import Metrics
from ingestor.observe.status import Status
from ingestor.observe.watch import Watch
from ingestor.records import TopicPartition
from ingestor.signals import Stop, Stopped

if TYPE_CHECKING:
    from ingestor.commands.drain import Goal
    from ingestor.config.settings import Settings
    from ingestor.ingest.pipeline import Pipeline

ONCE_PATIENCE_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.5
_ASK_SECONDS = 2.0  # a signal is noticed only between two requests
# Far above the objects of one poll: they are short-lived, and scanning them would cost a fifth of the CPU.
_GARBAGE_AFTER_OBJECTS = 200_000
_STUCK_SECONDS = 30.0  # a loop without a step for this long counts as stuck, a flush in a rebalance apart


def run(settings: Settings, *, once: bool, progress: bool = False) -> int:
    """Ingest; return the number of committed rows. With `once` raise unless all rows up to the ends are committed."""
    watch = Watch(Metrics())
    stop = Stop("ingestor: stopped at once; what was not committed is read again at the next start")
    assembly = Assembly(settings, watch, stop=stop)
    stop.listen()
    pipeline: Pipeline | None = None
    goal: Goal | None = None
    status, server = _serve(settings, assembly, watch)
    try:
        ends = _wait_for_topics(settings, assembly, watch, stop, once=once)
        pipeline = assembly.pipeline(patience_seconds=ONCE_PATIENCE_SECONDS if once else None)
        if status is not None:
            pipeline.on_step = partial(status.tick, pipeline)
        http = None if server is None else server.url
        logs.get().info("started", routes=len(settings.routes), once=once, http=http, intake=assembly.intake)
        _spare_the_collector()
        membership = Membership(assembly.broker, settings.kafka, watch)
        if status is not None:
            status.why_no_assignment = lambda: membership.why
        goal = Endless(pipeline, membership)
        if once:
            landed = Landed(settings, assembly.broker, ends)
            patience = ONCE_PATIENCE_SECONDS
            goal = Drain(pipeline, ends, landed, membership, patience_seconds=patience, watch=watch, show=progress)
        pipeline.run(until=partial(_over, goal, stop), poll_seconds=goal.poll_seconds)
    except Stopped:
        pass
    except BaseException:
        stop.end()
        if pipeline is not None:
            pipeline.abandon()
        raise
    finally:
        assembly.broker.end()
        if status is not None:
            status.end()
    stop.end()
    logs.get().info("stopped", rows=watch.rows_landed)
    if goal is not None:
        goal.verdict(watch.rows_landed)
    elif once:
        raise ended_early(0, "nothing was read yet")
    return watch.rows_landed


def _over(goal: Goal, stop: Stop) -> bool:
    return goal.over() or stop.asked()


def _spare_the_collector() -> None:
    """Let the garbage collector run only when objects pile up, and never scan those of the start again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_AFTER_OBJECTS, *gc.get_threshold()[1:])


def _serve(settings: Settings, assembly: Assembly, watch: Watch) -> tuple[Status, HttpServer] | tuple[None, None]:
    """Start the HTTP server, if configured, before anything that may have to wait."""
    if settings.http is None:
        return None, None
    stuck_seconds = _STUCK_SECONDS + times(settings.kafka).revoke_seconds
    downstream = Downstream(settings)
    downstream.start()
    status = Status(
        settings,
        watch,
        assembly.broker,
        stuck_seconds=stuck_seconds,
        first_written=partial(first_written, settings.kafka),
        after=downstream.after,
    )
    watch.moved = status.moved
    server = HttpServer(settings.http.host, settings.http.port, status, watch.metrics.registry)
    server.start()
    return status, server


def _wait_for_topics(
    settings: Settings, assembly: Assembly, watch: Watch, stop: Stop, *, once: bool
) -> dict[TopicPartition, int]:
    """Wait until Kafka answers, with `once` also for every named topic; return the ends for `once`."""
    deadline = time.monotonic() + ONCE_PATIENCE_SECONDS
    while not stop.asked():
        watch.moved()
        over = once and time.monotonic() > deadline
        try:
            existing = assembly.broker.topics(timeout=_ASK_SECONDS)
            missing = [t for r in settings.routes.values() for t in matching(r, existing) if t not in existing]
            if not missing or not once:
                for topic in missing:
                    watch.waiting(f"topic {topic} does not exist yet")
                return _ends(settings, assembly, existing) if once else {}
            watch.waiting(f"topic {missing[0]} does not exist yet")
            if over:
                msg = f"topic {missing[0]} does not exist"
                raise ConfigError(msg, hint="create it, or correct the route's topics")
        except Unavailable as error:
            if over:
                msg = f"Kafka at {settings.kafka['bootstrap.servers']} does not answer ({error})"
                raise RefusedError(msg, hint="start the broker, or correct kafka.bootstrap.servers") from error
            watch.waiting(f"Kafka does not answer: {error}")
        stop.wait(_ASK_AGAIN_SECONDS)
    raise Stopped


def _ends(settings: Settings, assembly: Assembly, existing: dict[str, int]) -> dict[TopicPartition, int]:
    tps = [
        TopicPartition(topic, number)
        for route in settings.routes.values()
        for topic in matching(route, existing)
        for number in range(existing[topic])
    ]
    return {tp: marks.stable for tp, marks in assembly.broker.watermarks(tps).items()}
