"""The command line: a thin door to the gate and to the reference.

Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 usage, 70 an error of ours, 130 interrupted.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import typer

from specref.cli import gating, reference
from specref.cli.app import (
    CODES,
    FAIL,
    INCONCLUSIVE,
    INTERNAL,
    INTERRUPTED,
    PASS,
    USAGE,
    app,
)
from specref.cli.output import complain, drop
from specref.gate.errors import UsageError, nearest

__all__ = [
    "CODES",
    "FAIL",
    "INCONCLUSIVE",
    "INTERNAL",
    "INTERRUPTED",
    "PASS",
    "USAGE",
    "app",
    "gating",
    "main",
    "reference",
]

# Typer may carry its own copy of click; this is the base of what its parser raises either way.
ParseError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

PATIENCE = 5.0
"""Seconds that threads of a subject may take to end once the gate is done."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    if sys.stdout is None:
        complain("stdout is closed; send it to a file or to /dev/null")
        sys.exit(USAGE)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a subject's name may hold what the terminal cannot
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if args is None else args)
    code = _run(words)
    if args is None:  # the process is ours alone
        _leave_within(PATIENCE, code)
    sys.exit(code)


def _leave_within(seconds: float, code: int) -> None:
    """See to it that the process ends, whatever threads a subject left behind."""
    left = [thread for thread in threading.enumerate() if not thread.daemon]
    if left == [threading.main_thread()]:
        return

    def leave() -> None:
        complain("a thread of the subject goes on; it is not waited for")
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _run(words: list[str]) -> int:
    try:
        code = app(args=words or ["--help"], prog_name="specref", standalone_mode=False)
        if not words:
            return USAGE  # in a script, a lost argument must not look like a pass
    except (UsageError, ParseError) as error:
        complain(_advice(error, words))
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else INTERNAL
    except OSError as error:
        return _internal(error) if error.filename else _unwritten(error)
    except BaseException as error:
        return _internal(error)
    if code == INTERRUPTED:
        complain("interrupted")
    return code if isinstance(code, int) else PASS


def _internal(error: BaseException) -> int:
    """Tell of an error that is ours."""
    if os.environ.get("SPECREF_DEBUG"):
        import traceback

        traceback.print_exception(error)
    lines = str(error).splitlines() or [""]
    complain(
        f"internal error: {type(error).__name__}: {lines[0]} "
        "(set SPECREF_DEBUG=1 to see the traceback)"
    )
    return INTERNAL


def _unwritten(error: OSError) -> int:
    """Tell that stdout cannot be written; a reader that has gone is no error."""
    drop(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return PASS
    complain(f"stdout cannot be written: {error.strerror}")
    return USAGE


def _advice(error: Exception, words: Sequence[str]) -> str:
    """Return what an error says, with the nearest names where something is unknown."""
    if isinstance(error, UsageError):
        return str(error)
    said: Callable[[], str] = getattr(error, "format_message", error.__str__)
    text, context = said().strip(), getattr(error, "ctx", None)
    if context is None:
        return text
    command = context.command
    known: Iterable[str] = getattr(command, "commands", {})
    if "No such command" in text and words:
        text = f"there is no command {words[0]!r}{nearest(words[0], known)}"
        return f"{text}; commands: {', '.join(known)}"
    option = getattr(error, "option_name", None)
    if "No such option" in text and option:
        options = [name for param in command.params for name in param.opts if name[:2] == "--"]
        text = f"there is no option {option}{nearest(option, options)}"
        if options:
            text += f"; options: {', '.join(options)}"
        return text
    return f"{text.rstrip('.')}; see {context.command_path} --help"
