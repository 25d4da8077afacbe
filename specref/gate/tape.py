"""The tape: run a torch function with its draws turned into choices, its comparisons into cells.

A sampler is a deterministic function of its draws. On a tape every draw is a *variable*: a uniform
is an integer k of a grid (`torch.rand` in float32 is k * 2^-24), a categorical draw is an index
with exact weights. The run is given a value for each, and follows the elements that depend on
it (their *taint*) through views, copies, in-place writes and monotone elementwise operations. Where
a tainted element is compared with a value that no draw reaches, the comparison is replayed for
other k: bisecting this local chain, not the sampler, gives the interval of k on which its result
stays the same. On the box of all these intervals every branch of the run, and so its output, is
constant: the box is a *cell*. Where one of several noisy scores is the largest (`gate.race`), the
winner is a variable of its own.

What the tape cannot follow is never guessed. An element that depends on two draws, or went through
an operation that is not known to be monotone, is *opaque*; if a decision hangs on it, or if a value
leaves torch (`.numpy()`, `float(...)`, DLPack), the run is marked with an *escape* and its cell
proves nothing.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from math import factorial, prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from specref.dist import as_fraction
from specref.gate.race import RACES, Ledger, raced
from specref.gate.scalar import Scalar, has_scalar, scalars, tensor_of
from specref.gate.taint import CLEAN, OPAQUE, Operand, Replay, Taint, tensors
from specref.gate.uniform import exponential, uniform
from specref.gate.variable import Box, Draw, Pick, Place, Race, Run, Runner, Variable

aten = torch.ops.aten

MONOTONE = frozenset(
    "add sub rsub mul div floor_divide neg log log2 log10 log1p exp exp2 expm1 sqrt rsqrt "
    "reciprocal sigmoid tanh erf erfc floor ceil round trunc clamp clamp_min clamp_max maximum "
    "minimum pow abs square sign relu hardtanh softplus atan sinh asinh _to_copy".split()
)
"""Elementwise operations that are monotone in one argument, the others fixed."""

ONE_SIGN = frozenset(["rsqrt", "reciprocal", "pow", "abs", "square"])
"""Those that are so only where the argument keeps its sign."""

WRAPS = frozenset(["add", "sub", "rsub", "mul", "neg", "pow", "abs", "square"])
"""Those that overflow if all their arguments are integers."""

COMPARE = frozenset(
    ["lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "signbit", "logical_not"]
)

MOVE: dict[str, tuple[int, ...]] = {
    # operation: positions of the arguments that carry values; other tensors are indices or masks
    "clone": (0,), "cat": (0,), "stack": (0,), "index": (0,), "_unsafe_index": (0,),
    "gather": (0,), "index_select": (0,), "take": (0,), "flip": (0,), "roll": (0,),
    "repeat": (0,), "where": (1, 2), "masked_fill": (0, 2), "masked_select": (0,),
    "masked_scatter": (0, 2), "index_put": (0, 2), "scatter": (0, 3), "slice_scatter": (0, 1),
    "select_scatter": (0, 1), "constant_pad_nd": (0, 2), "tril": (0,), "triu": (0,),
    "copy": (0, 1), "fill": (0, 1), "zero": (0,), "index_fill": (0, 3), "index_copy": (0, 3),
    "lift_fresh_copy": (0,),
}  # fmt: skip
"""Operations that only move values: they act on ids as they act on values."""

UNTOUCHED = frozenset(
    "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full "
    "new_empty_strided _unsafe_view resize_ set_".split()
)
"""Operations that read the shape alone, or return their argument's storage."""

EXITS = frozenset(
    "item tolist numpy __array__ __float__ __int__ __index__ __bool__ __complex__ __dlpack__ "
    "__repr__ __format__ __deepcopy__ __reduce_ex__ data_ptr storage untyped_storage "
    "apply_ map_".split()
)
"""Methods of a tensor that take its value out of torch."""

SHARES = frozenset("numpy __array__ __dlpack__ data_ptr storage untyped_storage".split())
"""Those that hand out the memory itself, where later writes show."""

MOST_PINNED = 1 << 12
"""A draw of more values than this is not pinned to one: there would be a cell for each."""


@dataclass(frozen=True)
class Operation:
    """What the tape needs to know of an ATen overload."""

    name: str
    base: str
    inplace: bool
    view: bool
    random: bool
    writes: bool
    again: Any  # the overload that computes the same without writing; None if there is none

    @staticmethod
    def of(func: Any) -> "Operation":
        schema = func._schema
        # What another library registers may share a name with ATen, and mean something else.
        name = schema.name.removeprefix("aten::")
        inplace = name.endswith("_") and not name.endswith("__")
        base = name[:-1] if inplace else name
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        again = None if writes else func
        if inplace:
            again = getattr(getattr(aten, base, None), func._overloadname, None)
        return Operation(
            name,
            base,
            inplace,
            torch.Tag.inplace_view in func.tags
            or (not writes and any(r.alias_info is not None for r in schema.returns)),
            torch.Tag.nondeterministic_seeded in func.tags,
            writes,
            again,
        )


_OPERATIONS: dict[Any, Operation] = {}


class Call:
    """A dispatched operation with its arguments; `real()` runs it, once."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op = operation(func)
        self.func, self.args, self.kwargs = func, args, kwargs
        self.done = False
        self.out: Any = None

    @property
    def device(self) -> str:
        """The kind of device it runs on."""
        given = self.kwargs.get("device") or next((t.device for t in tensors(self.args)), "cpu")
        return str(torch.device(given).type)

    @property
    def adds(self) -> bool:
        """Whether a move combines what it moves with what was there."""
        put = self.op.base == "index_put" and any(a is True for a in self.args)
        return put or "reduce" in self.kwargs

    def real(self) -> Any:
        """Run the operation as torch would; what it raises is the subject's affair."""
        if not self.done:
            try:
                self.out = self.func(*self.args, **self.kwargs)
            except Exception as error:
                raise Raised(error) from None
            self.done = True
        return self.out


class Raised(Exception):
    """Carries an exception that torch itself raised past the tape's own handling."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Tape(TorchDispatchMode):
    """Run what is inside `with tape.playing():` with its draws taken from a box.

    Args:
        box: intervals of the first variables; the run takes the middle of each, and the middle of
            the whole range for variables beyond.
        scalars: whether `.item()` hands out numbers that the tape follows.
    """

    def __init__(self, box: Box = (), scalars: bool = True) -> None:
        super().__init__()
        self.box, self.scalars = box, scalars
        self.run = Run()
        self.taint = Taint(self.escape)
        self._ledger = Ledger(self.run, self.escape)

    @contextmanager
    def playing(self) -> Iterator[Run]:
        """Replace random operations while inside; yield the run's record."""
        with torch.no_grad(), _as_written(), _Front(self), self:
            yield self.run

    def escape(self, what: str) -> None:
        """Record that the run depends on draws in a way that the tape does not see."""
        self.run.escapes.append(Place(what, caller()))

    def __call__(self, weights: Sequence[Any], at: Any = None) -> int:
        """Draw an index: the tape is a reading of `choose`, for drafts made by the gate."""
        return self.pick(tuple(as_fraction(w) for w in weights))

    def flip(self, chance: Any, at: Any = None) -> bool:
        """Draw a coin."""
        return self((chance, 1 - chance)) == 0

    def pick(self, weights: tuple[Fraction, ...], what: str = "") -> int:
        """Draw an index with the given weights, for an operation of the subject if it is named."""
        at = len(self.run.variables)
        given = self.box[at][0] if at < len(self.box) else None
        index = next(i for i, w in enumerate(weights) if w > 0) if given is None else given
        self._variable(Pick(weights), index, index, index + 1)
        if what:
            self.run.cuts[at].append(Place(what, caller()))
        return index

    def grid(self, size: int) -> int:
        """Draw an integer in [0, size); return the number of its variable."""
        at = len(self.run.variables)
        low, high = self.box[at] if at < len(self.box) else (0, size)
        self._variable(Draw(size), (low + high) // 2, low, high)
        return at

    def race(
        self,
        runners: tuple[Runner, ...],
        what: str,
        group: int | None = None,
        pinned: bool = False,
    ) -> int:
        """Draw the winner of a race; return the number of its variable.

        Args:
            runners: those that may win.
            what: the operation that wants to know.
            group: the first of the races that this one is conditional on, if any.
            pinned: hold the winner fixed at once; else the cell keeps all until one is looked at.
        """
        known = self._ledger.known.get(runners)
        if known is not None and group is None and not pinned:
            return known  # the same noise at the same rates has the same winner
        at = len(self.run.variables)
        low, high = self.box[at] if at < len(self.box) else (0, len(runners))
        point = (low + high) // 2
        if pinned:
            low, high = point, point + 1
        race = Race(len(runners), runners, at if group is None else group)
        self._variable(race, point, low, high)
        self._ledger.known[runners] = at
        self.run.cuts[at].append(Place(what, caller()))
        self._ledger.look(at)
        return at

    def _variable(self, variable: Variable, point: int, low: int, high: int) -> None:
        if compiled():
            self.escape("torch.compile runs other code than the tape reads: a draw")
        self.run.variables.append(variable)
        self.run.point.append(point)
        self.run.low.append(low)
        self.run.high.append(high)
        self.run.cuts.append([])

    def uniforms(self, shape: Sequence[int], dtype: Any, low: float = 0, high: float = 1) -> Any:
        """Return new uniforms in [low, high)."""
        kind = uniform(dtype, low, high)
        chance = Fraction(kind.wrapped, 1 << kind.bits)

        def variable() -> int:
            # The draws that come out as the start, wrapped, are not next to those near the start.
            wraps = bool(chance) and self.pick((1 - chance, chance))
            return -1 if wraps else self.grid(kind.size)

        return self.born([variable() for _ in range(prod(shape))], kind.value, shape, dtype)

    def exponentials(self, shape: Sequence[int], dtype: Any, rate: float) -> Any:
        """Return new exponential noise."""
        kind = exponential(dtype, rate)
        return self.born(
            [self.grid(kind.size) for _ in range(prod(shape))], kind.value, shape, dtype
        )

    def integers(self, shape: Sequence[int], low: int, high: int, dtype: Any) -> Any:
        """Return new integers in [low, high)."""
        owners = [self.grid(high - low) for _ in range(prod(shape))]
        return self.born(owners, lambda k: (k + low).to(dtype), shape, dtype)

    def born(
        self, owners: list[int], value: Callable[[Any], Any], shape: Sequence[int], dtype: Any
    ) -> Any:
        """Return a new tensor whose elements are values of variables, -1 for constants."""
        point = [self.run.point[v] if v >= 0 else 0 for v in owners]
        out = value(torch.tensor(point, dtype=torch.int64)).reshape(tuple(shape))
        self.taint.born(out, owners, value)
        return out

    def coins(self, chances: Any) -> Any:
        """Return 1 or 0 for each chance: Bernoulli draws."""
        drawn = [
            self.pick((1 - Fraction(c), Fraction(c)), "bernoulli")
            for c in chances.flatten().tolist()
        ]
        return torch.tensor(drawn, dtype=chances.dtype).reshape(chances.shape)

    def categories(self, weights: Any, count: int, replacement: bool) -> Any:
        """Return `count` indices for each row of weights: multinomial draws."""
        drawn = []
        for row in weights.reshape(-1, weights.shape[-1]).tolist():
            left = [Fraction(w) for w in row]
            for _ in range(count):
                total = sum(left)
                drawn.append(self.pick(tuple(w / total for w in left), "multinomial"))
                if not replacement:
                    left[drawn[-1]] = Fraction(0)
        return torch.tensor(drawn, dtype=torch.int64).reshape(*weights.shape[:-1], count)

    def write(self, target: Any, values: Any) -> Any:
        """Fill `target` in place with drawn values."""
        return self._move(Call(aten.copy_.default, (target, values), {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare every operation the guard against compilation; nothing is compiled here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        call = Call(func, args, kwargs or {})
        try:
            with torch._C.DisableTorchFunction():  # our own calls are not for `_Front`
                return self._dispatch(call)
        except Raised as raised:
            raise raised.error from None
        except Exception as error:
            # A failure of ours must not look like one of the subject's.
            self.escape(f"{call.op.name} could not be followed ({type(error).__name__}: {error})")
            return call.out if call.done else func(*args, **call.kwargs)

    def _dispatch(self, call: Call) -> Any:
        op = call.op
        if op.random:
            known = op.name in RANDOM and (op.inplace or not op.writes)
            if known and call.device == "cpu":
                return RANDOM[op.name](self, call)
            self.escape(f"random operation {op.name} on {call.device} is not on the tape")
            return call.real()
        if not self.taint or op.view or op.name in UNTOUCHED:
            return call.real()
        reached = self.taint.tainted((*call.args, *call.kwargs.values()))
        if not reached:
            return call.real()
        if op.base in MOVE and not call.adds:
            return self._move(call)
        if op.base in COMPARE:
            return self._compare(call)
        if op.base in RACES and (out := raced(self, call)) is not NotImplemented:
            return out
        if op.name in ("searchsorted", "bucketize"):
            return self._search(call)
        if op.base == "_to_copy" and call.kwargs.get("dtype") is torch.bool:
            return self._compare(Call(aten.ne.Scalar, (call.args[0], 0), {}))
        # Arithmetic of integers may wrap around; they are pinned below instead.
        if op.base in MONOTONE and not (op.base in WRAPS and not _has_floats(call.args)):
            return self._elementwise(call)
        if op.name in ("sum", "cumsum") and not call.kwargs.get("dtype"):
            return self._sum(call)
        # Integers that draws reach can be pinned: hold their values fixed and go on cleanly.
        for t in reached:
            if not t.is_floating_point():
                self._settle(t, op.name)
        out = call.real()
        left = self.taint.tainted(reached)
        if left and not self.blur(call, out):
            self.blind(op.name, tuple(left))
        return out

    def blur(self, call: Call, out: Any) -> bool:
        """Mark what an operation returned or wrote as opaque; say whether there was a tensor."""
        written = (*call.args, *call.kwargs.values()) if call.op.writes else ()
        results = list(tensors((out, *written)))
        place = str(Place(call.op.name, caller()))
        for t in results:
            if t.numel():
                self.taint.mirror(t).fill_(OPAQUE)
                self.taint.because(t, [place])
        return bool(results)

    def _record(self, call: Call, out: Any, owner: Any, opaque: Any, replay: Replay | None) -> None:
        self.taint.record(out, owner, opaque, replay)
        if bool(opaque.any()):
            told = self.taint.reasons(call.args)
            self.taint.because(out, told or [str(Place(call.op.name, caller()))])

    def _move(self, call: Call) -> Any:
        """Run an operation that only moves values on the values and on their ids."""
        op, args = call.op, call.args
        carriers = MOVE[op.base]
        for at, a in enumerate(args):
            if at not in carriers:
                for t in self.taint.tainted((a,)):
                    self._settle(t, f"an index or mask of {op.name}")
        dtype = args[0].dtype if op.inplace else call.real().dtype
        shadows = [self._shadow(a, dtype) if at in carriers else a for at, a in enumerate(args)]
        out = call.real()
        if op.inplace:
            shadows[0] = self.taint.mirror(args[0])
            ids = call.func(*shadows, **call.kwargs)
        else:
            ids = call.func(*shadows, **call.kwargs)
            if bool(ids.any()):
                self.taint.mirror(out).copy_(ids)
        if bool((ids == OPAQUE).any()):
            self.taint.because(out, self.taint.reasons(args))
        return out

    def _shadow(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype != dtype and self.taint.ids(value) is not None:
                value = self._elementwise(Call(aten._to_copy.default, (value,), {"dtype": dtype}))
            return self.taint.ids_or_clean(value)
        if isinstance(value, list | tuple):
            return [self._shadow(v, dtype) for v in value]
        return CLEAN if isinstance(value, bool | int | float) else value

    def _elementwise(self, call: Call) -> Any:
        op, args = call.op, call.args
        operands = self.taint.operands(args)
        replay = Replay(op.again, args, call.kwargs, operands) if op.again else None
        monotone = replay is not None and self._monotone(call, operands)
        factor: Any = 1
        if op.base == "mul" and len(operands) == 1:
            other = args[1 - next(iter(operands))]
            factor = other.clone() if isinstance(other, torch.Tensor) else other
        out = call.real()
        owner, opaque = self.taint.merge(operands, out.shape)
        zero = torch.as_tensor(factor) == 0
        if bool(zero.any()) and self._bounded(operands):
            owner = torch.where(zero, -1, owner)  # 0 * u is no longer u
        if not monotone:
            opaque = opaque | (owner >= 0)
        self._record(call, out, owner, opaque, replay)
        return out

    def _ends(self) -> Any:
        return torch.tensor([self.run.low, [h - 1 for h in self.run.high]], dtype=torch.int64)

    def _bounded(self, operands: dict[int, Operand]) -> bool:
        """Whether tainted arguments are finite over the whole box."""
        ends = self._ends()
        return all(bool(o.values(ends, {}).isfinite().all()) for o in operands.values())

    def _monotone(self, call: Call, operands: dict[int, Operand]) -> bool:
        """Whether the operation is monotone in its tainted argument, over the whole box."""
        op, args = call.op, call.args
        ends = self._ends()
        kind = call.kwargs.get("dtype") if op.base == "_to_copy" else None
        if kind is not None and not kind.is_floating_point and not kind.is_complex:
            # Beyond the range of the type a conversion wraps around, or does anything.
            values, limits = operands[0].values(ends, {}).double(), torch.iinfo(kind)
            return bool((values > limits.min - 1.0).all() and (values < limits.max + 1.0).all())
        divides = op.base in ("div", "floor_divide") and 1 in operands
        if op.base not in ONE_SIGN and not divides:
            return True
        if len(operands) > 1:
            return False
        if op.base == "pow" and 0 not in operands:
            return bool((torch.as_tensor(args[0]) > 0).all())
        values = operands[1 if divides else 0].values(ends, {})
        return bool((values >= 0).all() or (values <= 0).all())

    def _sum(self, call: Call) -> Any:
        args, kwargs = call.args, call.kwargs
        ids = self.taint.ids_or_clean(args[0]).clone()
        owners = self.taint.owners(ids)

        def over(counted: Any) -> Any:
            return call.func(counted.long(), *args[1:], **kwargs)

        count = over(ids != CLEAN)
        # One draw in a sum: a constant and that draw. Several: no longer an interval in each.
        opaque = (count > 1) | (over(ids == OPAQUE) > 0)
        owner = torch.where(opaque | (count == 0), -1, over(torch.clamp(owners + 1, min=0)) - 1)
        operand = Operand(self.taint, ids, args[0])
        replay = Replay(call.func, args, kwargs, {0: operand}, elementwise=False)
        out = call.real()
        self._record(call, out, owner, opaque, replay)
        return out

    def _compare(self, call: Call) -> Any:
        op, args = call.op, call.args
        operands = self.taint.operands(args)
        # Equality is not monotone; on which side of the value one is, is.
        result = _side if op.base in ("eq", "ne") else op.again
        decide = Replay(_with_nan(result), args, call.kwargs, operands)
        out = call.real()
        if len(operands) == 2 and torch.equal(operands[0].ids, operands[1].ids):
            operands = {0: operands[0]}  # x == x, as isfinite has it: one draw, not two
        owner, opaque = self.taint.merge(operands, out.shape)
        if bool(opaque.any()):
            self.blind(op.name, args)
        self._narrow(owner, decide, op.name)
        if op.inplace:
            self.taint.mirror(args[0]).fill_(CLEAN)
        return out

    def _search(self, call: Call) -> Any:
        op, args = call.op, call.args
        sought, table = (1, 0) if op.name == "searchsorted" else (0, 1)
        operands = self.taint.operands(args)
        out = call.real()
        if set(operands) != {sought}:
            self.escape(f"{op.name} in a table that depends on draws")
            return out
        owner, opaque = self.taint.merge(operands, out.shape)
        if bool(opaque.any()):
            self.blind(op.name, args)
        flat = args[table].dim() == 1
        decide = Replay(call.func, args, call.kwargs, operands, elementwise=flat)
        self._narrow(owner, decide, op.name)
        return out

    def _settle(self, tensor: Any, what: str) -> None:
        """Hold the values of a tainted tensor fixed, where it takes few; then it is clean."""
        ids = self.taint.ids(tensor)
        if ids is None:
            return
        if bool((ids == OPAQUE).any()) or tensor.is_floating_point():
            self.blind(what, (tensor,))
        else:
            same = Replay(lambda value: value, (tensor,), {}, {0: Operand(self.taint, ids, tensor)})
            owner = self.taint.owners(ids)
            self._narrow(owner, same, what)
            for v in owner[owner >= 0].tolist():
                drawn = self.run.variables[v]
                if self.run.high[v] - self.run.low[v] == 1 and drawn.size > MOST_PINNED:
                    self.escape(f"{what} pins a draw to one of {drawn.size} values")
                    break
        self.taint.mirror(tensor).fill_(CLEAN)

    def settle(self, tensor: Any, what: str) -> None:
        """`_settle` from outside of a dispatched operation."""
        # In inference mode tensors that were made in it may be written to, and others too.
        with torch.inference_mode(), torch._C._DisableTorchDispatch():
            self._settle(tensor, what)

    def blind(self, what: str, args: tuple[Any, ...]) -> None:
        """Record that a decision hangs on what is not followed."""
        reasons = self.taint.reasons(args)
        if reasons:
            self.escape(f"{what} decides on draws that went through {' and '.join(reasons)}")
        elif len(self.taint.tainted(args)) > 1:
            self.escape(f"{what} decides on several draws at once")
        else:
            self.escape(f"{what} of a draw is not followed")

    def _narrow(self, owner: Any, decide: Replay, what: str) -> None:
        """Cut the cell to the k around the point on which every element of `decide` is the same."""
        owner = owner.flatten()
        live = owner >= 0
        if not bool(live.any()):
            return
        run = self.run
        point = torch.tensor(run.point, dtype=torch.int64)
        if compiled():
            self.escape(f"torch.compile runs other code than the tape reads: {what}")
        variables, group = owner[live].unique(return_inverse=True)
        listed = variables.tolist()

        def result(k: Any) -> Any:
            return decide(k, {}).reshape(len(k), -1)[:, live]

        here = result(point[None])
        if not bool((here == decide.once().reshape(1, -1)[:, live]).all()):
            self.escape(f"{what} is not what the tape makes of its draws")

        def same(probes: Any) -> Any:
            """Whether nothing changes, for rows of k of the variables: [rows, variables]."""
            k = point.repeat(len(probes), 1)
            k[:, variables] = probes
            changed = torch.zeros(probes.shape, dtype=torch.int64)
            return changed.index_add_(1, group, (result(k) != here).long()) == 0

        # Side 0 looks down from the point, side 1 up: [2, variables].
        ends = torch.tensor([[run.low[v] for v in listed], [run.high[v] - 1 for v in listed]])
        start = point[variables].repeat(2, 1)
        # Rows cost little beside calls; where they are run one by one, halving is best.
        ways = 128 if decide.batched else 2
        inside = _edges(start, ends, same, ways)
        if decide.batched and not _confirmed(inside, ends, same):
            inside = _edges(start, ends, lambda probes: _alone(same, probes), 2)
        place = Place(what, caller())
        for v, a, b in zip(listed, *inside.tolist(), strict=True):
            run.low[v], run.high[v] = a, b + 1
            # A race is decided where it was run, whoever looks at the winner.
            if place not in run.cuts[v] and not isinstance(run.variables[v], Race):
                run.cuts[v].append(place)
            self._ledger.look(v)


def _edges(inside: Any, outside: Any, same: Callable[[Any], Any], ways: int) -> Any:
    """Return the last k from `inside` towards `outside` up to which nothing changes.

    Args:
        inside, outside: [2, variables] starts, and the last k to look at.
        same: predicate on rows of k [rows, variables].
        ways: in how many parts each step cuts the gap.
    """
    reached = same(outside)
    inside = torch.where(reached, outside, inside)
    parts = torch.arange(1, ways)[:, None, None]
    while True:
        gap = outside - inside
        size = gap.abs()
        if not bool((size > 1).any()):
            return inside
        probes = inside + gap.sign() * torch.div(size * parts, ways, rounding_mode="floor")
        good = same(probes.flatten(0, 1)).reshape(probes.shape)
        steps = good.long().cumprod(0).sum(0)  # the first probe that changes bounds the gap anew
        marks = torch.cat([inside[None], probes, outside[None]])
        inside = marks.gather(0, steps[None])[0]
        outside = torch.where(reached, inside, marks.gather(0, steps[None] + 1)[0])


def _alone(same: Callable[[Any], Any], probes: Any) -> Any:
    """Ask one row at a time: vector instructions may round differently from scalar ones."""
    rows = [same(row[None]) for row in probes]
    return torch.cat(rows) if rows else torch.ones(probes.shape, dtype=torch.bool)


def _confirmed(inside: Any, ends: Any, same: Callable[[Any], Any]) -> bool:
    """Whether single rows agree that nothing changes at the edges, and something just beyond."""
    beyond = inside + (ends - inside).sign()
    cut = beyond != inside
    sides = cut.any(1)  # where nothing was cut there is nothing to confirm
    return bool(
        _alone(same, inside[sides]).all() and not (_alone(same, beyond[sides]) & cut[sides]).any()
    )


def _side(a: Any, b: Any) -> Any:
    return torch.lt(a, b).int() - torch.gt(a, b).int()


def _with_nan(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return `func` with "an argument is NaN" told apart: monotone only where it is not."""

    def decide(*args: Any, **kwargs: Any) -> Any:
        out = func(*args, **kwargs).int()
        for a in args:
            if isinstance(a, torch.Tensor) and a.is_floating_point():
                out = out + 4 * torch.isnan(a).int()
        return out

    return decide


def _has_floats(args: tuple[Any, ...]) -> bool:
    """Whether a tensor or number among the arguments is not an integer."""
    return any(
        a.is_floating_point() if isinstance(a, torch.Tensor) else isinstance(a, float) for a in args
    )


def operation(func: Any) -> Operation:
    """Return what is known of an overload, computed once."""
    known = _OPERATIONS.get(func)
    if known is None:
        known = _OPERATIONS[func] = Operation.of(func)
    return known


def caller() -> str:
    """Return file:line of the innermost frame that is neither torch nor the gate."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/torch/" not in name and "/specref/gate/" not in name and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def compiled() -> bool:
    """Whether a function that torch.compile has wrapped is being run."""
    frame = sys._getframe(1) if "torch._dynamo" in sys.modules else None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "compile_wrapper" and "/torch/_dynamo/" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def _as_written() -> AbstractContextManager[Any]:
    """Run functions that torch.compile has wrapped without it, which would compile the tape too."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def limits(call: Call) -> tuple[Any, Any]:
    """Return the range [low, high) that a random operation draws from."""
    if call.op.base == "uniform":
        return (*call.args[1:3], *(0, 1)[len(call.args) - 1 :])
    if call.op.base in ("randint", "randint_like", "random"):
        low, high = (0, *(a for a in call.args if isinstance(a, int)))[-2:]
        return low, high
    return 0, 1


def rate_of(call: Call) -> float:
    """Return the rate of exponential noise."""
    return float(call.args[1] if len(call.args) > 1 else call.kwargs.get("lambd", 1.0))


# Each random operation first runs the real one, which moves the subject's generator and raises what
# torch would raise, and then puts variables in its place.


def _rand(tape: Tape, call: Call) -> Any:
    real = call.real()
    return tape.uniforms(real.shape, real.dtype)


def _uniform(tape: Tape, call: Call) -> Any:
    target = call.real()
    return tape.write(target, tape.uniforms(target.shape, target.dtype, *limits(call)))


def _exponential(tape: Tape, call: Call) -> Any:
    target = call.real()
    if target.dtype not in (torch.float32, torch.float64):
        tape.escape(f"exponential_ of {target.dtype} is not on the tape")
        return target
    return tape.write(target, tape.exponentials(target.shape, target.dtype, rate_of(call)))


def _multinomial(tape: Tape, call: Call) -> Any:
    weights, count, *rest = call.args
    _unmixed(tape, weights, "multinomial")
    call.real()
    replacement = rest[0] if rest else call.kwargs.get("replacement", False)
    return tape.categories(weights, count, replacement)


def _bernoulli(tape: Tape, call: Call) -> Any:
    inplace, target = call.op.inplace, call.args[0]
    chance = call.args[1] if len(call.args) > 1 else 0.5 if inplace else target
    _unmixed(tape, chance, "bernoulli")
    if not isinstance(chance, torch.Tensor):
        chance = torch.full(target.shape, chance, dtype=torch.float64)
    chance = chance.expand(target.shape).clone()  # an in-place draw may overwrite its chances
    call.real()
    drawn = tape.coins(chance).to(target.dtype)
    return tape.write(target, drawn) if inplace else drawn


def _randint(tape: Tape, call: Call) -> Any:
    real = call.real()
    return tape.integers(real.shape, *limits(call), real.dtype)


def _random(tape: Tape, call: Call) -> Any:
    target = call.real()
    if len(call.args) == 1 or None in call.args:
        tape.escape("random_ over the whole range of its type is not on the tape")
        return target
    return tape.write(target, tape.integers(target.shape, *limits(call), target.dtype))


def _randperm(tape: Tape, call: Call) -> Any:
    real, count = call.real(), call.args[0]
    if factorial(count) > 5040:
        tape.escape(f"randperm of {count} is not on the tape")
        return real
    left = list(range(count))
    drawn = [left.pop(tape.pick((Fraction(1, len(left)),) * len(left))) for _ in range(count)]
    return torch.tensor(drawn, dtype=real.dtype)


def _unmixed(tape: Tape, weights: Any, what: str) -> None:
    if isinstance(weights, torch.Tensor) and tape.taint.ids(weights) is not None:
        tape.escape(f"{what} with weights that depend on draws")


RANDOM: dict[str, Callable[[Tape, Call], Any]] = {
    "rand": _rand,
    "rand_like": _rand,
    "uniform_": _uniform,
    "exponential_": _exponential,
    "multinomial": _multinomial,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli,
    "randint": _randint,
    "randint_like": _randint,
    "random_": _random,
    "randperm": _randperm,
}


class _Front(TorchFunctionMode):
    """Meets the calls that take a value out of torch, which the dispatcher does not see."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("out") is not None:
            return _filled(kwargs.pop("out"), func(*args, **kwargs))
        if not args:
            return func(*args, **kwargs)
        if func in (torch.tensor, torch.as_tensor) and has_scalar(args[0]):
            return tensor_of(args[0], kwargs.get("dtype"))
        name, taint = getattr(func, "__name__", ""), self.tape.taint
        if name in EXITS and isinstance(args[0], torch.Tensor):
            try:
                if taint.ids(args[0]) is not None:
                    return self._exit(name, func, args, kwargs)
                if name in SHARES:
                    taint.lend(args[0])
            except Exception as error:
                self.tape.escape(f"{name} could not be followed ({type(error).__name__}: {error})")
        return func(*args, **kwargs)

    def _exit(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        tensor, tape = args[0], self.tape
        number = tensor.is_floating_point()
        if number and tape.scalars and name in ("item", "tolist"):
            tape.run.scalars = True
            wide = tensor.detach().to(torch.float64)
            return Scalar(wide.reshape(())) if name == "item" else scalars(wide)
        if number and name == "__bool__":
            return bool(tensor != 0)
        if number and name == "__int__":
            return int(tensor.trunc().long())
        if number or name in ("data_ptr", "__dlpack__"):
            tape.escape(f"a draw leaves torch through {name}")
        else:
            tape.settle(tensor, name)
        with torch._C._DisableTorchDispatch():
            return func(*args, **kwargs)


def _filled(out: Any, values: Any) -> Any:
    """Write what an operation returned where its `out=` wanted it."""
    if isinstance(out, torch.Tensor):
        return out.resize_(values.shape).copy_(values)
    return type(values)(_filled(o, v) for o, v in zip(out, values, strict=True))
