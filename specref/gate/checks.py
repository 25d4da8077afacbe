"""The checks: what a measured law must satisfy, claim by claim.

Every check reads the same measurements: for each case the exact law of what the subject emits on a
fixed draft. *Conditional* claims (acceptance, residual, bonus) compare it with the rule's law on
that draft; *joint* mixes the drafts with their probabilities, lets the target continue, and
compares with the target alone.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from math import log, prod
from typing import Any

from specref.choice import law
from specref.decode import complete, target_law
from specref.dist import as_fraction, tv
from specref.draft import Drafter, Node
from specref.gate.cases import UNIT, Case, Fixture, exact
from specref.gate.cell import Measured
from specref.gate.subject import Outcome, Problem, Proposal
from specref.model import Model
from specref.rules import RULES, Rule

Mass = dict[Any, Fraction]


@dataclass
class Drafted:
    """One case, and what the declared rule does on it.

    Attributes:
        case: the draft with its laws.
        weight: probability of this draft in its fixture; 0 for a case of its own.
        drafter: makes the drafts that the subject is tried on.
    """

    case: Case
    weight: Fraction
    drafter: Drafter | None = field(default=None, kw_only=True)

    @cached_property
    def root(self) -> Node:
        """The draft with exact laws."""
        return self.case.root()

    @cached_property
    def chance(self) -> Fraction:
        """The probability that the drafter makes such a draft.

        What it never makes counts as drawn from q: rules that take any draft are given such ones.
        """
        if self.weight:
            return self.weight
        made = self.case.chance(self.drafter) if self.drafter else Fraction(0)
        return made or prod(self._drawn, start=Fraction(1))

    @property
    def _drawn(self) -> list[Fraction]:
        """The probability of each drafted token under the q of its node."""
        rows = [exact(row, self.case.dtype) for row in self.case.q]
        drawn = zip(self.case.tokens, self.case.parents, strict=True)
        return [as_fraction(rows[parent][x]) for x, parent in drawn]

    @property
    def rule(self) -> Rule | None:
        """The declared rule."""
        return RULES[self.case.rule] if self.case.rule else None

    @property
    def defined(self) -> bool:
        """Whether the declared rule has a law here: it may refuse what its drafter never makes."""
        return self._wanted is not None

    @property
    def wanted(self) -> Mass:
        """The law of the declared rule on this draft, exactly; only where it is `defined`."""
        assert self._wanted is not None
        return self._wanted

    @cached_property
    def _wanted(self) -> Mass | None:
        if self.rule is None or (self.rule.drafts_from_q and not all(self._drawn)):
            return None
        return rule_law(self.rule, self.root)

    @cached_property
    def beginnings(self) -> frozenset[tuple[int, ...]]:
        """What texts of the declared rule begin with on this draft."""
        return frozenset(out[:end] for out in self.wanted for end in range(1, len(out) + 1))

    def impossible(self, outcome: Outcome) -> str:
        """Return why nothing of the kind can come out of this draft, or "".

        Impossible are tokens of target mass 0, and everything that is no round at all. A rule that
        is lossy is held to itself: impossible is what none of its texts begins with.
        """
        if isinstance(outcome, Problem):
            return str(outcome)
        if self.rule is not None and not self.rule.lossless:
            if not self.defined or outcome in self.beginnings:
                return ""
            return f"what {self.case.rule} never emits here"
        node: Node | None = self.root
        for x in outcome:
            if node is None:
                return ""
            if node.p[x] == 0:
                return "a forbidden token"
            node = next((child for token, child in node.children if token == x), None)
        return ""

    def path(self, prefix: tuple[int, ...]) -> Node | None:
        """Return the node that a text of drafted tokens leads to, or None."""
        node = self.root
        for x in prefix:
            below = next((child for token, child in node.children if token == x), None)
            if below is None:
                return None
            node = below
        return node


@dataclass
class Reading(Drafted):
    """One case and what the subject does on it.

    Attributes:
        measured: the subject's law.
    """

    measured: Measured

    @cached_property
    def got(self) -> dict[Outcome, Fraction]:
        """The measured law."""
        return self.measured.law

    def read_again(self, measured: Measured) -> None:
        """Put a better measurement in place of the first."""
        self.measured = measured
        self.__dict__.pop("got", None)

    @property
    def limit(self) -> float:
        """The largest TV that rounding, and what probes may have missed, explain."""
        return band_of(self.case) + self.measured.missed


def rule_law(rule: Rule, root: Node) -> Mass | None:
    """Return the exact law of a rule on a draft; None for a draft that it refuses."""
    try:
        found = law(lambda choose: rule.verify(root, choose))
    except (ValueError, ZeroDivisionError):
        return None
    return {out: as_fraction(mass) for out, mass in found.items()}


@dataclass
class Measurement:
    """What was measured under one rule.

    Attributes:
        rule: the rule, or None for losslessness alone.
        dtype: the type in which laws were handed over.
        groups: the readings of all drafts of each pair of models.
        drafts: the drafter's name, if it is not that of the report.
    """

    rule: str | None
    dtype: str
    groups: list[tuple[Fixture, list[Reading]]]
    drafts: str = ""


@dataclass
class Deviation:
    """How a law deviates on one case."""

    reading: Reading
    tv: Fraction
    band: float
    kind: str = ""
    outcomes: frozenset[Outcome] = frozenset()

    @property
    def fails(self) -> bool:
        """Whether it is beyond what rounding explains."""
        return self.tv > self.band

    @property
    def edge(self) -> bool:
        """Whether, with the chance of the draft counted in, it is an event of tiny mass."""
        case = self.reading.case
        return self.tv * self.reading.chance <= band(case.vocab, case.gamma + 1, "float32")


def band(vocab: int, tokens: int, dtype: str) -> float:
    """Return the largest TV that rounding explains: the numerics band.

    In units of the rounding error u of the type (at least 2^-24, the grid of float32 draws), one
    position costs at most

        2 (ln V + V + 3)   p and q come through a logarithm and a softmax: the logarithm of each
                           probability is off by u |ln p|, whose mean is at most ln V; exponential,
                           sum of V terms and division add V + 3
        3                  ratio, product or logarithm of the coin, and the grid of the coin
        2 V + 6            residual: difference, sum of V terms, division, running sum of V terms,
                           grid of the draw; each absolute, because a residual is taken only as
                           often as its mass

    and a law of several tokens the sum over its positions. Nothing here is tuned: a wrong formula
    shows at 1e-4 and above, rounding of a right one near 1e-7.
    """
    unit = max(UNIT[dtype], 2.0**-24)
    return tokens * (4 * vocab + 2 * log(vocab) + 15) * unit


def band_of(case: Case) -> float:
    """Return the numerics band of one case."""
    return band(case.vocab, case.gamma + 1, case.dtype)


def support(readings: Iterable[Reading]) -> list[Deviation]:
    """Return, for each kind of impossible outcome, the first case that shows it."""
    found: dict[str, Deviation] = {}
    for reading in readings:
        masses: defaultdict[str, list[tuple[Outcome, Fraction]]] = defaultdict(list)
        for outcome, mass in reading.got.items():
            kind = reading.impossible(outcome)
            if kind and mass > 0:
                masses[kind].append((outcome, mass))
        for kind, bad in masses.items():
            if kind not in found:
                total = sum((mass for _, mass in bad), Fraction(0))
                outcomes = frozenset(outcome for outcome, _ in bad)
                found[kind] = Deviation(reading, total, band_of(reading.case), kind, outcomes)
    return list(found.values())


def acceptance(readings: Iterable[Reading]) -> list[Deviation]:
    """Compare the laws of the accepted path, case by case."""
    return [_compared(r, lambda out: out[:-1]) for r in readings if r.defined]


def residual(readings: Iterable[Reading]) -> list[Deviation]:
    """Compare the corrections: the last token where drafts were left."""
    return [_last_tokens(r, leaf=False) for r in readings if r.defined]


def bonus(readings: Iterable[Reading]) -> list[Deviation]:
    """Compare the bonus: the last token where all drafts were accepted."""
    return [_last_tokens(r, leaf=True) for r in readings if r.defined]


def _compared(reading: Reading, key: Callable[[tuple[int, ...]], Hashable]) -> Deviation:
    got, wanted = _grouped(reading.got, key), _grouped(reading.wanted, key)
    parted = frozenset(
        out
        for out in reading.got
        if isinstance(out, tuple) and got.get(key(out), 0) != wanted.get(key(out), 0)
    )
    # Mass in excess of the rule's: the TV, if there are no problems; if there are, as little as
    # the outcomes that they stand for leave possible.
    excess = sum((max(m - wanted.get(k, 0), Fraction(0)) for k, m in got.items()), Fraction(0))
    return Deviation(reading, excess, reading.limit, outcomes=parted)


def _grouped(masses: Mapping[Any, Fraction], key: Callable[[Any], Hashable]) -> Mass:
    out: defaultdict[Any, Fraction] = defaultdict(Fraction)
    for outcome, mass in masses.items():
        if isinstance(outcome, tuple):
            out[key(outcome)] += mass
    return dict(out)


def _last_tokens(reading: Reading, leaf: bool) -> Deviation:
    """Compare the law of the last token given the accepted path, weighted by the path's mass.

    A wrong mass of the path is the business of `acceptance`; here the lesser of the two masses
    counts, so that each claim fails for its own reason only.
    """
    got, wanted = _by_path(reading.got), _by_path(reading.wanted)
    total = Fraction(0)
    parted: set[Outcome] = set()
    for path in got.keys() & wanted.keys():
        node = reading.path(path)
        if node is None or bool(node.children) == leaf:
            continue
        a, b = got[path], wanted[path]
        mass_a, mass_b = sum(a.values()), sum(b.values())
        if not mass_a or not mass_b:
            continue
        gap = tv({x: m / mass_a for x, m in a.items()}, {x: m / mass_b for x, m in b.items()})
        total += min(mass_a, mass_b) * gap
        parted |= {(*path, x) for x in a if a[x] / mass_a != b.get(x, 0) / mass_b}
    # Dividing by the mass of the path can double the rounding of its parts.
    return Deviation(reading, total, 2 * reading.limit, outcomes=frozenset(parted))


def _by_path(masses: Mapping[Any, Fraction]) -> dict[tuple[int, ...], dict[int, Fraction]]:
    out: defaultdict[tuple[int, ...], dict[int, Fraction]] = defaultdict(dict)
    for outcome, mass in masses.items():
        if isinstance(outcome, tuple):
            out[outcome[:-1]][outcome[-1]] = mass
    return dict(out)


@dataclass
class JointDeviation:
    """How a law of texts deviates from the target's, or from that of a rule which is lossy.

    Attributes:
        name: of the models.
        data: the fixture or case, as JSON data.
        got, wanted: masses by text.
        lossy: the distance of what is wanted from the target.
    """

    name: str
    data: dict[str, Any]
    tv: Fraction
    band: float
    got: Mass
    wanted: Mass
    lossy: Fraction = Fraction(0)

    @property
    def fails(self) -> bool:
        """Whether it is beyond what rounding explains."""
        return self.tv > self.band

    @property
    def first_position(self) -> int:
        """The first token whose marginal, given nothing, parts by more than the band; 1-based.

        0 if only the joint law does.
        """
        length = max((len(t) for t in self.wanted), default=0)
        for at in range(length):
            if tv(self._marginal(self.got, at), self._marginal(self.wanted, at)) > self.band:
                return at + 1
        return 0

    @staticmethod
    def _marginal(masses: Mass, at: int) -> Mass:
        out: defaultdict[Any, Fraction] = defaultdict(Fraction)
        for text, mass in masses.items():
            out[text[at] if isinstance(text, tuple) else text] += mass
        return dict(out)


def joint(
    fixture: Fixture, readings: Sequence[Reading], dtype: str, own: bool = False
) -> JointDeviation:
    """Compare the law of gamma+1 tokens, over all drafts, with the target's.

    Args:
        fixture: the models.
        readings: what was measured on each draft.
        dtype: the type in which laws were handed over.
        own: compare with the declared rule's law instead; it is `defined` on all drafts.
    """
    missed = sum(float(r.weight) * r.measured.missed for r in readings)
    emitted = mixed((r.got, r.weight) for r in readings)
    wanted = mixed((r.wanted, r.weight) for r in readings) if own else None
    return fixture_texts(fixture, emitted, fixture.gamma + 1, dtype, missed, wanted)


def mixed(parts: Iterable[tuple[Mapping[Any, Fraction], Fraction]]) -> Mass:
    """Return the mixture of laws, each given with its weight."""
    out: defaultdict[Any, Fraction] = defaultdict(Fraction)
    for masses, weight in parts:
        for outcome, mass in masses.items():
            out[outcome] += mass * weight
    return dict(out)


def fixture_texts(
    fixture: Fixture,
    emitted: Mapping[Any, Fraction],
    length: int,
    dtype: str,
    missed: float,
    own: Mapping[Any, Fraction] | None = None,
) -> JointDeviation:
    """Compare emitted texts, continued by the target to `length` tokens, with the target alone.

    Where texts of a rule of its `own` law are given, they are what emitted ones are compared with.
    """
    limit = band(fixture.vocab, length, dtype) + missed
    target = partial(fixture.target, dtype=dtype)
    return _texts(fixture.name, fixture.to_json(), target, emitted, length, limit, own)


def case_texts(
    case: Case,
    emitted: Mapping[Any, Fraction],
    missed: float,
    own: Mapping[Any, Fraction] | None = None,
) -> JointDeviation:
    """Compare emitted texts with a target whose law at each depth is that row of the case."""
    rows = [exact(row, case.dtype) for row in case.p]
    limit = band(case.vocab, len(rows), case.dtype) + missed
    name, data = "its own drafts", case.to_json()
    return _texts(name, data, lambda text: rows[len(text)], emitted, len(rows), limit, own)


def _texts(
    name: str,
    data: dict[str, Any],
    model: Model,
    emitted: Mapping[Any, Fraction],
    length: int,
    limit: float,
    own: Mapping[Any, Fraction] | None,
) -> JointDeviation:
    def target(context: tuple[int, ...]) -> Any:
        return tuple(as_fraction(w) for w in model(context))

    texts = {out: mass for out, mass in emitted.items() if isinstance(out, tuple)}
    got: Mass = complete(texts, target, length)
    got.update({out: mass for out, mass in emitted.items() if isinstance(out, Problem)})
    asked: Mass = target_law(target, length)
    wanted = asked if own is None else complete(dict(own), target, length)
    lossy = Fraction(tv(wanted, asked))
    return JointDeviation(name, data, Fraction(tv(got, wanted)), limit, got, wanted, lossy)


@dataclass
class Contract:
    """How proposals deviate from the q that is declared with them.

    Attributes:
        tv: over all positions, the distance of each token's law from its declared row.
        wanted, got: the declared and the measured law of the next token where they part most.
    """

    tv: Fraction
    wanted: Mass
    got: Mass


def contract(
    measured: Mapping[Proposal, Fraction],
    siblings: Callable[[tuple[float, ...], int], Mapping[tuple[int, ...], Fraction]],
) -> Contract:
    """Compare proposals with their declared q, given all that was drafted before.

    A node may have fewer children than the draft has room for, if their number was settled before
    they were looked at: those that are there still follow q.

    Args:
        measured: mass by proposal.
        siblings: from a row of q and a number of children to the law of their tokens.
    """
    groups: defaultdict[Any, defaultdict[tuple[int, ...], Fraction]] = defaultdict(
        lambda: defaultdict(Fraction)
    )
    for draft, mass in measured.items():
        for node in sorted(set(draft.parents)):
            below = [at for at, parent in enumerate(draft.parents) if parent == node]
            before = draft.tokens[: below[0]], draft.parents[: below[0]], draft.q[: node + 1]
            groups[before, len(below)][tuple(draft.tokens[at] for at in below)] += mass
    total, peak = Fraction(0), Fraction(-1)
    wanted: Mass = {}
    got: Mass = {}
    for ((tokens, _, q), count), masses in groups.items():
        mass = sum(masses.values(), Fraction(0))
        declared = siblings(q[-1], count)
        seen = {drawn: m / mass for drawn, m in masses.items()}
        gap = mass * Fraction(tv(seen, declared))
        total += gap
        if gap > peak:
            peak = gap
            wanted = {(*tokens, *drawn): m for drawn, m in declared.items() if m}
            got = {(*tokens, *drawn): m for drawn, m in seen.items()}
    return Contract(total, wanted, got)
