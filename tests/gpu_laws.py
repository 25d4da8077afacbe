"""Laws of many rows at once in float64, and how far a backend's float32 may stray from them.

This is the fast half of the judge: a second reading of the sampling parameters, written from
`specref.logits`, which `tests/test_gpu_replay.py` pins to it. Nothing is tuned. With u = 2^-24, a
logit x, the largest one m and a temperature T, a backend computes

    w = exp((x - m) * (1 / T))

in float32: the difference, the reciprocal and the product round once each, which moves the
exponent, a, by 3 u |a|; the exponential is good to two units in the last place, 4 u; and where it
falls below 2^-126 it may be flushed to 0. So a weight is off by e = u (3 |a| + 4) relatively and by
2^-126 absolutely. Weights are summed in float32 inside blocks, by a tree of at most log2 V + 1
additions, and blocks in float64: a sum is off by the mean of e, and by u (log2 V + 1). A mass is a
quotient of the two; 2 u more covers its division and one more product. `Rows.off` is this bound for
each mass.

A share that a filter compares has two such sums in it, and the bound itself may round: `reach`.
Where a cumulative mass is as near to top_p, or a weight to min_p, which tokens stay is not for the
exact law to say, and the row is `open`. The order of logits, and so top_k and all ties, is exact:
logits are compared as they are, and the cases choose biases that add without rounding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from specref.logits import PRESETS

U = 2.0**-24
FLUSHED = 2.0**-126


@dataclass
class Rows:
    """Laws of n rows.

    Attributes:
        p: masses [n, V].
        off: how far a backend's may be from them [n, V].
        bad: rows that are no law [n].
        lawless: rows whose parameters are out of range [n].
        best: the likeliest finite token, -1 if there is none [n].
        open: rows in which rounding decides which tokens stay [n].
    """

    p: Any
    off: Any
    bad: Any
    lawless: Any
    best: Any
    open: Any


def levels(vocab: int) -> float:
    """Return the rounding of a sum, in units of u."""
    return float(np.ceil(np.log2(max(vocab, 2)))) + 1


def of_probs(probs: Any) -> Rows:
    """Return the laws of rows of probabilities [n, V], each divided by its sum."""
    bad = ~np.isfinite(probs).all(1) | (probs < 0).any(1)
    clean = np.where(bad[:, None], 1.0, probs)
    bad |= clean.sum(1) == 0
    clean = np.where(bad[:, None], 1.0, clean)
    p = clean / clean.sum(1, keepdims=True)
    off = p * U * (levels(p.shape[1]) + 2)
    none = np.zeros(len(p), bool)
    return Rows(p, off, bad, none, np.where(bad, -1, p.argmax(1)), none.copy())


def of_logits(scores: Any, asked: dict[str, Any], name: str) -> Rows:
    """Return the laws of rows of logits under sampling parameters.

    Args:
        scores: float64 [n, V]; -inf for tokens that are forbidden.
        asked: temperature, top_k, top_p and min_p, each [n].
        name: of the preset.
    """
    preset = PRESETS[name]
    n, vocab = scores.shape
    finite = np.isfinite(scores)
    best = np.where(finite.any(1), np.where(finite, scores, -np.inf).argmax(1), -1)
    bad = np.isnan(scores).any(1) | (scores == np.inf).any(1) | ~finite.any(1)
    clean = np.where(bad[:, None], 0.0, scores)
    lawless = out_of_range(asked, name)
    t = np.where(lawless | (asked["temperature"] == 0), 1.0, asked["temperature"])
    top_p, min_p = (np.where(lawless, 1.0, asked[name]) for name in ("top_p", "min_p"))
    cold = clean - clean.max(1, keepdims=True)
    hot = cold / t[:, None]
    kept = clean > -np.inf
    open_ = np.zeros(n, bool)
    warm = False
    for step in preset.steps:
        together = (step,) if isinstance(step, str) else step
        warm = warm or "temperature" in together
        a = hot if warm else cold
        before = kept
        for filter_ in together:
            if filter_ == "top_k":
                kept = kept & _top_k(clean, before, asked["top_k"], preset.top_k_ties)
            elif filter_ == "top_p":
                off = (top_p == 1) | ((top_p == 0) & (preset.top_p_zero == "off"))
                stay, near = _top_p(
                    clean, a, before, top_p, preset.top_p_ties, preset.nucleus == "exceeds"
                )
                kept = kept & (stay | off[:, None])
                open_ |= near & ~off
            elif filter_ == "min_p":
                kept = kept & (np.exp(a) >= min_p[:, None])
                reach = min_p[:, None] * U * (3 * np.abs(np.maximum(a, -200)) + 6)
                near = np.abs(np.exp(a) - min_p[:, None]) <= reach
                open_ |= (near & before & (a < 0)).any(1) & (min_p > 0)
    weights = np.where(kept, np.exp(hot), 0.0)
    total = weights.sum(1, keepdims=True)
    p = weights / total
    e = U * (3 * np.abs(np.maximum(hot, -200)) + 4)
    mean = (p * e).sum(1, keepdims=True) + U * levels(vocab)
    off = np.where(kept, p * (e + mean + 2 * U) + FLUSHED, 0.0)
    greedy = asked["temperature"] == 0
    sure = np.eye(vocab)[np.maximum(best, 0)]
    p = np.where(greedy[:, None], sure, p)
    off = np.where(greedy[:, None], 0.0, off)
    return Rows(p, off, bad, lawless, best, open_ & ~greedy & ~bad & ~lawless)


def out_of_range(asked: dict[str, Any], name: str) -> Any:
    """Return which rows ask for what their preset does not take [n]."""
    preset = PRESETS[name]
    t, p, m = (asked[key] for key in ("temperature", "top_p", "min_p"))
    fine = (t == 0) | ((t >= float(preset.coldest)) & (t <= float(preset.hottest)) & (t < np.inf))
    fine &= (p >= 0) & (p <= 1) & (m >= 0) & (m <= 1) & (t >= 0)
    return ~(fine & ((p > 0) | (preset.top_p_zero != "refused")))


def _order(scores: Any, ties: str) -> Any:
    """Return the tokens of each row by falling score, equal ones as ties say."""
    if ties != "highest":
        return np.argsort(-scores, axis=1, kind="stable")
    return scores.shape[1] - 1 - np.argsort(-scores[:, ::-1], axis=1, kind="stable")


def _unsorted(flags: Any, order: Any) -> Any:
    found = np.zeros_like(flags)
    np.put_along_axis(found, order, flags, 1)
    return found


def _top_k(scores: Any, kept: Any, k: Any, ties: str) -> Any:
    order = _order(scores, ties)
    there = np.take_along_axis(kept, order, 1)
    off = (k <= 0) | (k >= scores.shape[1])
    stay = there & ((np.cumsum(there, 1) <= k[:, None]) | off[:, None])
    return _with_ties(scores, _unsorted(stay, order), kept, ties)


def _with_ties(scores: Any, stay: Any, kept: Any, ties: str) -> Any:
    if ties != "all":
        return stay
    least = np.where(stay, scores, np.inf).min(1, keepdims=True)
    return kept & (scores >= least)


def _top_p(scores: Any, a: Any, kept: Any, share: Any, ties: str, exceeds: bool) -> Any:
    """Return which tokens stay, and in which rows rounding may decide that."""
    order = _order(scores, ties)
    there = np.take_along_axis(kept, order, 1)
    sorted_a = np.take_along_axis(a, order, 1)
    weights = np.where(there, np.exp(sorted_a), 0.0)
    cumulative = np.cumsum(weights, 1)
    cumulative /= cumulative[:, -1:]
    reached = cumulative > share[:, None] if exceeds else cumulative >= share[:, None]
    reached &= there
    # A share of 1 is met by the last token, however the quotient of equal sums is rounded.
    last = np.where(reached.any(1), reached.argmax(1), scores.shape[1] - 1)
    stay = there & (np.arange(scores.shape[1]) <= last[:, None])
    mass = weights / weights.sum(1, keepdims=True)
    e = U * (3 * np.abs(np.maximum(sorted_a, -200)) + 4)
    reach = 2 * ((mass * e).sum(1) + U * levels(scores.shape[1])) + 2 * U
    ends = there
    if ties == "all":
        following = np.take_along_axis(scores, order, 1)
        ends = there & np.append(following[:, 1:] < following[:, :-1], there[:, :1], 1)
    near = (ends & (np.abs(cumulative - share[:, None]) <= reach[:, None])).any(1)
    return _with_ties(scores, _unsorted(stay, order), kept, ties), near
