"""The time that a call of a subject may take."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import CodeType, FrameType
from typing import TypeVar

_F = TypeVar("_F", bound=Callable[..., object])
_deaf: set[CodeType] = set()

SOON, AGAIN = 1e-3, 1.0
"""Seconds until a ring is repeated: where it could not be heard, and in any case."""


class TimeLimit(BaseException):
    """A call ran too long; not an `Exception`, so that a subject cannot swallow it."""


def deaf(function: _F) -> _F:
    """Say that nothing raised in a function gets out of it: C calls it and drops what it raises."""
    _deaf.add(function.__code__)  # type: ignore[attr-defined]
    return function


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what is inside after some time, where the platform can (main thread, POSIX).

    What a callback or a finaliser raises is dropped by whoever called it: it rings again then.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code in _deaf:
                signal.setitimer(signal.ITIMER_REAL, SOON, AGAIN)
                return
            frame = frame.f_back
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, ring)
    theirs, every = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    start = monotonic()
    try:
        yield
    finally:
        left = max(theirs - (monotonic() - start), 1e-3) if theirs else 0
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, every)  # a timer of the test runner goes on
