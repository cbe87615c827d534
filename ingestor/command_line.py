"""What both programs' command lines share: how a command ends, and how it asks.

A command ends with an exit code of the contract (see `errors`). After a failure the last line on stderr says what
happened and what to do.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from typing import Any

import typer

from ingestor import logs
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # the base of all usage errors; typer does not export it
_CODE_INTERRUPTED = 130  # newer versions of typer return it instead of raising Abort


def run(app: typer.Typer, program: str, *, called: str | None = None) -> int:
    """Run a command, write its last line, flush both streams, and return the exit code.

    `called` is what people type to start the program, where that is not its name.
    """
    logs.configure("console", "INFO")
    code, words = _run(app, called or program)
    if words:
        sys.stderr.write(f"{program}: {' '.join(words.split())}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader of a pipe may be gone
            stream.flush()
    return code


def _run(app: typer.Typer, called: str) -> tuple[int, str]:
    """Run a command; return its exit code and the text of its last line."""
    words = ""
    try:
        code = app(standalone_mode=False, prog_name=called) or 0
    except SystemExit as end:
        code = int(end.code or 0) if isinstance(end.code, int | None) else 1
    except (KeyboardInterrupt, typer.Abort):
        code = _CODE_INTERRUPTED
    except _UsageError as error:
        code, words = ConfigError.exit_code, _misuse(error, called)
    except IngestorError as error:
        _debug_traceback()
        code, words = error.exit_code, str(error)
    except Unavailable as error:
        _debug_traceback()
        hint = "see that Kafka and the table's store are reachable; try `ingestor check`"
        code, words = RefusedError.exit_code, f"{error} — {hint}"
    except Exception as error:  # noqa: BLE001 - the last resort: tracebacks are for log level DEBUG
        _debug_traceback()
        code, words = 1, f"{type(error).__name__}: {error} — set log.level: DEBUG to see where"
    return (1, "interrupted — start again, nothing is lost") if code == _CODE_INTERRUPTED else (code, words)


def _misuse(error: Any, called: str) -> str:  # noqa: ANN401 - the library's own type is private
    """Return what is wrong with the command line; print the help if no command is given."""
    command = error.ctx.command_path if error.ctx is not None else called
    words = error.format_message()
    if error.ctx is not None and words == error.ctx.get_help():
        sys.stderr.write(f"{words}\n")
        words = "no command is given"
    return f"{words.rstrip('.')} — see `{command} --help`"


def _debug_traceback() -> None:
    if logging.getLogger(logs.NAME).isEnabledFor(logging.DEBUG):
        traceback.print_exc()


def ask(question: str, default: str | None) -> str:
    """Ask on stderr until there is an answer."""
    return str(typer.prompt(question, default=default, err=True))


def confirm(question: str) -> bool:
    """Ask on stderr, since stdout is for results; no answer means no."""
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not (sys.stdin.isatty() and answer.endswith("\n")):
        typer.echo(err=True)  # end the line that no terminal has ended
    return answer.strip().lower() in ("y", "yes")
