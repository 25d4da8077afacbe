"""The decision map: which draws lead to which tokens, for a subject beside the reference.

One token is drafted, so a rule needs two draws: a coin for the draft and a terminal draw for what
follows. The unit square of the two falls into regions with one outcome each, and the area of a
region is its probability. The reference keeps to its two conventions: it accepts iff coin < chance,
and reads the terminal draw off the running sum of the law in token order. A subject may turn a draw
around (1 - u instead of u) and be as right; it is shown the way round that agrees best.

A region of the subject is a cell. An index that it draws by weights stands at its place in their
running sum. Where outcomes differ the laws may still be the same: the TV tells.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

from specref.dist import Number, as_fraction, tv
from specref.draft import Node
from specref.gate import checks
from specref.gate.cases import Case, rounds_fixture
from specref.gate.cell import Cell, Measured
from specref.gate.errors import UsageError, gated_rule
from specref.gate.learned import Learned
from specref.gate.loading import load
from specref.gate.report import Report
from specref.gate.session import Session
from specref.gate.subject import Outcome, Problem, Subject
from specref.picture import picture
from specref.rules import RULES, Rule

Side = tuple[Fraction, Fraction]
WHOLE: Side = (Fraction(0), Fraction(1))

COLOURS = "#56B4E9 #E69F00 #009E73 #F0E442 #CC79A7 #D55E00 #0072B2 #999999".split()
"""Okabe and Ito's, which people who do not see all colours can tell apart."""


DIFFERS: dict[str, Any] = {"fill": False, "edgecolor": "black", "hatch": "////", "linewidth": 1.2}
RULES_LINE: dict[str, Any] = {
    "fill": False,
    "edgecolor": "black",
    "linestyle": ":",
    "linewidth": 1.2,
}

THIN = Fraction(1, 100)
"""Strips that are thinner get an arrow."""


@dataclass(frozen=True)
class Region:
    """A rectangle of draws and what comes of it: `x` is the coin, `y` the terminal draw."""

    x: Side
    y: Side
    outcome: Outcome

    @property
    def area(self) -> Fraction:
        """The probability of the rectangle."""
        return (self.x[1] - self.x[0]) * (self.y[1] - self.y[0])

    def overlap(self, other: "Region") -> "Region | None":
        """Return the part that lies in another region too, or None."""
        x = max(self.x[0], other.x[0]), min(self.x[1], other.x[1])
        y = max(self.y[0], other.y[0]), min(self.y[1], other.y[1])
        return replace(self, x=x, y=y) if x[0] < x[1] and y[0] < y[1] else None


@dataclass(frozen=True)
class Map:
    """The regions of a subject and of the rule that it is held to, on one case.

    Attributes:
        name, rule: of the subject, and the rule's.
        case: one drafted token, with its laws.
        reference, subject: their regions; each tiles the unit square.
        coin, terminal: what the two axes are of the subject's draws.
        missed: the subject's regions may be off by this in TV, where they were learned.
    """

    name: str
    rule: str
    case: Case
    reference: list[Region]
    subject: list[Region]
    coin: str = "coin"
    terminal: str = "terminal draw"
    missed: float = 0.0

    @property
    def differing(self) -> list[Region]:
        """The subject's regions where the reference gives another outcome."""
        return differing(self.subject, self.reference)

    @property
    def tv(self) -> Fraction:
        """The distance of the two laws."""
        return Fraction(tv(_law(self.subject), _law(self.reference)))


def differing(these: list[Region], others: list[Region]) -> list[Region]:
    """Return the parts of regions where others have another outcome."""
    pairs = product(these, others)
    parts = (a.overlap(b) for a, b in pairs if a.outcome != b.outcome)
    return [part for part in parts if part]


def _law(regions: list[Region]) -> dict[Outcome, Fraction]:
    law: defaultdict[Outcome, Fraction] = defaultdict(Fraction)
    for region in regions:
        law[region.outcome] += region.area
    return law


def area(regions: list[Region]) -> Fraction:
    """Return the probability of regions that do not overlap."""
    return sum((region.area for region in regions), Fraction(0))


# The reference


class _Follow:
    """A reading of `choose` that follows a prefix of picks, and notes where on each axis they lie.

    Attributes:
        sides: of the coin and of the terminal draw.
        others: prefixes of the ways that were not taken.
    """

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self.prefix = prefix
        self.made: tuple[int, ...] = ()
        self.sides: dict[str, Side] = {}
        self.others: list[tuple[int, ...]] = []

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        exactly = [as_fraction(w) for w in weights]
        possible = [index for index, w in enumerate(exactly) if w]
        if len(self.made) < len(self.prefix):
            possible = [self.prefix[len(self.made)]]
        index, *others = possible
        self.others += [(*self.made, other) for other in others]
        self.made = (*self.made, index)
        low = sum(exactly[:index], Fraction(0))
        self.sides["terminal" if at is None else "coin"] = low, low + exactly[index]
        return index

    def flip(self, chance: Number, at: Any = None) -> bool:
        return self((chance, 1 - chance), at) == 0


def reference(verify: Callable[[Node, Any], Outcome], root: Node) -> list[Region]:
    """Return the regions of a rule on one drafted token, by the conventions of the reference."""
    found: list[Region] = []
    todo: list[tuple[int, ...]] = [()]
    while todo:
        choose = _Follow(todo.pop())
        outcome = verify(root, choose)
        todo += choose.others
        sides = choose.sides
        found.append(Region(sides.get("coin", WHOLE), sides.get("terminal", WHOLE), outcome))
    return found


# The subject


def regions(cells: list[Cell]) -> list[Region]:
    """Return measured cells as regions, the draw that matters first as the coin.

    Raises:
        UsageError: two draws do not tell the cells apart.
    """
    sides = [
        [
            (v.mass(0, low), v.mass(0, high))
            for v, (low, high) in zip(c.variables, c.box, strict=True)
        ]
        for c in cells
    ]
    used = {at for row in sides for at, side in enumerate(row) if side != WHOLE}
    coin = min(used, default=0)
    found = []
    for cell, row in zip(cells, sides, strict=True):
        rest = [side for at, side in enumerate(row) if at != coin and side != WHOLE]
        if len(rest) > 1:
            raise UsageError("it uses more than two draws for one drafted token; a map shows two")
        x = row[coin] if coin < len(row) else WHOLE
        found.append(Region(x, rest[0] if rest else WHOLE, cell.outcome))
    overlap = any(a.overlap(b) for a, b in combinations(found, 2))
    if overlap or area(found) != 1:
        raise UsageError("its cells do not tile a map of two draws; it uses more of them")
    return found


def _turns(found: list[Region]) -> Iterator[tuple[list[Region], str, str]]:
    """Yield the ways round that regions can be drawn, with what is then on the axes."""

    def back(side: Side, turn: bool) -> Side:
        return (1 - side[1], 1 - side[0]) if turn else side

    for swap, turn_x, turn_y in product((False, True), repeat=3):
        swapped = [replace(r, x=r.y, y=r.x) if swap else r for r in found]
        turned = [replace(r, x=back(r.x, turn_x), y=back(r.y, turn_y)) for r in swapped]
        yield turned, "1 - coin" * turn_x or "coin", "1 - terminal" * turn_y or "terminal draw"


# From a subject to a picture


def decision_map(subject: Any, rule: str | None = None) -> Map:
    """Measure a subject on one drafted token, and lay its regions beside those of a rule.

    Args:
        subject: a name, a path or an object (`gate.loading.load`).
        rule: what it is compared with; left out, the first rule that it declares, or `token`.

    Raises:
        UsageError: an unknown subject or rule, a law that cannot be read, or more than two draws.
    """
    loaded = subject if isinstance(subject, Subject) else load(subject)
    entry = RULES[gated_rule(rule or next(iter(loaded.rules), "token"))]
    if entry.shape == "chain" and loaded.shape == "tree":
        raise UsageError(f"{loaded.spec} verifies trees, {entry.name} does not; pass a tree's rule")
    with closing(loaded):
        case = _case(loaded, entry)
        measured = _measured(loaded, entry, case)
    try:
        found = regions(measured.cells)
    except UsageError as error:
        raise UsageError(f"{loaded.spec} cannot be drawn: {error}") from None
    wanted = reference(entry.verify, case.root())
    best, coin, terminal = min(_turns(found), key=lambda turn: area(differing(turn[0], wanted)))
    return Map(loaded.name, entry.name, case, wanted, best, coin, terminal, measured.missed)


def _case(subject: Subject, rule: Rule) -> Case:
    """Return a case of one drafted token: that which the target likes least."""
    fixture = replace(rounds_fixture("chain"), shape=1 if subject.shape == "chain" else (1,))
    if rule.one_hot_target:
        fixture = fixture.greedy()
    p, q = fixture.floats(())
    x = min(range(len(p)), key=lambda x: p[x] / q[x])
    return fixture.case(((x,), (0,)), rule.name)


def _measured(subject: Subject, rule: Rule, case: Case) -> Measured:
    """Return what the first instrument reads that can follow the subject."""
    report = Report(subject.spec, subject.name, subject.source, "quick", 0)
    session = Session(subject, rule.name, report, lambda text: None)
    subject.sample(case, 1, 0)
    reasons: list[str] = []
    if "torch" in sys.modules:
        from specref.gate.taped import Taped

        measured = Taped(session).law(case, session.profile.calls)
        if measured.exact:
            return measured
        reasons += measured.escapes
    measured = Learned(session).law(case, session.profile.calls)
    if measured.exact:
        return measured
    reasons += measured.escapes or ["the budget of calls does not reach"]
    raise UsageError(f"the law of {subject.spec} cannot be read: {'; '.join(reasons)}")


def save(found: Map, path: str | Path) -> None:
    """Write a map as a picture (`specref.picture`)."""
    with picture(path, (10, 6.2)) as figure:
        _draw(figure, found)


def _draw(figure: Any, found: Map) -> None:
    from matplotlib.patches import Patch

    left, right = figure.subplots(1, 2, sharey=True)
    outcomes = sorted({r.outcome for r in (*found.reference, *found.subject)}, key=_order)
    colours = {out: COLOURS[at % len(COLOURS)] for at, out in enumerate(outcomes)}
    for axes, these in ((left, found.reference), (right, found.subject)):
        for region in these:
            _rectangle(axes, region, facecolor=colours[region.outcome], edgecolor="white")
            _label(axes, region, found.case)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for region in found.reference:
        _rectangle(right, region, **RULES_LINE)
    _mark(right, found)
    (x,) = found.case.tokens
    left.set(title=f"the rule {found.rule}", xlabel="coin", ylabel="terminal draw")
    right.set(title=found.name, xlabel=found.coin, ylabel=found.terminal)
    parted = area(found.differing)
    figure.suptitle(
        f"Token {x} is drafted, p = {_row(found.case.p[0])}, q = {_row(found.case.q[0])}\n"
        f"outcomes differ on {_number(parted)} of all draws; TV of the laws {_number(found.tv)}",
        fontsize=11,
    )
    keys = [
        Patch(**DIFFERS, label="another outcome than the rule's"),
        Patch(**RULES_LINE, label="the rule's regions"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False, fontsize=9)


def _mark(axes: Any, found: Map) -> None:
    """Hatch where outcomes differ by more than rounding; point at strips too thin to be seen."""
    band = checks.band_of(found.case) + found.missed
    for region in found.differing:
        if region.area <= band:
            continue
        _rectangle(axes, region, **DIFFERS)
        x, y = _middle(region)
        if region.x[1] - region.x[0] < THIN:
            axes.plot([x], [1], marker="v", color="black", clip_on=False)
        if region.y[1] - region.y[0] < THIN:
            axes.plot([1], [y], marker="<", color="black", clip_on=False)


def _rectangle(axes: Any, region: Region, **style: Any) -> None:
    from matplotlib.patches import Rectangle

    (left, right), (low, high) = region.x, region.y
    place = float(left), float(low)
    axes.add_patch(Rectangle(place, float(right - left), float(high - low), **style))


def _middle(region: Region) -> tuple[float, float]:
    return float(sum(region.x)) / 2, float(sum(region.y)) / 2


def _label(axes: Any, region: Region, case: Case) -> None:
    wide, high = (float(side[1] - side[0]) for side in (region.x, region.y))
    if wide < 0.15 or high < 0.09:
        return
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.85, "linewidth": 0}
    text = _words(region.outcome, case.tokens[0])
    axes.text(*_middle(region), text, ha="center", va="center", fontsize=8, bbox=box)


def _words(outcome: Outcome, drafted: int) -> str:
    if isinstance(outcome, Problem):
        return outcome.kind
    if len(outcome) > 1:
        return f"keeps {outcome[0]},\nthen {outcome[1]}"
    return f"refuses {drafted},\n{outcome[0]} instead"


def _order(outcome: Outcome) -> tuple[bool, str]:
    return isinstance(outcome, Problem), str(outcome)


def _row(row: Sequence[float]) -> str:
    return "(" + ", ".join(f"{w:.3g}" for w in row) + ")"


def _number(value: Fraction) -> str:
    return str(value) if len(str(value)) < 12 else f"{float(value):.3g}"
