"""Output laws of the lossy rules, at their registered parameters or at any others.

On chains the masses of acceptance and correction are formulas, and prefixes a recursion. Trees of
likeliest tokens are certain, so the recursion over the text alone reaches every node.
"""

import math
from fractions import Fraction

from specref.dist import Law, Number, as_fraction, normalise, top
from specref.draft import Shape, widths_of
from specref.model import Context, Model

Text = tuple[int, ...]


def lenient(
    p: Model, q: Model, shape: Shape, context: Context, lenience: Number = Fraction(1, 2)
) -> dict[Text, Number]:
    """Return the law of `lenient`: min(p/l, q) is kept, the rest spread over (p - q)+."""
    return _chain(p, q, len(widths_of(shape)), context, lenience, 1)


def lenient_scaled(
    p: Model, q: Model, shape: Shape, context: Context, lenience: Number = Fraction(1, 2)
) -> dict[Text, Number]:
    """Return the law of `lenient_scaled`: min(p/l, q) is kept, the rest spread over (p - l q)+."""
    return _chain(p, q, len(widths_of(shape)), context, lenience, lenience)


def ensemble(
    p: Model, q: Model, shape: Shape, context: Context, w: Number = Fraction(1, 2)
) -> dict[Text, Number]:
    """Return the law of `ensemble`: with r = w p + (1 - w) q, min(r, q) is kept, then (r - q)+."""

    def r(text: Context) -> Law:
        return tuple(w * a + (1 - w) * b for a, b in zip(p(text), q(text), strict=True))

    return _chain(r, q, len(widths_of(shape)), context, 1, 1, bonus=p)


def _chain(
    target: Model,
    q: Model,
    depth: int,
    context: Context,
    lenience: Number,
    scale: Number,
    bonus: Model | None = None,
) -> dict[Text, Number]:
    """Keep min(target/lenience, q), spread the rest over (target - scale q)+, end with `bonus`.

    The bonus is the target's if it is left out.
    """
    if depth == 0:
        last = (bonus or target)(context)
        return {(x,): mass for x, mass in enumerate(last) if mass > 0}
    a, b = target(context), q(context)
    kept = [min(v / lenience, w) for v, w in zip(a, b, strict=True)]
    short = [max(v - scale * w, 0) for v, w in zip(a, b, strict=True)]
    refused = 1 - sum(kept)
    out: dict[Text, Number] = {}
    for x, mass in enumerate(kept):
        if refused > 0 and short[x] > 0:
            out[(x,)] = refused * short[x] / sum(short)
        if mass > 0:
            longer = (*context, x)
            below = _chain(target, q, depth - 1, longer, lenience, scale, bonus)
            for text, rest in below.items():
                out[(x, *text)] = mass * rest
    return out


def threshold(
    p: Model,
    q: Model,
    shape: Shape,
    context: Context,
    single: Number = Fraction(3, 4),
    acc: Number = Fraction(4, 5),
) -> dict[Text, Number]:
    """Return the law of `threshold` on trees of the likeliest tokens of q.

    After i siblings with masses p_1, ..., p_i all are refused with probability
    (1 - (p_1 + ... + p_i) / acc)+, or 0 as soon as one p_j reaches `single`.
    """

    def below(text: Context, widths: tuple[int, ...]) -> dict[Text, Number]:
        row = p(text)
        if not widths:
            return {(x,): mass for x, mass in enumerate(row) if mass > 0}
        tried = top(q(text), widths[0])
        out: dict[Text, Number] = {}
        refused: Number = 1
        for i, x in enumerate(tried, start=1):
            masses = [row[y] for y in tried[:i]]
            still = 0 if max(masses) >= single else max(0, 1 - sum(masses) / acc)
            if refused > still:
                for rest, mass in below((*text, x), widths[1:]).items():
                    out[(x, *rest)] = (refused - still) * mass
            refused = still
        if refused > 0:
            others = normalise(0 if x in tried else w for x, w in enumerate(row))
            out |= {(x,): refused * mass for x, mass in enumerate(others) if mass > 0}
        return out

    return below(tuple(context), widths_of(shape))


def typical(
    p: Model,
    q: Model,
    shape: Shape,
    context: Context,
    epsilon: Number = Fraction(9, 100),
    delta: Number = Fraction(3, 10),
    inside: Number = 0,
) -> dict[Text, Number]:
    """Return the law of `typical` on trees of the likeliest tokens of q: a single text.

    With p_i = a_i / N, p(x) > delta exp(-H) says (p(x)/delta)^N > prod (p_i + inside)^a_i, which is
    compared as it stands: fit for laws with small denominators.
    """

    def passes(x: int, row: Law) -> bool:
        exact = [as_fraction(w) for w in row]
        common = math.lcm(*(w.denominator for w in exact))
        power = math.prod((w + inside) ** int(w * common) for w in exact)
        return bool(exact[x] > epsilon or (exact[x] / delta) ** common > power)

    def best(text: Context, widths: tuple[int, ...]) -> tuple[int, Number, Text]:
        """Return length, likelihood and tokens of the path that wins below a node."""
        row = p(text)
        found: tuple[int, Number, Text] = (0, 1, ())
        for x in top(q(text), widths[0]) if widths else ():
            if passes(x, row):
                length, likelihood, path = best((*text, x), widths[1:])
                if (length + 1, row[x] * likelihood) > found[:2]:
                    found = (length + 1, row[x] * likelihood, (x, *path))
        return found

    *_, path = best(tuple(context), widths_of(shape))
    return {path + top(p((*context, *path)), 1): Fraction(1)}
