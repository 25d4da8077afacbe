"""Statistics for black boxes: an alarm that may be looked at any time, and a certificate of size.

The null is that draws are independent, from an exact law P on K outcomes. Two finite-sample
instruments decide, and neither is a failure to reject:

- the *alarm*, an e-value: a likelihood ratio of a Dirichlet mixture around P against P. Under the
  null it ever reaches m/a with probability at most a/m (Ville), so it raises no false alarm however
  often one looks;
- the *certificate*: with probability 1 - b the true law is within `bound` of P in TV. A pass is the
  statement that this bound is small.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, pi, sqrt
from typing import Any

from specref.dist import Number

ALARM = 1e-6
"""Risk of a false alarm, for a whole run."""
RISK = 1e-6
"""Risk that a certificate is wrong, for each."""
LOOKS = 32
"""A certificate may be read at so many numbers of draws: its risk is divided by this."""


def log_e_value(
    expected: Mapping[Any, Number], counts: Mapping[Any, int], tv: float = 0.02
) -> float:
    """Return the natural logarithm of the e-value of counts against the exact law `expected`.

    The Dirichlet prior has mean P and concentration c = K / (2 pi tv^2), averaged over c times
    1/16, 1/4, 1 and 4; an average of e-values is an e-value. An outcome of mass 0 that was seen
    makes it infinite.

    >>> law = {"a": 0.5, "b": 0.5}
    >>> log_e_value(law, {"a": 500, "b": 500}) < 0 < log_e_value(law, {"a": 700, "b": 300})
    True
    """
    law = {outcome: float(mass) for outcome, mass in expected.items() if mass > 0}
    if any(count and outcome not in law for outcome, count in counts.items()):
        return inf
    n = sum(counts.values())
    centre = len(law) / (2 * pi * tv**2)
    null = sum(count * log(law[outcome]) for outcome, count in counts.items() if count)
    ratios = []
    for scale in (1 / 16, 1 / 4, 1, 4):
        c = centre * scale
        mixture = lgamma(c) - lgamma(c + n)
        for outcome, count in counts.items():
            if count:
                mixture += lgamma(c * law[outcome] + count) - lgamma(c * law[outcome])
        ratios.append(mixture - null)
    top = max(ratios)
    return top + log(sum(exp(r - top) for r in ratios) / len(ratios))


def certified_tv(expected: Mapping[Any, Number], counts: Mapping[Any, int]) -> float:
    """Return a bound on the TV from `expected` that holds with probability 1 - RISK.

    TV(Q, P) <= TV(empirical, P) + sqrt(K/n)/2 + sqrt(ln(1/b)/(2n)): Cauchy-Schwarz for the mean of
    the empirical distance on K outcomes and "anything else", McDiarmid for its fluctuation; it
    holds at `LOOKS` numbers of draws at once.
    """
    n = sum(counts.values())
    if n == 0:
        return 1.0
    size = sum(1 for mass in expected.values() if mass > 0)
    outcomes = expected.keys() | counts.keys()
    gap = sum(abs(counts.get(o, 0) / n - float(expected.get(o, 0))) for o in outcomes) / 2
    return gap + sqrt(size / n) / 2 + sqrt(log(LOOKS / RISK) / (2 * n))


def rows_needed(outcomes: int, tv: float) -> int:
    """Return how many draws certify `tv` on K outcomes, if the sampler is right.

    >>> rows_needed(16, 0.02)
    243986
    """
    return ceil(((sqrt(outcomes) + sqrt(2 * log(LOOKS / RISK))) / tv) ** 2)


@dataclass(frozen=True)
class Evidence:
    """What samples say about one law.

    Attributes:
        rows: draws.
        log_e: logarithm of the e-value.
        bound: certified TV.
        impossible: an outcome of mass 0 that was seen, or None.
        gap: TV between the empirical and the expected law.
    """

    rows: int
    log_e: float
    bound: float
    impossible: Any
    gap: float

    def alarm(self, tests: int) -> bool:
        """Whether this refutes the law, with a risk of `ALARM` over so many tests."""
        return self.impossible is not None or self.log_e >= log(tests / ALARM)

    def verdict(self, tv: float, tests: int) -> str:
        """Return "fail", "pass" (the certified TV is at most `tv`) or "inconclusive"."""
        if self.alarm(tests):
            return "fail"
        return "pass" if self.bound <= tv else "inconclusive"


def weigh(expected: Mapping[Any, Number], counts: Mapping[Any, int], tv: float) -> Evidence:
    """Return the evidence of counts about an exact law."""
    n = max(1, sum(counts.values()))
    impossible = next((o for o, c in counts.items() if c and not expected.get(o, 0)), None)
    outcomes = expected.keys() | counts.keys()
    gap = sum(abs(counts.get(o, 0) / n - float(expected.get(o, 0))) for o in outcomes) / 2
    return Evidence(
        sum(counts.values()),
        log_e_value(expected, counts, tv),
        certified_tv(expected, counts),
        impossible,
        gap,
    )
