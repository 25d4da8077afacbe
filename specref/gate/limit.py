"""The time that a call of a subject may take."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import CodeType, FrameType
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., object])
_deaf: set[CodeType] = set()

SOON, AGAIN = 1e-3, 1.0
"""Seconds until a ring is repeated: where it could not be heard, and in any case."""


class TimeLimit(BaseException):
    """A call ran too long; not an `Exception`, so that a subject cannot swallow it."""


def deaf(function: _F) -> _F:
    """Say that nothing raised in a function gets out of it: C calls it and drops what it raises."""
    _deaf.add(function.__code__)
    return function


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what is inside after some time, where the platform can (main thread, POSIX).

    What a callback or a finaliser raises is dropped by whoever called it: it rings again then, and
    at the latest when the call has ended.

    Raises:
        TimeLimit: the call took longer.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    rung = over = False

    def ring(_: int, frame: FrameType | None) -> None:
        nonlocal rung
        if over:
            return
        rung = True
        while frame is not None:
            if frame.f_code in _deaf:
                signal.setitimer(signal.ITIMER_REAL, SOON, AGAIN)
                return
            frame = frame.f_back
        raise TimeLimit

    def dropped(report: Any) -> None:
        if isinstance(report.exc_value, TimeLimit):
            signal.setitimer(signal.ITIMER_REAL, SOON, AGAIN)
        else:
            hook(report)

    start, (theirs, every) = monotonic(), signal.setitimer(signal.ITIMER_REAL, 0)
    before = signal.signal(signal.SIGALRM, ring)
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        yield
    finally:
        over = True
        # Silent before the handler is theirs again: by default, an alarm ends the process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
        if theirs:  # a timer of the test runner goes on
            signal.setitimer(signal.ITIMER_REAL, max(theirs - (monotonic() - start), SOON), every)
    if rung:
        raise TimeLimit
