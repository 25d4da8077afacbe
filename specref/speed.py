"""What speculation earns: expected tokens, speed-up, and when to switch it off.

`alpha` is the chance that a drafted token is accepted, given that those before it were; with one
pair of laws it is sum min(p, q) = 1 - TV(p, q). `gamma` is the number of drafted tokens, `cost` the
time of one draft step over that of one plain step of the target (the c of Leviathan et al. 2023).
Everything is plain arithmetic: exact on fractions, integers and strings ("7/10"), floats stay
floats.

`expected_tokens`, `speedup`, `operations` and `best_gamma` take one alpha for all positions.
`budget`, `break_even` and `throughput` take what any rule on any draft is measured to earn.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from specref.dist import Number, entries, exact_number, number, rational, whole


def expected_tokens(alpha: Number, gamma: int) -> Number:
    """Return the tokens that a round emits on average (Leviathan et al. 2023, Eq. 1).

    That is (1 - alpha^(gamma+1)) / (1 - alpha), summed term by term, so that alpha = 1 gives
    gamma + 1. The correction or bonus is counted.

    >>> print(expected_tokens("2/3", 2), expected_tokens(1, 4))
    19/9 5

    Raises:
        ValueError: an alpha outside [0, 1], or a negative gamma.
    """
    alpha = _chance(alpha, "alpha")
    total = power = alpha * 0 + 1
    for _ in range(_length(gamma)):
        power = power * alpha
        total = total + power
    return total


def speedup(alpha: Number, gamma: int, cost: Number) -> Number:
    """Return the factor over plain decoding (Leviathan et al. 2023, Theorem 3.8).

    It is the expected tokens over gamma * cost + 1, if verifying takes as long as a plain step.

    >>> print(f"{float(speedup('7/10', 4, '1/20')):.3f} {float(speedup('2/5', 4, '1/20')):.3f}")
    2.311 1.375

    Raises:
        ValueError: an alpha outside [0, 1], a negative gamma or cost.
    """
    return expected_tokens(alpha, gamma) / (gamma * _amount(cost, "cost") + 1)


def operations(alpha: Number, gamma: int, cost: Number = 0) -> Number:
    """Return the factor by which arithmetic operations grow (Leviathan et al. 2023, Theorem 3.11).

    Args:
        alpha: acceptance.
        gamma: drafted tokens.
        cost: operations of the draft model for one token over those of the target (their c-hat).

    >>> print(operations("4/5", 2))
    75/61

    Raises:
        ValueError: an alpha outside [0, 1], a negative gamma or cost.
    """
    tokens = expected_tokens(alpha, gamma)
    return (gamma * _amount(cost, "cost") + gamma + 1) / tokens


def oracle_speedup(alpha: Number, cost: Number) -> Number:
    """Return the speed-up of a drafter that stops before the first token to be refused.

    It emits 1 / (1 - alpha) tokens a round on average and drafts one fewer: 1 / (1 - alpha + alpha
    * cost), which no fixed gamma can reach (Leviathan et al. 2023, section 3.5).

    >>> print(oracle_speedup("4/5", "1/10"))
    25/7

    Raises:
        ValueError: an alpha outside [0, 1], a negative cost, or free drafts that are always right.
    """
    alpha, cost = _chance(alpha, "alpha"), _amount(cost, "cost")
    time = 1 - alpha + alpha * cost
    if time == 0:
        raise ValueError("alpha = 1 and cost = 0 give no finite speed-up; pass a cost above 0")
    return 1 / time


def step_pays(alpha: Number, gamma: int, cost: Number) -> bool:
    """Whether drafting gamma + 1 tokens is faster than gamma, exactly.

    Theorem 3.8 grows from gamma to gamma + 1 iff alpha^(gamma+1) (1 + gamma cost) > cost N(gamma),
    N being the expected tokens. Once it does not, it never does again: from gamma to gamma + 1 the
    left side less the right falls by alpha^(gamma+1) (1 - alpha) (1 + (gamma + 1) cost).

    >>> step_pays("1/2", 0, "1/4"), step_pays("1/4", 0, "1/4")
    (True, False)

    Raises:
        ValueError: an alpha outside [0, 1], a negative gamma or cost.
    """
    tokens = expected_tokens(alpha, gamma)
    alpha, cost = _chance(alpha, "alpha"), _amount(cost, "cost")
    return bool(alpha ** (gamma + 1) * (1 + gamma * cost) > cost * tokens)


def best_gamma(alpha: Number, cost: Number, limit: int | None = None) -> int:
    """Return the number of drafts at which Theorem 3.8 is largest, the smallest of equal ones.

    It is 0 exactly if alpha <= cost: then speculation does not pay (Corollary 3.9).

    Args:
        alpha: acceptance.
        cost: draft step over plain step.
        limit: most drafts to consider.

    >>> best_gamma("4/5", "1/20"), best_gamma("1/20", "1/10")
    (8, 0)

    Raises:
        ValueError: an alpha outside [0, 1], a negative cost or limit, or drafts that pay at any
            length where no limit is given.
    """
    alpha, cost = _chance(alpha, "alpha"), _amount(cost, "cost")
    if limit is not None:
        limit = whole(limit, "limit", "pass the most drafts to consider", 0)
    elif (alpha == 1 and cost < 1) or (cost == 0 and alpha > 0):
        raise ValueError(f"alpha = {alpha} and cost = {cost} pay at any length; pass limit")
    gamma = 0
    while gamma != limit and step_pays(alpha, gamma, cost):
        gamma += 1
    return gamma


class Budget(NamedTuple):
    """Where the time of a round goes: tokens emitted, time taken, factor over plain decoding."""

    tokens: Number
    time: Number
    speedup: Number


def budget(
    tokens: Number, gamma: int, *, draft: Number, verify: Number, plain: Number, other: Number = 0
) -> Budget:
    """Return the budget of one round, in any unit of time.

    Args:
        tokens: emitted on average, the correction or bonus included: `expected_tokens`, or
            1 + E[accepted] of any rule.
        gamma: draft steps.
        draft, verify, plain: time of one draft step, of verifying, of a plain target step.
        other: time of everything else in a round (state, sampling).

    >>> round_ = budget(expected_tokens("4/5", 4), 4, draft=1, verify=12, plain=10, other=2)
    >>> print(float(round_.tokens), round_.time, f"{float(round_.speedup):.3f}")
    3.3616 18 1.868

    Raises:
        ValueError: a negative number, or no time at all for a plain step or a round.
    """
    emitted = _amount(tokens, "tokens")
    named = {"draft": draft, "verify": verify, "plain": plain, "other": other}
    times = {name: _amount(value, name) for name, value in named.items()}
    if times["plain"] == 0:
        raise ValueError("plain = 0; pass the time of one step of the target alone")
    time = _length(gamma) * times["draft"] + times["verify"] + times["other"]
    if time == 0:
        raise ValueError("draft, verify and other are all 0; pass the time that a round takes")
    return Budget(emitted, time, emitted * times["plain"] / time)


def break_even(tokens: Number, gamma: int, cost: Number) -> Number:
    """Return how much longer than a plain step verifying may take before speculation loses.

    Speculation pays iff the time of verifying over that of a plain step is below tokens - gamma *
    cost. Where both are bound by arithmetic the former is gamma + 1, and no rule emits more than
    gamma + 1 tokens: then speculation never pays.

    >>> print(break_even(expected_tokens("4/5", 4), 4, "1/10"))
    1851/625

    Raises:
        ValueError: a negative number.
    """
    return _amount(tokens, "tokens") - _length(gamma) * _amount(cost, "cost")


def throughput(chances: Iterable[Number], rates: Iterable[Number]) -> tuple[Number, ...]:
    """Return the tokens per second for every number of drafts submitted (DSpark, Theta).

    Args:
        chances: chance that each draft is accepted, given that those before it were.
        rates: verification steps per second with 0, 1, ... drafts; one more than chances.

    >>> print(*throughput(["4/5", "9/10"], [1, "1/2", "9/20"]))
    1 9/10 567/500

    Raises:
        ValueError: a chance outside [0, 1], a negative rate, or lengths that do not fit.
    """
    accepted = [_chance(c, f"chances[{at}]") for at, c in enumerate(entries(chances, "chances"))]
    steps = [_amount(rate, f"rates[{at}]") for at, rate in enumerate(entries(rates, "rates"))]
    if len(steps) != len(accepted) + 1:
        raise ValueError(
            f"rates has {len(steps)} entries for {len(accepted)} chances; pass one for no draft "
            "and one for each"
        )
    values = [steps[0]]
    tokens = survival = rational(1)
    for chance, rate in zip(accepted, steps[1:], strict=True):
        survival = survival * chance
        tokens = tokens + survival
        values.append(tokens * rate)
    return tuple(values)


def stop_at_drop(values: Sequence[Number]) -> int:
    """Return the last index before `values` first fails to grow (DSpark, Alg. 1).

    On values of `throughput` this is a number of drafts that was decided without looking at the
    draft in question or at later ones, as losslessness needs; their maximum is not.

    >>> stop_at_drop([1, 2, 2, 5])
    1
    """
    at = 0
    while at + 1 < len(values) and values[at + 1] > values[at]:
        at += 1
    return at


def k_seq_share(drafts: int) -> Number:
    """Return the share of the best acceptance that K-SEQ keeps at least (Sun et al. 2023, SpecTr).

    It is 1 - (1 - 1/K)^K and falls to 1 - 1/e.

    >>> print(*(k_seq_share(k) for k in (1, 2, 3, 4)))
    1 3/4 19/27 175/256

    Raises:
        ValueError: fewer than one draft.
    """
    drafts = whole(drafts, "drafts", "pass the number of drafts at one position", 1)
    return 1 - rational(drafts - 1, drafts) ** drafts


def _chance(value: Number, name: str) -> Number:
    chance = _amount(value, name)
    if chance > 1:
        raise ValueError(f"{name} = {value} is above 1; pass a probability")
    return chance


def _amount(value: Number, name: str) -> Number:
    """Return a number >= 0; integers and strings exactly, so that no division makes floats."""
    amount = exact_number(value, name) if isinstance(value, int) else number(value, name)
    if not amount >= 0:  # NaN too
        raise ValueError(f"{name} = {value} is no number >= 0; pass one")
    return amount


def _length(gamma: int) -> int:
    return whole(gamma, "gamma", "pass the number of drafted tokens", 0)
