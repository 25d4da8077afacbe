"""The time limit of a call: it ends the call, whatever the call does, and leaves nothing behind."""

import gc
import signal
import sys
import time

import pytest
from numpy.random import default_rng

from specref.gate.inject import controlled, play
from specref.gate.limit import TimeLimit, limited
from specref.gate.seeds import states_kept

LONG = 20.0
"""Seconds after which a loop ends by itself, so that a limit that fails costs no more."""


@pytest.fixture(autouse=True)
def as_before():
    """No timer runs on, and no handler stays behind."""
    before = signal.getsignal(signal.SIGALRM), sys.unraisablehook
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert (signal.getsignal(signal.SIGALRM), sys.unraisablehook) == before


def until(end):
    """Loop as long as a test may wait for the limit."""
    while time.monotonic() < end:
        pass


def stopped(call, seconds=0.05):
    """Whether a call that loops is stopped well before it ends by itself."""
    start = time.monotonic()
    with pytest.raises(TimeLimit), limited(seconds):
        call(start + LONG)
    return time.monotonic() - start < LONG / 2


def test_a_call_in_time_is_left_alone():
    with limited(60.0):
        pass


def test_a_call_that_loops_is_stopped():
    assert stopped(until)


def test_a_ring_that_falls_into_the_collection_of_garbage_is_not_lost():
    """There, Python runs callbacks whose exceptions it can only report."""
    deaf = []

    def wait(phase, info):
        if not deaf:
            deaf.append(phase)
            until(time.monotonic() + 1.0)

    def call(end):
        gc.collect()
        until(end)

    gc.callbacks.append(wait)
    try:
        assert stopped(call)
    finally:
        gc.callbacks.remove(wait)
    assert deaf


def test_a_ring_that_a_call_swallows_comes_again():
    def call(end):
        try:
            until(end)
        except BaseException:
            until(end)

    assert stopped(call)


def test_a_ring_that_a_call_swallows_at_its_end_is_told():
    def call(end):
        try:
            until(end)
        except BaseException:
            return

    assert stopped(call)


def test_a_ring_while_numbers_are_drawn_is_not_lost():
    def call(end):
        rng = default_rng(0)
        while rng.random() < 2 and time.monotonic() < end:
            pass

    with states_kept(), controlled():
        assert stopped(lambda end: play(lambda seed: call(end), 0))


def test_what_cannot_be_raised_is_told_to_the_hook_of_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: told.append(report.exc_value))

    class Ends:
        def __del__(self):
            raise ArithmeticError

    with limited(60.0):
        Ends()
    assert [type(error) for error in told] == [ArithmeticError]


def test_a_limit_within_a_limit_leaves_the_outer_one():
    start, inner = time.monotonic(), []

    def call(end):
        inner.append(stopped(until))
        until(end)

    assert stopped(call, 0.2)
    assert inner == [True]
    assert time.monotonic() - start >= 0.2


def test_no_timer_runs_while_handlers_are_exchanged(monkeypatch):
    """By default, an alarm ends the process."""
    exchange, running = signal.signal, []

    def watched(number, handler):
        running.append(signal.getitimer(signal.ITIMER_REAL)[0])
        return exchange(number, handler)

    monkeypatch.setattr(signal, "signal", watched)
    with limited(60.0):
        pass
    assert running == [0, 0]
