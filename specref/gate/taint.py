"""Taint: which elements of which tensors depend on which draws, and how to recompute them.

The tape (`gate.tape`) gives every element that depends on one draw an *id*. Ids live in a mirror of
each storage, so that views and in-place writes need no care: the ids of any tensor are the mirror
seen through its sizes and strides. Behind an id stands a step: fresh draws, or an operation on
earlier elements that can be repeated for other draws.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

OPAQUE = -1
"""Id of an element that depends on draws in a way that is not followed."""
CLEAN = 0
"""Id of an element that depends on no draw."""


@dataclass
class Fresh:
    """Elements that are draws: `value(k)` maps grid integers to the numbers the sampler sees."""

    start: int
    owners: Any  # variable of each element, flat
    value: Callable[[Any], Any]
    batched: bool = True

    def evaluate(self, k: Any, memo: dict[int, Any]) -> Any:
        return self.value(k[:, self.owners])


@dataclass
class Step:
    """Elements computed from earlier ones by an operation that can be repeated."""

    start: int
    owners: Any
    replay: "Replay"

    @property
    def batched(self) -> bool:
        return self.replay.batched

    def evaluate(self, k: Any, memo: dict[int, Any]) -> Any:
        return self.replay(k, memo).reshape(len(k), -1)


class Operand:
    """A tensor as it was when an operation read it, recomputable for other draws."""

    def __init__(self, taint: "Taint", ids: Any, base: Any) -> None:
        self.ids, self.base = ids.clone(), base.clone()
        flat = self.ids.flatten()
        self.parts = [(step, mask, flat[mask] - step.start) for step, mask in taint.split(flat)]

    def values(self, k: Any, memo: dict[int, Any]) -> Any:
        """Return the tensor for each row of draws: [rows, *shape]."""
        for step, _, _ in self.parts:
            if step.start not in memo:
                memo[step.start] = step.evaluate(k, memo)
        if len(self.parts) == 1 and len(self.parts[0][2]) == self.base.numel():
            step, _, at = self.parts[0]
            out = memo[step.start][:, at]
        else:
            out = self.base.flatten().expand(len(k), -1).clone()
            for step, mask, at in self.parts:
                out[:, mask] = memo[step.start][:, at]
        return out.reshape(len(k), *self.base.shape)


class Replay:
    """An operation with some of its arguments recomputed: rows of draws in, rows of results out.

    Rows share one call where the operation is elementwise and promotes types the same with a
    leading dimension; otherwise they are run one by one.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        operands: dict[int, Operand],
        elementwise: bool = True,
    ) -> None:
        self.func, self.kwargs, self.operands = func, kwargs, operands
        self.args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        self.rank = max(t.dim() for t in tensors)
        self.batched = (
            elementwise
            and len({t.dtype for t in tensors}) == 1
            and all(part[0].batched for operand in operands.values() for part in operand.parts)
        )

    def __call__(self, k: Any, memo: dict[int, Any]) -> Any:
        values = {at: operand.values(k, memo) for at, operand in self.operands.items()}
        if not self.batched:
            rows = [{at: v[row] for at, v in values.items()} for row in range(len(k))]
            return torch.stack([self._run(row) for row in rows])
        shared = {
            at: v.reshape(len(k), *(1,) * (self.rank + 1 - v.dim()), *v.shape[1:])
            for at, v in values.items()
        }
        return self._run(shared)

    def once(self) -> Any:
        """Return the result on the arguments as they were."""
        return self._run({})

    def _run(self, values: dict[int, Any]) -> Any:
        filled = [values.get(at, a) for at, a in enumerate(self.args)]
        return self.func(*filled, **self.kwargs)


class Taint:
    """The ids of all tensors of one run.

    Args:
        leak: is told when draws are written to memory that others than torch can read.
    """

    def __init__(self, leak: Callable[[str], None]) -> None:
        self._leak = leak
        self._lent: dict[int, Any] = {}
        self.steps: list[Fresh | Step] = []
        self._mirrors: dict[int, tuple[Any, Any, Any]] = {}
        self._starts: list[int] = []
        self._next = 1
        self._reasons: dict[int, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._mirrors)

    def ids(self, tensor: Any) -> Any | None:
        """Return the ids of a tensor, or None if it is clean."""
        entry = self._mirrors.get(tensor.untyped_storage()._cdata)
        if entry is None:
            return None
        _, mirror, dtype = entry
        if tensor.dtype != dtype:  # a storage read as another type
            return torch.full(tensor.shape, OPAQUE) if bool(mirror.any()) else None
        view = mirror.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return view if bool(view.any()) else None

    def mirror(self, tensor: Any) -> Any:
        """Return the writable ids of a tensor, making a mirror of its storage if there is none."""
        storage = tensor.untyped_storage()
        entry = self._mirrors.get(storage._cdata)
        if entry is None:
            # What came from NumPy or DLPack is not torch's own to resize.
            if storage._cdata in self._lent or not storage.resizable():
                self._leak("draws are written to memory that is shared with others than torch")
            # The storage is kept alive: a freed one's address could be given to another tensor.
            blank = torch.zeros(
                max(1, storage.nbytes() // tensor.element_size()), dtype=torch.int64
            )
            entry = self._mirrors[storage._cdata] = (storage, blank, tensor.dtype)
        if tensor.dtype != entry[2]:
            raise TypeError(f"{entry[2]} written to as {tensor.dtype}")
        return entry[1].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def lend(self, tensor: Any) -> None:
        """Remember that others than torch can read a tensor's memory."""
        storage = tensor.untyped_storage()
        self._lent[storage._cdata] = storage

    def ids_or_clean(self, tensor: Any) -> Any:
        ids = self.ids(tensor)
        return torch.zeros(tensor.shape, dtype=torch.int64) if ids is None else ids

    def tainted(self, values: Any) -> list[Any]:
        """Return the tensors among nested arguments that draws reach."""
        return [t for t in tensors(values) if self.ids(t) is not None]

    def operands(self, args: tuple[Any, ...]) -> dict[int, Operand]:
        """Return the tainted arguments by position, as they are now."""
        found = {}
        for at, a in enumerate(args):
            if isinstance(a, torch.Tensor):
                ids = self.ids(a)
                if ids is not None:
                    found[at] = Operand(self, ids, a)
        return found

    def owners(self, ids: Any) -> Any:
        """Return the variable behind each id, -1 where there is none."""
        flat = ids.flatten()
        out = torch.full(flat.shape, -1, dtype=torch.int64)
        for step, mask in self.split(flat):
            out[mask] = step.owners[flat[mask] - step.start]
        return out.reshape(ids.shape)

    def merge(self, operands: dict[int, Operand], shape: Any) -> tuple[Any, Any]:
        """Return (variable of each result element or -1, mask of opaque ones)."""
        owner = torch.full(shape, -1, dtype=torch.int64)
        opaque = torch.zeros(shape, dtype=torch.bool)
        for operand in operands.values():
            mine = self.owners(operand.ids).expand(shape)
            opaque |= (operand.ids == OPAQUE).expand(shape) | ((owner >= 0) & (mine >= 0))
            owner = torch.where(mine >= 0, mine, owner)
        return torch.where(opaque, -1, owner), opaque

    def record(self, out: Any, owner: Any, opaque: Any, replay: Replay | None) -> None:
        """Give the elements of `out` ids: results of `replay` on one variable each, or opaque."""
        ids = torch.where(opaque, OPAQUE, CLEAN)
        live = (owner >= 0) & ~opaque
        if replay is not None and bool(live.any()):
            start = self.add(Step(self._next, owner.flatten(), replay))
            ids = torch.where(live, torch.arange(start, self._next).reshape(out.shape), ids)
        self.mirror(out).copy_(ids)

    def born(self, out: Any, owners: list[int], value: Callable[[Any], Any]) -> None:
        """Give the elements of `out` the ids of fresh draws; owner -1 means a constant."""
        owner = torch.tensor(owners, dtype=torch.int64)
        if bool((owner >= 0).any()):
            start = self.add(Fresh(self._next, owner, value))
            ids = torch.where(owner >= 0, torch.arange(start, self._next), CLEAN)
            self.mirror(out).copy_(ids.reshape(out.shape))

    def because(self, tensor: Any, reasons: list[str]) -> None:
        """Remember why elements of a tensor are opaque."""
        known = self._reasons.setdefault(tensor.untyped_storage()._cdata, [])
        known += [reason for reason in reasons if reason not in known]

    def reasons(self, values: Any) -> list[str]:
        """Return why tensors among the arguments are opaque."""
        found = [self._reasons.get(t.untyped_storage()._cdata, []) for t in self.tainted(values)]
        return list(dict.fromkeys(reason for reasons in found for reason in reasons))

    def add(self, step: Fresh | Step) -> int:
        self.steps.append(step)
        self._starts.append(step.start)
        self._next += len(step.owners)
        return step.start

    def split(self, flat: Any) -> Iterator[tuple[Fresh | Step, Any]]:
        """Yield each step that some of the ids come from, with the mask of those."""
        live = flat > 0
        if not bool(live.any()):
            return
        found = torch.searchsorted(torch.tensor(self._starts), flat, right=True) - 1
        for at in found[live].unique().tolist():
            yield self.steps[at], live & (found == at)


def tensors(values: Any) -> Iterator[Any]:
    """Yield the tensors in nested tuples and lists."""
    for a in values:
        if isinstance(a, torch.Tensor):
            yield a
        elif isinstance(a, list | tuple):
            yield from tensors(a)
