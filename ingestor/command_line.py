"""What the programs' command lines have in common: how a command ends, and how it asks.

It ends with an exit code of the contract (see `errors`), and after a failure with one last line on stderr that says
what happened and what to do.
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

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # what every misuse is, and typer does not export
_CODE_INTERRUPTED = 130  # what newer versions of typer return instead of raising Abort


def run(app: typer.Typer, program: str, *, called: str | None = None) -> int:
    """Run a command; return its exit code, with the last line and all else that was said flushed.

    `called` is what people type to start the program, if that is not its name.
    """
    logs.configure("console", "INFO")
    code, words = _run(app, called or program)
    if words:
        sys.stderr.write(f"{program}: {' '.join(words.split())}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it may be gone
            stream.flush()
    return code


def _run(app: typer.Typer, called: str) -> tuple[int, str]:
    """Run a command; return its exit code and what its last line has to say."""
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
        hint = "see that Kafka and the table's store can be reached; `ingestor check` tells"
        code, words = RefusedError.exit_code, f"{error} — {hint}"
    except Exception as error:  # noqa: BLE001 - the last resort: nobody gets a traceback who did not ask for one
        _debug_traceback()
        code, words = 1, f"{type(error).__name__}: {error} — set log.level: DEBUG to see where"
    return (1, "interrupted — start again, nothing is lost") if code == _CODE_INTERRUPTED else (code, words)


def _misuse(error: Any, called: str) -> str:  # noqa: ANN401 - the library's own type is private
    """Return what is wrong with the command line; without any command show what there is."""
    command = error.ctx.command_path if error.ctx is not None else called
    words = error.format_message()
    if error.ctx is not None and words == error.ctx.get_help():
        sys.stderr.write(f"{words}\n")
        words = "no command is given"
    return f"{words.rstrip('.')} — `{command} --help` tells what there is"


def _debug_traceback() -> None:
    if logging.getLogger(logs.NAME).isEnabledFor(logging.DEBUG):
        traceback.print_exc()


def confirm(question: str) -> bool:
    """Ask on stderr, for stdout is for results; no answer is a no."""
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not (sys.stdin.isatty() and answer.endswith("\n")):
        typer.echo(err=True)  # nobody has typed the end of the line
    return answer.strip().lower() in ("y", "yes")
