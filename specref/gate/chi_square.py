"""The chi-square test: the field's habit, shown with its power beside what decides.

Pearson's test has no say in a verdict: its law is one for many draws, it may be looked at once
only, and not to be refuted is no pass. `gate.evidence` decides. But people ask for it, and with its
power against a stated TV it says what such a test could have seen. (Where an alarm has ended the
counting early, the number of draws was not fixed in advance, and the p-value is too small.)
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

from specref.dist import Number, entries, exact_number, is_exact, whole

EXPECTED = 5
"""Fewer draws than these are not to be expected of a cell (Cochran 1954, Biometrics 10, 417)."""
TINY = 5e-324
"""The smallest double: a mass that would read 0 is not impossible."""
LEVEL = 0.05
"""Risk that any test of a run rejects a law that is right, for which the power is stated."""


@dataclass(frozen=True)
class ChiSquare:
    """What Pearson's test says of counts.

    Attributes:
        statistic: the sum over the cells of (counted - expected)^2 / expected.
        df: degrees of freedom: one less than there are cells.
        p_value: chance of such a statistic, or a larger one, if the law is right.
        cells: that are compared.
        merged: outcomes that share a cell with others, because too few draws of them are expected.
        power: least chance to reject a law that is `tv` away, or more; see `chi_square`.
        tv: what the power is stated against.
        impossible: draws that gave outcomes of mass 0; the test leaves them out, one refutes.
    """

    statistic: float
    df: int
    p_value: float
    cells: int
    merged: int
    power: float
    tv: float
    impossible: int = 0


def chi_square(
    expected: Mapping[Any, Number], counts: Mapping[Any, int], tv: float, *, tests: int = 1
) -> ChiSquare:
    """Compare counts with an exact law.

    Outcomes of which fewer than `EXPECTED` draws are expected are merged, rarest first (equal ones
    in the order of `expected`): into one cell until so many are expected of it, then into the next.
    What is left over joins the last of these cells or, if there is none, the rarest other outcome.

    The power is that of the test at level `LEVEL` / `tests`, against every law Q that is `tv` or
    more away from P. By Cauchy and Schwarz, with |Q - P| sqrt(1/P) sqrt(P), its noncentrality is

        n sum (Q - P)^2 / P  >=  n (sum |Q - P|)^2 / sum P  =  4 n TV(Q, P)^2

    with equality where |Q - P| is a multiple of P: mass moves from one half of P to the other, in
    proportion. In cells that hold several outcomes Q can hide as much of its TV as P has mass
    there, so that is taken off first. A noncentral chi-square grows with its noncentrality, so the
    least favourable Q gives the power. It is the limit for many draws (Patnaik 1949, Biometrika 36,
    202), as the p-value is. (Cohen's effect size w is 2 TV at this Q.)

    Args:
        expected: mass by outcome: numbers that sum to one, up to 2^-7 if they are floats, as
            `specref.verify` takes them; they are divided by their sum.
        counts: number of draws by outcome; left out is 0.
        tv: total variation that the power is stated against, 0 < tv <= 1.
        tests: how many tests of the run share the level.

    >>> found = chi_square({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 60, "b": 20, "c": 20}, tv=0.1)
    >>> f"{found.statistic:.2f} on {found.df}, p = {found.p_value:.3f}, power {found.power:.2f}"
    '5.33 on 2, p = 0.069, power 0.42'

    Raises:
        ValueError: masses that are no law, counts that are no numbers of draws, a `tv` or a number
            of tests out of range.
    """
    law = _law(expected)
    seen = _counts(counts)
    gap = float(exact_number(tv, "tv"))
    if not 0 < gap <= 1:
        raise ValueError(f"tv = {tv} is out of range; pass 0 < tv <= 1")
    level = LEVEL / whole(tests, "tests", "pass how many tests there are", 1)
    impossible = sum(count for outcome, count in seen.items() if outcome not in law)
    n = sum(seen.values()) - impossible
    groups = _merged(law, n)
    shared = [group for group in groups if len(group) > 1]
    statistic = 0.0
    for group in groups if n else []:
        wanted = n * sum(law[outcome] for outcome in group)
        statistic += (sum(seen.get(outcome, 0) for outcome in group) - wanted) ** 2 / wanted
    df = len(groups) - 1
    p_value, power = 1.0, 0.0  # a single cell has nothing to say
    if df:
        # Only who counts pays for the import: the rest of the package does without.
        from scipy.stats import chi2, ncx2

        hidden = sum(law[outcome] for group in shared for outcome in group)
        noncentrality = 4 * n * max(0.0, gap - hidden) ** 2
        p_value = float(chi2.sf(statistic, df))
        power = float(ncx2.sf(chi2.isf(level, df), df, noncentrality))
    merged = sum(map(len, shared))
    return ChiSquare(statistic, df, p_value, len(groups), merged, power, gap, impossible)


def _law(expected: Mapping[Any, Number]) -> dict[Any, float]:
    """Return the masses above 0 as floats, divided by their sum."""
    if not isinstance(expected, Mapping) or not expected:
        raise ValueError(f"expected = {expected!r} is no law; pass {{outcome: mass}}")
    masses = {outcome: _mass(mass, outcome) for outcome, mass in expected.items()}
    total = fsum(masses.values())
    # A double is off by 2^-53 of an exact mass, so the sum is off by as much of one.
    if not abs(total - 1) <= (2.0**-52 if all(map(is_exact, expected.values())) else 2.0**-7):
        raise ValueError(f"expected sums to {total:.17g}, not 1; pass masses, not weights")
    return {outcome: mass / total for outcome, mass in masses.items() if mass}


def _mass(mass: Number, outcome: Any) -> float:
    """Read one mass."""
    exact = exact_number(mass, f"expected[{outcome!r}]")
    if exact < 0:
        raise ValueError(f"expected[{outcome!r}] = {mass} is negative; masses are >= 0")
    return float(exact) or (TINY if exact else 0.0)


def _counts(counts: Mapping[Any, int]) -> dict[Any, int]:
    """Read numbers of draws."""
    if not isinstance(counts, Mapping):
        raise ValueError(f"counts = {counts!r} are no counts; pass {{outcome: number of draws}}")
    return {o: whole(count, f"counts[{o!r}]", "count draws", 0) for o, count in counts.items()}


def _merged(law: Mapping[Any, float], n: int) -> list[list[Any]]:
    """Return the cells, each with its outcomes."""
    rarest = sorted(law, key=lambda outcome: law[outcome])
    poor = [outcome for outcome in rarest if n * law[outcome] < EXPECTED]
    rich = [[outcome] for outcome in rarest[len(poor) :]]
    groups: list[list[Any]] = []
    filled = float(EXPECTED)
    for outcome in poor:
        if filled >= EXPECTED:
            groups.append([])
            filled = 0.0
        groups[-1].append(outcome)
        filled += n * law[outcome]
    if filled < EXPECTED:
        rest = groups.pop()
        if groups:
            groups[-1] += rest
        elif rich:
            rich[0] += rest
        else:
            groups.append(rest)
    return groups + rich


def holm(p_values: Iterable[float], tests: int | None = None) -> tuple[float, ...]:
    """Return p-values adjusted for their number (Holm 1979, Scand. J. Statistics 6, 65).

    To reject where the adjusted one is at most a has a risk of at most a that any law that is right
    is rejected, however the tests depend on each other. The k-th smallest is multiplied by the
    number of those that are not smaller, and is no smaller than the ones before it.

    Args:
        p_values: in any order.
        tests: how many there are in all, if these are not all of them; the others count as larger,
            which errs on the safe side.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]

    Raises:
        ValueError: a p-value that is not in 0 <= p <= 1, or fewer tests than p-values.
    """
    values = entries(p_values, "p_values")
    for at, p in enumerate(values):
        if not 0 <= exact_number(p, f"p_values[{at}]") <= 1:
            raise ValueError(f"p_values[{at}] = {p} is out of range; p-values are in 0 <= p <= 1")
    all_ = len(values) if tests is None else whole(tests, "tests", "pass how many there are", 0)
    if all_ < len(values):
        raise ValueError(f"tests = {all_}, but there are {len(values)} p-values; count all tests")
    adjusted = [0.0] * len(values)
    least = 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=lambda at: values[at])):
        least = max(least, min(1.0, (all_ - rank) * float(values[at])))
        adjusted[at] = least
    return tuple(adjusted)


class Folded(NamedTuple):
    """A law of few classes in place of one of many outcomes.

    Attributes:
        law, counts: by class, 0 for the likeliest outcomes; where draws gave an outcome of mass 0,
            it is counted as ("impossible", outcome).
        message: what was done, for people.
    """

    law: dict[Hashable, Number]
    counts: dict[Hashable, int]
    message: str


def folded(law: Mapping[Any, Number], counts: Mapping[Any, int], classes: int) -> Folded:
    """Fold outcomes into classes of like mass: what a large vocabulary needs.

    Outcomes are laid out likeliest first (equal ones in the order of `law`), and the line is cut
    into `classes` parts of equal mass; an outcome belongs to the part that its middle lies in. So
    it depends on the law alone, never on the counts, and tests of the classes are tests of what the
    law says of them. Faults that move mass by how likely a token is (temperatures, filters, wrong
    residuals) show; an exchange of two tokens of like mass does not.

    Outcomes of mass 0 are not folded: one of them refutes the law. A law of at most `classes`
    outcomes stays as it is.

    Args:
        law: mass by outcome.
        counts: number of draws by outcome; left out is 0.
        classes: the largest number of classes.

    >>> tokens = {x: 2.0 ** -(x + 1) for x in range(60)}
    >>> found = folded(tokens, {0: 50, 1: 20, 7: 1}, 4)
    >>> print(found.counts, found.message)
    {0: 50, 1: 20, 2: 1} 60 outcomes folded into 3 classes of like mass

    Raises:
        ValueError: less than one class, masses or counts that are none.
    """
    parts = whole(classes, "classes", "pass how many classes there may be", 1)
    floats, given = _law(law), _counts(counts)
    if len(floats) <= parts:
        return Folded(dict(law), given, "")
    class_of: dict[Any, int] = {}
    mass: defaultdict[Hashable, Number] = defaultdict(int)
    number_of: dict[int, int] = {}  # a likely outcome fills several parts, so some stay empty
    before = 0.0
    for outcome in sorted(floats, key=lambda o: floats[o], reverse=True):
        part = min(parts - 1, int(parts * (before + floats[outcome] / 2)))
        class_of[outcome] = number_of.setdefault(part, len(number_of))
        mass[class_of[outcome]] += law[outcome]
        before += floats[outcome]
    seen: defaultdict[Hashable, int] = defaultdict(int)
    for outcome, count in given.items():
        # Classes are numbers, and outcomes may be: what is impossible gets a name of its own.
        seen[class_of.get(outcome, ("impossible", outcome))] += count
    kind = "class" if len(mass) == 1 else "classes"
    text = f"{len(floats):,} outcomes folded into {len(mass)} {kind} of like mass"
    return Folded(dict(mass), dict(seen), text)


def remark(found: Sequence[ChiSquare], adjusted: Sequence[float], tests: int) -> str:
    """Return what chi-square says of one claim, in words; "" if there is nothing to test.

    Args:
        found: the tests of the claim; the smallest p-value and the least power are told.
        adjusted: their p-values as `holm` adjusts them, over the run.
        tests: number of tests that they were adjusted for.

    >>> one = chi_square({0: 0.5, 1: 0.5}, {0: 5_100, 1: 4_900}, tv=0.02, tests=12)
    >>> remark([one], holm([one.p_value], 12), 12)
    'chi-square p = 0.55 (Holm, 12 tests), power 0.87 against TV 0.02'
    """
    told = [(p, one) for p, one in zip(adjusted, found, strict=True) if one.cells + one.merged > 1]
    if not told:
        return ""
    least = min(p for p, _ in told)
    weakest = min((one for _, one in told), key=lambda one: one.power)
    # Floats end at 1e-308: what is smaller reads 0.
    value = f"= {least:.2g}" if least else "< 1e-300"
    power = "> 0.999" if weakest.power > 0.999 else f"{weakest.power:.2g}"
    many = "1 test" if tests == 1 else f"{tests} tests"
    text = f"chi-square p {value} (Holm, {many}), power {power} against TV {weakest.tv:g}"
    left_out = sum(one.impossible for _, one in told)
    return text + (f", {left_out:,} impossible draws left out" if left_out else "")
