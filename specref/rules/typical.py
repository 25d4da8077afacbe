"""Typical acceptance: keep what is likely enough for how sure the target is. Lossy."""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction
from math import gcd

from specref.choice import Choose
from specref.dist import Law, Number, number, rational, top
from specref.draft import Node

DIGITS = 30
"""Digits of the logarithms that are tried first."""


def typical(
    root: Node,
    choose: Choose,
    epsilon: Number = Fraction(9, 100),
    delta: Number = Fraction(3, 10),
    inside: Number = 0,
) -> tuple[int, ...]:
    """Keep x while p(x) > min(epsilon, delta exp(-H(p))) (Cai et al. 2024, Medusa).

    H is the entropy of the target's law in nats: where many tokens are possible the bar is low,
    and it is never above `epsilon`. Of the paths that stay, the longest wins; of those, the one
    that the target finds likeliest; of those, the first drafted. The closing token, correction or
    bonus, is the argmax of p behind that path (ties to the lowest id). So Medusa's code does it
    (`evaluate_posterior`, then `generate_candidates` with `fast`): the argmax is the root of the
    next tree, accepted unconditionally.

    What is given up: the target's law altogether. The rule draws nothing, so its output is as
    random as the draft; likeliest drafts give one certain text. All that is known of an emitted
    token is that it passed the bar or is an argmax.

    The defaults are those of Medusa's `medusa_generate` and of vLLM's former sampler: epsilon 0.09
    and delta its square root, as recommended. (The signature of `evaluate_posterior` has the two
    numbers the other way round, but is always passed both.)

    The constant threshold, p(x) > epsilon, is the case delta >= V epsilon: exp(-H) is at least 1/V,
    so the bar is epsilon everywhere.

    The comparison is exact, although exp(-H) is irrational. exp(-H) is the product of p_i^p_i, so
    p(x) > delta exp(-H) asks for the sign of log(p(x)/delta) - sum p_i log p_i, a sum of logarithms
    of integers with rational factors. `exceeds` bounds it by correctly rounded logarithms, and
    where these cannot tell, decides first whether the sum is exactly zero. p_i = 0 contributes
    nothing, so a one-hot law has H = 0. Floats count at their exact binary value.

    Args:
        root: a tree with siblings of any origin; of equal siblings the first is followed.
        choose: unused; the rule draws nothing.
        epsilon: the bar's upper limit, 0 < epsilon <= 1.
        delta: the entropy's factor, > 0.
        inside: added to p inside the logarithm of the entropy, >= 0; Medusa's code adds 1e-5.

    >>> from fractions import Fraction as F
    >>> from specref.draft import tree
    >>> p = (F(1, 2), F(1, 3), F(1, 6))
    >>> typical(tree([p] * 4, [p] * 4, [2, 1, 0], [0, 0, 1]), None)
    (2, 0, 0)
    >>> typical(tree([p] * 4, [p] * 4, [2, 1, 0], [0, 0, 1]), None, F(3, 10), delta=1)
    (1, 0)

    Raises:
        ValueError: a parameter outside its range.
    """
    epsilon, delta = number(epsilon, "epsilon"), number(delta, "delta")
    inside = number(inside, "inside")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon = {epsilon} is outside 0 < epsilon <= 1")
    if not delta > 0:
        raise ValueError(f"delta = {delta} is outside delta > 0; the smaller, the looser")
    if not inside >= 0:
        raise ValueError(f"inside = {inside} is outside inside >= 0; 0 is the entropy itself")
    paths: list[tuple[tuple[int, ...], Number, Node]] = [((), rational(1), root)]
    while paths:
        longest = paths
        paths = [
            ((*path, x), likelihood * rational(node.p[x]), child)
            for path, likelihood, node in longest
            for x, child in node.children
            if node.p[x] > epsilon or exceeds(node.p[x], node.p, delta, inside)
        ]
    path, _, node = max(longest, key=lambda found: found[1])
    return path + top(node.p, 1)


def exceeds(chance: Number, law: Law, delta: Number = 1, inside: Number = 0) -> bool:
    """Whether chance > delta * exp(-H(law)), H in nats; decided exactly.

    With b_i = law_i + inside the claim is log(chance / delta) - sum law_i log b_i > 0. Numerators
    and denominators apart, that is a sum of factor * log(n) over integers n. `decimal` rounds each
    log(n) correctly: to d digits it is off by at most 10^(1-d) of itself, and the rest of the sum
    is exact. More digits are taken until the sum is larger than its error. This ends, for a sum
    that is exactly zero is recognised: written over pairwise coprime numbers of which all the n are
    products, it has factor zero at each of them, because their logarithms are independent.

    Args:
        chance: a probability; 0 never exceeds anything.
        law: the law [V] whose entropy it is.
        delta: factor, > 0.
        inside: added to the probabilities inside the logarithm, >= 0.

    >>> quarter = Fraction(1, 4)
    >>> exceeds(quarter, (quarter,) * 4), exceeds(quarter, (quarter,) * 4, Fraction(99, 100))
    (False, True)
    """
    if not chance > 0:
        return False
    factors: defaultdict[int, Number] = defaultdict(int)
    weighted = [(rational(1), rational(chance) / rational(delta))]
    weighted += [(-rational(w), rational(w) + rational(inside)) for w in law if w > 0]
    for factor, value in weighted:
        factors[int(value.numerator)] += factor
        factors[int(value.denominator)] -= factor
    digits = DIGITS
    while True:
        context = Context(prec=digits)
        logs = {n: rational(context.ln(Decimal(n))) for n in factors}
        total = sum(factor * logs[n] for n, factor in factors.items())
        error = sum(abs(factor) * logs[n] for n, factor in factors.items()) / 10 ** (digits - 1)
        if abs(total) > error:
            return bool(total > 0)
        if digits == DIGITS and _cancels(factors):
            return False
        digits *= 2


def _cancels(factors: dict[int, Number]) -> bool:
    """Whether the sum of factor * log(n) is zero, by unique factorisation."""
    return all(
        sum(factor * _multiplicity(b, n) for n, factor in factors.items()) == 0
        for b in _coprime_base(factors)
    )


def _coprime_base(numbers: Iterable[int]) -> list[int]:
    """Return pairwise coprime integers > 1 of which all `numbers` are products."""
    base: list[int] = []
    todo = [n for n in numbers if n > 1]
    while todo:
        n = todo.pop()
        for b in base:
            common = gcd(n, b)
            if common > 1:  # the product of all numbers shrinks, so this ends
                base.remove(b)
                todo += [part for part in (common, n // common, b // common) if part > 1]
                break
        else:
            base.append(n)
    return base


def _multiplicity(b: int, n: int) -> int:
    count = 0
    while n % b == 0:
        n, count = n // b, count + 1
    return count
