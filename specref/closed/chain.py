"""Closed laws of the rules that verify chains.

Most of them decide position by position. Then it is enough to say, for one position, with what mass
a token is accepted and with what mass it is the correction; `_by_position` does the rest. Rules
that look at whole beginnings of a draft are given by joint masses, `_beginnings`.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from specref.dist import Law, Number, top
from specref.draft import Shape, depth, widths_of
from specref.model import Context, Model

Text: TypeAlias = tuple[int, ...]

Position: TypeAlias = Callable[[Law, Law, int], tuple[Law, Law]]
"""From (p, q, number of siblings) to (accepted, corrected): masses by token, together p."""


def token(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Accept min(p, q), correct with (p - q)+ (Leviathan et al. 2023, appendix A.1)."""

    def position(p: Law, q: Law, width: int) -> tuple[Law, Law]:
        pairs = list(zip(p, q, strict=True))
        return tuple(min(a, b) for a, b in pairs), tuple(max(a - b, 0) for a, b in pairs)

    return _by_position(position, p, q, shape, context)


def one_hot(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Accept p at the likeliest token of q, correct with p elsewhere."""
    return _by_position(_looked_up, p, q, shape, context)


def greedy(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Emit the likeliest token of p; it is accepted if it is among the likeliest of q."""

    def likeliest(text: Context) -> Law:
        row = p(text)
        return tuple(w * 0 + (x in top(row, 1)) for x, w in enumerate(row))

    return _by_position(_looked_up, likeliest, q, shape, context)


def _looked_up(p: Law, q: Law, width: int) -> tuple[Law, Law]:
    """Accept p at the likeliest tokens of q, correct with p elsewhere."""
    drafted = top(q, width)
    return _parts(p, [x in drafted for x in range(len(p))])


def match(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Accept x with p(x) times the chance that x is among the drafts, one or several."""

    def position(p: Law, q: Law, width: int) -> tuple[Law, Law]:
        return _parts(p, [1 - (1 - b) ** width for b in q])

    return _by_position(position, p, q, shape, context)


def one_shot(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Accept with 1/M, M = max p/q, and else correct; both with law p (Leviathan et al., A.2)."""

    def position(p: Law, q: Law, width: int) -> tuple[Law, Law]:
        pairs = [(a, b) for a, b in zip(p, q, strict=True) if a > 0]
        finite = all(b > 0 for _, b in pairs)
        return _parts(p, [1 / max(a / b for a, b in pairs) if finite else 0] * len(p))

    return _by_position(position, p, q, shape, context)


def _parts(p: Law, shares: list[Number]) -> tuple[Law, Law]:
    """Accept a share of p at each token, correct with the rest."""
    pairs = list(zip(p, shares, strict=True))
    return tuple(a * share for a, share in pairs), tuple(a * (1 - share) for a, share in pairs)


def coupled(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Accept 1 / sum_j max(p_j/p_i, q_j/q_i) (Daliri et al. 2024), correct with `_parted`."""

    def position(p: Law, q: Law, width: int) -> tuple[Law, Law]:
        return tuple(_met(p, q, i) for i in range(len(p))), _parted(p, q)

    return _by_position(position, p, q, shape, context)


def _met(p: Law, q: Law, i: int) -> Number:
    """Return the mass with which token i wins for the target and for the drafter."""
    if p[i] == 0 or q[i] == 0:
        return p[i] * 0
    return 1 / sum(max(a / p[i], b / q[i]) for a, b in zip(p, q, strict=True))


def _parted(p: Law, q: Law) -> Law:
    """Return the mass with which each token wins for the target and another for the drafter.

    Say the drafter's winner x comes at time a = E_x/q_x, and the target's at time T a. T > t says
    that every clock E_k exceeds both q_k a and p_k t a; so, with C(t) = sum_k max(q_k, t p_k), x
    wins and T > t with density q_x exp(-a C(t)) in a, with mass q_x / C(t), for all t < q_x/p_x,
    where at the latest the clock of x itself ends the target's race. So between neighbouring ratios
    t < t' the target's race ends with mass q_x (1/C(t) - 1/C(t')), for every x whose ratio is still
    to come. It is won by a token k with ratio up to t, in proportion to p_k: for the others the
    bound q_k a is still the later.
    """
    ratios = {k: b / a for k, (a, b) in enumerate(zip(p, q, strict=True)) if a > 0}
    steps = sorted(set(ratios.values()))
    left = [1 / sum(max(b, t * a) for a, b in zip(p, q, strict=True)) for t in steps]
    left.append(left[0] * 0)  # tokens with p = 0 have no ratio, and wait for ever
    out = [a * 0 for a in p]
    for t, now, then in zip(steps, left, left[1:], strict=False):
        running = [k for k, ratio in ratios.items() if ratio <= t]
        waiting = sum(b for k, b in enumerate(q) if k not in running)
        for y in running:
            out[y] += waiting * (now - then) * p[y] / sum(p[k] for k in running)
    return tuple(out)


def block(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Emit x^l y with mass (R(x^l) p(y) - Q(x^l y))+, behind all gamma tokens R(x^gamma) p(y).

    R(x^l) is the least of the masses Q(x^j) P(x_{j+1} ... x_l | x^j), 0 <= j <= l: with it x^l is
    drafted, and accepted as a part or the whole. It is Sun et al.'s weight, the least product of
    ratios p/q over the ends of x^l, times Q(x^l).
    """
    gamma, out = depth(shape), {}
    for text, masses in _beginnings(p, q, gamma, context):
        here = (*context, *text)
        for y, (a, b) in enumerate(zip(p(here), q(here), strict=True)):
            wanted = min(masses) * a
            out[(*text, y)] = wanted if len(text) == gamma else max(wanted - masses[-1] * b, 0)
    return _possible(out)


def hierarchical(p: Model, q: Model, shape: Shape, context: Context) -> dict[Text, Number]:
    """Emit x^gamma with mass (P - Q)+, x^gamma and a token y behind it with mass min(P, Q) p(y)."""
    gamma, out = depth(shape), {}
    for text, masses in _beginnings(p, q, gamma, context):
        if len(text) == gamma:
            target, draft = masses[0], masses[-1]
            out[text] = max(target - draft, 0)
            for y, a in enumerate(p((*context, *text))):
                out[(*text, y)] = min(target, draft) * a
    return _possible(out)


def _beginnings(
    p: Model, q: Model, gamma: int, context: Context
) -> Iterator[tuple[Text, tuple[Number, ...]]]:
    """Yield every text x^l of l <= gamma tokens with its masses Q(x^j) P(x_{j+1} ... x_l | x^j).

    They stand in the order of j, so the first is the target's own, P(x^l), and the last is the
    drafter's, Q(x^l). Texts that the target cannot emit are left out.
    """
    todo: list[tuple[Text, tuple[Number, ...]]] = [((), (1,))]
    for text, masses in todo:
        yield text, masses
        if len(text) < gamma:
            here = (*context, *text)
            for x, (a, b) in enumerate(zip(p(here), q(here), strict=True)):
                if a > 0:
                    todo.append(((*text, x), (*(mass * a for mass in masses), masses[-1] * b)))


def _by_position(
    position: Position, p: Model, q: Model, shape: Shape, context: Context
) -> dict[Text, Number]:
    """Return the law of a rule that decides at each position as if it were the only one."""
    out: dict[Text, Number] = {}
    reached: dict[Text, Number] = {(): 1}
    for width in widths_of(shape):
        deeper: dict[Text, Number] = {}
        for text, mass in reached.items():
            here = (*context, *text)
            accepted, corrected = position(p(here), q(here), width)
            for x, (kept, put) in enumerate(zip(accepted, corrected, strict=True)):
                deeper[(*text, x)] = mass * kept
                out[(*text, x)] = mass * put
        reached = _possible(deeper)
    for text, mass in reached.items():
        for y, a in enumerate(p((*context, *text))):
            out[(*text, y)] = mass * a
    return _possible(out)


def _possible(masses: dict[Text, Number]) -> dict[Text, Number]:
    """Leave out texts of mass 0."""
    return {text: mass for text, mass in masses.items() if mass != 0}
