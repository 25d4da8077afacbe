"""Prove that quantities vanish for all laws, or find laws where one does not."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from proofs.symbolic.quantity import Quantity
from proofs.symbolic.reading import is_zero
from proofs.symbolic.region import Empty, Outside, Region, Restart, Shared
from proofs.symbolic.symbols import Symbols

Differences = Callable[[Region], Mapping[Any, Any]]
"""From a region to quantities, by name, that are claimed to be zero on it."""


@dataclass(frozen=True)
class Witness:
    """A point where a claim fails.

    Attributes:
        values: laws and numbers, by name.
        where: the name of the quantity that is not zero there.
        difference: its value.
        region: the conditions of the region that it lies in.
    """

    values: Mapping[str, Any]
    where: Any
    difference: Fraction
    region: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What a search came to; a proof iff there is neither a witness nor anything open.

    On no region there is no proof: the hypothesis of the claim holds nowhere.

    Attributes:
        regions: the number of regions on which the claim was checked.
        empty: how many certificates showed that some part is empty.
        seconds: how long it took, of processor time.
        witness: laws where the claim fails.
        open: names of quantities that are not the zero function on some region in which no point
            was found.
    """

    regions: int
    empty: int
    seconds: float
    witness: Witness | None = None
    open: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return self.regions > 0 and self.witness is None and not self.open

    def show(self) -> str:
        """Return it in one line."""
        text = f"{self.regions} regions, {self.empty} certificates, {self.seconds:.1f} s"
        if self.witness is None:
            return text + (f"; open at {self.open[0]}" if self.open else "")
        rows = self.witness.values.items()
        values = ", ".join(
            f"{name} = {' '.join(map(str, row)) if isinstance(row, tuple) else row}"
            for name, row in rows
        )
        return f"{text}; {self.witness.where} is off by {self.witness.difference} at {values}"


def prove(symbols: Symbols, differences: Differences, limit: int = 100_000) -> Result:
    """Check a claim on every region of the space of laws.

    Args:
        symbols: what the claim is about.
        differences: the claim, run once for each region; quantities that must be zero.
        limit: the most regions to look at.

    Raises:
        RuntimeError: more regions than that.
    """
    start = time.process_time()
    shared = Shared(symbols)
    todo, regions, left = [Region(shared)], 0, []
    while todo:
        region = todo.pop()
        solved = region.solved()
        if solved is not None:
            todo += solved
            continue
        try:
            gaps = {name: gap for name, gap in differences(region).items() if not is_zero(gap)}
            regions += 1
        except (Empty, Outside, Restart):
            gaps = {}
        todo += region.later
        if gaps:
            region.later = []
            try:
                thin = region.is_thin()
            except Empty:
                gaps, thin = {}, False
            if thin:
                todo.append(region)
            if thin or not gaps:
                regions, gaps = regions - 1, {}
        for name, gap in gaps.items():
            values = _point(region, gap)
            if values is not None:
                found = Witness(symbols.point(values), name, _value(gap, values), region.show())
                return Result(regions, shared.certificates, time.process_time() - start, found)
        left += list(gaps)[:1]
        if regions > limit:
            raise RuntimeError(f"more than {limit} regions")
    return Result(regions, shared.certificates, time.process_time() - start, None, tuple(left))


def _value(gap: Any, values: list[Fraction]) -> Fraction:
    return gap.at(values) if isinstance(gap, Quantity) else Fraction(gap)


def _point(region: Region, gap: Any) -> list[Fraction] | None:
    """Return a rational point of the region where a quantity is not zero, as simple as possible."""
    region.top_up()
    for size in (4, 10, 60, 1000, 10**6):
        for row in region.points[:60]:
            values = region.exactly([Fraction(float(v)).limit_denominator(size) for v in row])
            if values is not None and _value(gap, values) != 0:
                return values
    return None
