"""Seeds that the gate gives away, and the global states that it leaves as they were."""

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from specref.philox import Domain, uniform


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a call, far from its neighbours': a subject may count on from it."""
    return int(uniform(seed, number, 0, Domain.DRAFT) * (1 << 31))


@contextmanager
def states_kept() -> Iterator[None]:
    """Leave every global random state, and what becomes of warnings, as it was: in any case."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()
    own = torch.get_rng_state() if torch else None
    try:
        with warnings.catch_warnings():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch:
            torch.set_rng_state(own)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: on a dozen numbers, several wait for each other."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 1
    try:
        if before > 1:
            torch.set_num_threads(1)  # type: ignore[union-attr]
        yield
    finally:
        if before > 1:
            torch.set_num_threads(before)  # type: ignore[union-attr]


def ambient(seed: int) -> None:
    """Seed every global random source."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch:
        torch.default_generator.manual_seed(seed)  # torch.manual_seed asks every backend
