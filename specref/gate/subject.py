"""Subjects: somebody's sampler, found by name and spoken to with care.

A subject is a module, an object or a class with these names; there is no base class:

    name, rules = "my_engine 1.2", ["token"]
    def sample(case, n, seed): ...          # required: n rounds on the case, [n, gamma+1], -1 pads
    def propose(case, n, seed): ...         # optional: (tokens [n, gamma], q [n, gamma, V]),
                                            # drawn from the case's q rows, -1 pads short drafts
    drafts = "with_replacement"             # optional: the drafts it is made for
    shape = "chain"                         # optional, for a subject that declares no rule

Whatever it does wrong becomes an outcome: an exception, a wrong shape or an impossible id is a
`Problem` that has a probability, like any emitted text.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic
from traceback import walk_tb
from typing import Any

import numpy as np

from specref.draft import DRAFTS, Drafter
from specref.gate.cases import Case
from specref.rules import RULES

BUILT_IN = {"transformers": "specref.subjects.transformers"}
"""Subjects that come with specref: name on the command line, and module."""


MOST_ROWS = 1 << 12
"""A call is asked for no more rows: its time limit is meant for one call, not for a whole check."""


class UsageError(Exception):
    """The gate was asked for something that does not exist; the message names the cure."""


@dataclass(frozen=True)
class Problem:
    """An outcome that is no round: what kind of mistake, and what exactly."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


Outcome = tuple[int, ...] | Problem
"""Emitted tokens, or what went wrong instead."""


@dataclass
class Subject:
    """A loaded subject.

    Attributes:
        spec: how it was named.
        name: what it calls itself.
        rules: the rules it declares; empty if none.
        shape: "chain" or "tree".
        drafter: makes the drafts it is tried on.
        drafts: the drafter's name, for reports.
        call: its `sample`.
        propose: its own drafter, or None.
        time_limit: seconds that one call may take.
    """

    spec: str
    name: str
    rules: tuple[str, ...]
    shape: str
    drafter: Drafter
    drafts: str
    call: Callable[[Case, int, int], Any]
    propose: Callable[[Case, int, int], Any] | None
    time_limit: float = 60.0
    hung: bool = False

    def sample(self, case: Case, n: int, seed: int) -> list[Outcome]:
        """Run n rounds; return one outcome per row, or the same `Problem` for all of them."""
        hang = Problem("hang", f"sample ran longer than {self.time_limit:g} s; not called again")
        if self.hung:
            return [hang] * n
        try:
            with limited(self.time_limit):
                raw = self.call(case, n, seed)
        except TimeLimit:
            self.hung = True
            return [hang] * n
        except (Exception, SystemExit) as error:
            return [Problem("exception", describe(error))] * n
        return rows(raw, case, n)

    def proposals(self, case: Case, n: int, seed: int) -> Any:
        """Run the subject's drafter; return (tokens, q) as lists per row, or a `Problem`."""
        assert self.propose is not None
        try:
            with limited(self.time_limit):
                raw = self.propose(case, n, seed)
            tokens, q = raw
            tokens, q = _numbers(tokens), _numbers(q)
        except TimeLimit:
            return Problem("hang", f"propose ran longer than {self.time_limit:g} s")
        except (Exception, SystemExit) as error:
            return Problem("exception", f"propose: {describe(error)}")
        gamma, vocab = case.gamma, case.vocab
        if tokens.shape != (n, gamma) or q.shape != (n, gamma, vocab):
            return Problem(
                "shape",
                f"propose returned tokens {tokens.shape} and q {q.shape}; "
                f"expected {(n, gamma)} and {(n, gamma, vocab)}",
            )
        if not np.isfinite(q).all() or (q < 0).any() or (abs(q.sum(-1) - 1) > 1e-3).any():
            return Problem("shape", "propose returned q rows that are no laws")
        if (tokens < -1).any() or (tokens >= vocab).any():
            return Problem("range", f"propose returned ids outside 0 <= token < {vocab}")
        return [
            (
                tuple(int(x) for x in t[: int((t >= 0).cumprod().sum())]),
                tuple(tuple(float(w) for w in row) for row in r),
            )
            for t, r in zip(tokens, q, strict=True)
        ]


def describe(error: BaseException) -> str:
    """Return the type and first line of an exception, and the line of the subject it came from."""
    lines = str(error).splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    places = [
        f"{name}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if "/specref/gate/" not in (name := frame.f_code.co_filename) and "/torch/" not in name
    ]
    return f"{text} ({places[-1]})" if places else text


def rows(raw: Any, case: Case, n: int) -> list[Outcome]:
    """Return the outcome of each row of what `sample` returned."""
    width = case.gamma + 1
    if raw is None:
        return [Problem("shape", "sample returned nothing")] * n
    try:
        array = _numbers(raw)
    except Exception as error:
        return [Problem("shape", f"sample returned no array: {describe(error)}")] * n
    if array.shape != (n, width):
        return [Problem("shape", f"sample returned {array.shape}; expected {(n, width)}")] * n
    if array.dtype.kind == "f":
        if np.isnan(array).any():
            return [Problem("dtype", "sample returned NaN")] * n
        return [Problem("dtype", f"sample returned {array.dtype}; expected integers")] * n
    if array.dtype.kind not in "iu":
        return [Problem("dtype", f"sample returned {array.dtype}; expected integers")] * n
    return [_round([int(x) for x in row], case.vocab) for row in array]


def _round(row: list[int], vocab: int) -> Outcome:
    length = row.index(-1) if -1 in row else len(row)
    if any(x != -1 for x in row[length:]):
        return Problem("padding", f"tokens after the first -1: {row}")
    if length == 0:
        return Problem("empty", "a round emitted nothing; it emits at least one token")
    for x in row[:length]:
        if not 0 <= x < vocab:
            return Problem("range", f"token {x} is outside 0 <= token < {vocab}")
    return tuple(row[:length])


def _numbers(raw: Any) -> Any:
    """Return a NumPy array of what a subject returned: a tensor, an array or nested lists."""
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    return np.asarray(raw)


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


def load(spec: str | Any) -> Subject:
    """Find a subject.

    Args:
        spec: a built-in name, `package.module`, `package.module:attribute`, a path ending in .py
            (with `:attribute` if need be), or the subject itself.

    Raises:
        UsageError: nothing of that name, or something that is no subject.
    """
    if not isinstance(spec, str):
        label = getattr(spec, "name", None) or getattr(spec, "__name__", None)
        return wrap(spec, str(label or type(spec).__name__))
    place, _, attribute = spec.partition(":")
    if spec in BUILT_IN:
        place, attribute = BUILT_IN[spec], ""
    try:
        found = _from_file(place) if place.endswith(".py") else _from_import(place, spec)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"subject {spec!r} does not import: {describe(error)}") from None
    for part in filter(None, attribute.split(".")):
        if not hasattr(found, part):
            raise UsageError(f"{place} has no attribute {part!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    return wrap(found, spec)


def _from_file(place: str) -> Any:
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"there is no file {place!r}")
    module_spec = spec_from_file_location(f"specref_subject_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = module_from_spec(module_spec)
    sys.modules[module.__name__] = module
    module_spec.loader.exec_module(module)
    return module


def _from_import(place: str, spec: str) -> Any:
    if "." not in place and ":" not in spec and spec not in BUILT_IN:
        raise UsageError(
            f"there is no subject {spec!r}{nearest(place, BUILT_IN)}; use a built-in name "
            f"({', '.join(BUILT_IN)}), package.module, module:attribute or a path to a .py file"
        )
    sys.path.insert(0, "")  # as `python -m` does: what stands in the working directory is found
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if spec in BUILT_IN:
            raise UsageError(
                f"subject {spec!r} needs {error.name}; pip install 'specref[{spec}]'"
            ) from None
        raise UsageError(f"subject {spec!r} does not import: {describe(error)}") from None
    finally:
        sys.path.remove("")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (nearest: ...)" for a name that is not known, "" if none is near."""
    found = get_close_matches(name, list(known), 3, cutoff=0.4)
    return f" (nearest: {', '.join(found)})" if found else ""


def wrap(found: Any, spec: str) -> Subject:
    """Check that an object is a subject, and what it declares."""
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise UsageError(f"{spec}() does not start: {describe(error)}") from None
    call = getattr(found, "sample", None)
    if not callable(call):
        raise UsageError(f"{spec} has no sample(case, n, seed); that function is what is checked")
    declared = getattr(found, "rules", None) or ()
    declared = (declared,) if isinstance(declared, str) else tuple(declared)
    for rule in declared:
        known_rule(rule)
    shapes = {RULES[rule].shape for rule in declared}
    if len(shapes) > 1:
        raise UsageError(f"{spec} declares rules for chains and for trees; gate them separately")
    shape = shapes.pop() if shapes else getattr(found, "shape", "chain")
    if shape not in ("chain", "tree"):
        raise UsageError(f"{spec}.shape = {shape!r}; it is 'chain' or 'tree'")
    drafter, drafts = _drafter(getattr(found, "drafts", None), declared, spec)
    propose = getattr(found, "propose", None)
    return Subject(
        spec,
        str(getattr(found, "name", spec)),
        declared,
        shape,
        drafter,
        drafts,
        call,
        propose if callable(propose) else None,
        float(getattr(found, "time_limit", 60.0)),
    )


def known_rule(rule: str) -> str:
    """Return the name of a rule that exists, or raise with the nearest names."""
    if rule not in RULES:
        raise UsageError(
            f"there is no rule {rule!r}{nearest(rule, RULES)}; rules: {', '.join(RULES)}"
        )
    return rule


def _drafter(given: Any, rules: tuple[str, ...], spec: str) -> tuple[Drafter, str]:
    if callable(given):
        return given, getattr(given, "__name__", "own")
    if given is None:
        drafter = RULES[rules[0]].draft if rules else DRAFTS["with_replacement"]
        return drafter, drafter.__name__
    if given not in DRAFTS:
        raise UsageError(
            f"{spec}.drafts = {given!r} is unknown{nearest(str(given), DRAFTS)}; "
            f"drafts: {', '.join(DRAFTS)}"
        )
    return DRAFTS[given], given
