"""The time that a call of a subject may take."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any


class TimeLimit(BaseException):
    """A call ran too long; not an `Exception`, so that a subject cannot swallow it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what is inside after some time, where the platform can (main thread, POSIX)."""
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, ring)
    theirs, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    start = monotonic()
    try:
        yield
    finally:
        left = max(theirs - (monotonic() - start), 1e-3) if theirs else 0
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)  # a timer of the test runner goes on
