"""Subjects: somebody's sampler, found by name and spoken to with care.

A subject is a module, an object or a class with these names; there is no base class. It has one of
`sample`, `generate` and `law`, or more:

    name, rules = "my_engine 1.2", ["token"]
    def sample(case, n, seed): ...          # n rounds on the case, [n, gamma+1], -1 pads; they may
                                            # be of different requests: take row i of what
                                            # `case.tensors(n)` gives, or ask for one row
    def decide(case, u): ...                # optional: the rounds that given draws u decide,
                                            # float64 [m, draws]: a coin per drafted node in
                                            # node order, then the terminal draw
    grid = 1 << 24                          # optional: the u are k / grid, 0 <= k < grid <= 2^53
    def propose(case, n, seed): ...         # optional: (tokens [n, gamma], q [n, gamma, V]),
                                            # drawn from the case's q rows, -1 pads short drafts;
                                            # a tree: (tokens, parents [n, nodes], q [n, nodes, V]),
                                            # node 0 is the root, case.q[d] the law at depth d
    drafts = "with_replacement"             # optional: the drafts it is made for, a name or a
                                            # drafter; left out, they go with each rule
    shape = "chain"                         # optional, for a subject that declares no rule
    seeded = True                           # optional: the seed decides every draw, None draws anew
    placeholders = True                     # optional: drafts may be padded with -1
    def off(case, n, seed): ...             # optional, of a lossy sampler: with its switch off

    def generate(model, n, seed, max_tokens, eos): ...
                                            # n whole sequences, [n, max_tokens], -1 after the end;
                                            # eos is a tuple of tokens (`gate.models.ToyModel`)
    models = [...]                          # optional: models of its own to be run on
    def law(logits, params): ...            # probabilities [n, V] of float32 logits [n, V] under a
                                            # dict of sampling parameters, its own arithmetic
    preset = "vllm"                         # how it reads them: a key of `specref.logits.PRESETS`
    parameters = ("temperature", "top_k")   # those that it has; `DEFAULT_PARAMETERS` if left out
    time_limit = 60                         # optional: seconds that one call may take

Whatever it does wrong becomes an outcome: an exception, a wrong shape or an impossible id is a
`Problem` that has a probability, like any emitted text. It runs in the gate's own process: what
ends that, `os._exit` or a crash of native code, ends the gate too, without a verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from sysconfig import get_path
from traceback import walk_tb
from typing import Any

import numpy as np

from specref.draft import Drafter
from specref.gate.cases import Case
from specref.gate.limit import TimeLimit, limited
from specref.logits import PRESETS, Preset
from specref.rules import RULES

DEFAULT_PARAMETERS = ("temperature", "top_k", "top_p")
"""The sampling parameters of a subject that does not say which it has."""

MOST_ROWS = 1 << 12
"""A call is asked for no more rows: its time limit is meant for one call, not for a whole check."""


@dataclass(frozen=True)
class Problem:
    """An outcome that is no round: what kind of mistake, and what exactly."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


Outcome = tuple[int, ...] | Problem
"""Emitted tokens, or what went wrong instead."""


class Hung(Exception):
    """A call took longer than the subject's time limit: nothing more is asked of the subject."""

    def __init__(self, what: str, case: Any, n: int, seconds: float) -> None:
        rows = "" if n == 1 else f" for {n} rows"
        super().__init__(f"{what} ran longer than {seconds:g} s{rows}")
        self.what, self.case, self.n = what, case, n


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
        chosen: whether it says itself which drafts it takes; else they go with the rule.
        call: its `sample`, or None.
        propose: its own drafter, or None.
        time_limit: seconds that one call may take.
        close: gives back what was started for it.
        decide: its `decide`, or None.
        grid: number of values of a draw that `decide` is given.
        source: what loads it again from any directory; empty for an object.
        seeded: whether it says that its seed decides every draw.
        placeholders: whether its drafts may be padded with -1.
        off: a lossy sampler with its switch off, or None.
        generate: runs whole sequences, or None.
        models: of its own, for `generate`.
        law: its law under sampling parameters, or None.
        preset: how it reads them.
        parameters: those that it has.
    """

    spec: str
    name: str
    rules: tuple[str, ...]
    shape: str
    drafter: Drafter
    drafts: str
    call: Callable[[Case, int, int], Any] | None
    propose: Callable[[Case, int, int], Any] | None
    time_limit: float = 60.0
    close: Callable[[], None] = lambda: None
    decide: Callable[[Case, Any], Any] | None = None
    grid: int = 1 << 24
    source: str = ""
    chosen: bool = False
    seeded: bool = False
    placeholders: bool = False
    off: Callable[[Case, int, int], Any] | None = None
    generate: Callable[[Any, int, int, int, tuple[int, ...]], Any] | None = None
    models: tuple[Any, ...] = ()
    law: Callable[[Any, dict[str, Any]], Any] | None = None
    preset: Preset = PRESETS["transformers"]
    parameters: tuple[str, ...] = DEFAULT_PARAMETERS

    def held_to(self, rule: str | None) -> "Subject":
        """Return the subject on the drafts that a rule is made for, unless it takes its own."""
        if rule is None or self.chosen:
            return self
        drafter = RULES[rule].draft
        return replace(self, drafter=drafter, drafts=drafter.__name__)

    def sample(self, case: Case, n: int, seed: int) -> list[Outcome]:
        """Run n rounds; return one outcome per row, or the same `Problem` for all of them.

        Raises:
            Hung: the call took too long.
        """
        assert self.call is not None
        call = self.call
        return self._rounds("sample", lambda: call(case, n, seed), case, n)

    def decided(self, case: Case, u: Any) -> list[Outcome]:
        """Run the rounds that draws u [m, draws] decide; outcomes as those of `sample`."""
        assert self.decide is not None
        decide = self.decide
        return self._rounds("decide", lambda: decide(case, u), case, len(u))

    def _rounds(self, what: str, call: Callable[[], Any], case: Case, n: int) -> list[Outcome]:
        try:
            with limited(self.time_limit):
                raw = call()
        except TimeLimit:
            raise Hung(what, case, n, self.time_limit) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return [Problem("exception", describe(error))] * n
        return rows(raw, case, n, what)

    def proposals(self, case: Case, n: int, seed: int) -> "list[Proposal] | Problem":
        """Run the subject's drafter; return one proposal per row, or what is wrong with them.

        Raises:
            Hung: the call took too long.
        """
        assert self.propose is not None
        try:
            with limited(self.time_limit):
                raw = self.propose(case, n, seed)
            parts = [_numbers(part) for part in raw]
        except TimeLimit:
            raise Hung("propose", case, n, self.time_limit) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Problem("exception", f"propose: {describe(error)}")
        return _proposals(parts, case, n)


@dataclass(frozen=True)
class Proposal:
    """A draft of the subject's own, and the q that it declares.

    Attributes:
        tokens, parents: of the nodes 1, 2, ...
        q: law of what is drafted below each node; a chain need not have one below its last token.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    q: tuple[tuple[float, ...], ...]


def _proposals(parts: list[Any], case: Case, n: int) -> list[Proposal] | Problem:
    """Return what `propose` returned, row by row, or what is wrong with it."""
    names = ("tokens", "q") if case.chain else ("tokens", "parents", "q")
    shapes = [part.shape for part in parts]
    nodes = case.gamma if case.chain else shapes[0][1] if shapes and len(shapes[0]) == 2 else 1
    wanted = [(n, nodes)] * (len(names) - 1) + [(n, nodes, case.vocab)]
    if shapes != wanted:
        return Problem("shape", f"propose returned {shapes}; {', '.join(names)} are {wanted}")
    *ids, q = parts
    if not np.isfinite(q).all() or (q < 0).any() or (abs(q.sum(-1) - 1) > 1e-3).any():
        return Problem("shape", "propose returned q rows that are no laws")
    if any(part.dtype.kind not in "iu" for part in ids):
        return Problem("dtype", "propose returned ids that are no integers")
    if (ids[0] < -1).any() or (ids[0] >= case.vocab).any():
        return Problem("range", f"propose returned ids outside 0 <= token < {case.vocab}")
    if case.chain:
        return [_chained(*row) for row in zip(ids[0], q, strict=True)]
    found = [_rooted(*row) for row in zip(*ids, q, strict=True)]
    if any(_depth(draft) > case.gamma for draft in found if draft):
        return Problem("range", f"propose returned a draft of more than {case.gamma} levels")
    drafts = [draft for draft in found if draft]
    if len(drafts) < n:
        return Problem("padding", "propose returned parents that are no earlier nodes")
    return drafts


def _chained(tokens: Any, q: Any) -> Proposal:
    count = int((tokens >= 0).cumprod().sum())
    return Proposal(tuple(tokens[:count].tolist()), tuple(range(count)), _laws(q))


def _rooted(tokens: Any, parents: Any, q: Any) -> Proposal | None:
    """Return a draft given as a tree; None if nodes do not come after their parents."""
    count = 1 + int((tokens[1:] >= 0).cumprod().sum())
    above = parents[1:count]
    if (above < 0).any() or (above > np.arange(count - 1)).any():
        return None
    return Proposal(tuple(tokens[1:count].tolist()), tuple(above.tolist()), _laws(q[:count]))


def _laws(rows: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(w) for w in row) for row in rows)


def _depth(draft: Proposal) -> int:
    depths = [0]
    for parent in draft.parents:
        depths.append(depths[parent] + 1)
    return max(depths)


def describe(error: BaseException) -> str:
    """Return the type and first line of an exception, and the line of the subject it came from."""
    try:
        lines = str(error).splitlines()
    except Exception:
        lines = ["its text cannot be read"]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    nearness, (path, line) = max(
        ((_nearness(path), (path, line)) for path, line in reversed(places)),
        key=lambda pair: pair[0],
        default=(0, ("", 0)),
    )
    return f"{text} ({path}:{line})" if nearness else text


_GATE = Path(__file__).parent
_STDLIB = Path(get_path("stdlib"))


def _nearness(name: str) -> int:
    """Return how near a file is to the subject: 0 ours, 1 tools, 2 other libraries, 3 its own."""
    path = Path(name)
    installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    if path.is_relative_to(_GATE) or "importlib" in (path.parent.name, name[8:17]):
        return 0
    if installed:
        return 1 if {"torch", "numpy"} & set(path.parts) else 2
    if name.startswith("<") or path.is_relative_to(_STDLIB):
        return 1
    return 2 if path.is_relative_to(_GATE.parent) else 3


def rows(raw: Any, case: Case, n: int, what: str = "sample") -> list[Outcome]:
    """Return the outcome of each row of what `sample`, or `decide`, returned."""
    width = case.gamma + 1
    if raw is None:
        return [Problem("shape", f"{what} returned nothing")] * n
    try:
        array = _numbers(raw)
    except Exception as error:
        return [Problem("shape", f"{what} returned no array: {describe(error)}")] * n
    if array.shape != (n, width):
        return [Problem("shape", f"{what} returned {array.shape}; expected {(n, width)}")] * n
    if array.dtype.kind == "f":
        if np.isnan(array).any():
            return [Problem("dtype", f"{what} returned NaN")] * n
        return [Problem("dtype", f"{what} returned {array.dtype}; expected integers")] * n
    if array.dtype.kind not in "iu":
        return [Problem("dtype", f"{what} returned {array.dtype}; expected integers")] * n
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
