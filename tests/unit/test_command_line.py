"""However a command ends: an exit code of the contract, and after a failure one last line."""

from __future__ import annotations

import io
import logging
import sys
from typing import TYPE_CHECKING

import pytest
import typer

from ingestor import command_line, logs
from ingestor.errors import DataLossError, OccExhaustedError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERRUPTED = "program: interrupted — start again, nothing is lost"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a program that has one command, which ends as it is told to."""
    monkeypatch.setattr(logs, "configure", lambda *_: None)

    def run(*arguments: str, ending: BaseException | None = None) -> int:
        app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)
        app.callback()(lambda: None)

        @app.command()
        def end() -> None:
            if ending is not None:
                raise ending

        monkeypatch.setattr(sys, "argv", ["whatever", *arguments])
        return command_line.run(app, "program", called="start program")

    return run


@pytest.mark.parametrize(
    ("ending", "code", "line"),
    [
        (None, 0, ""),
        (typer.Exit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit("words"), 1, ""),
        (DataLossError("rows are\ngone", hint="look"), 3, "program: rows are gone — look"),
        (OccExhaustedError("others won", hint="start again"), 5, "program: others won — start again"),
        (
            Unavailable("Kafka: no answer"),
            4,
            "program: Kafka: no answer — see that Kafka and the table's store are reachable; try `ingestor check`",
        ),
        (ValueError("no\n  such"), 1, "program: ValueError: no such — set log.level: DEBUG to see where"),
        (KeyboardInterrupt(), 1, INTERRUPTED),
        (EOFError(), 1, INTERRUPTED),
    ],
)
def test_every_ending_has_its_code_and_its_line(
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    ending: BaseException | None,
    code: int,
    line: str,
) -> None:
    """And nobody gets a traceback who did not ask for one."""
    assert run("end", ending=ending) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip() == line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "program: no command is given — see `start program --help`"),
        (("--bogus",), "program: No such option: --bogus — see `start program --help`"),
        (("end", "--bogus"), "program: No such option: --bogus — see `start program end --help`"),
    ],
)
def test_a_misuse_is_told_with_the_way_out(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    """In words that can be typed as they stand there."""
    assert run(*arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == line


@pytest.fixture
def debugging() -> Iterator[None]:
    logger = logging.getLogger(logs.NAME)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("debugging")
def test_who_asked_for_a_traceback_gets_it(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Before the last line, which stays the last."""
    assert run("end", ending=ValueError("no")) == 1
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("Traceback")
    assert last.startswith("program: ValueError: no — ")


@pytest.mark.parametrize(
    ("answer", "yes"), [("y\n", True), (" Yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_only_a_yes_is_a_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str, *, yes: bool
) -> None:
    """The question goes to people, not into results."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert command_line.confirm("Go ahead?") is yes
    assert capsys.readouterr() == ("", "Go ahead? [y/N] \n")
