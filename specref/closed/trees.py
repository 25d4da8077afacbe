"""Laws of the tree rules: recursions over contexts that average over drafts and coins as they go.

A drafted tree has many nodes, but what is drafted and decided below one sibling is independent of
the others, given its token and the weight with which it is tried. So no tree is ever built: a
recursion over context, siblings refused so far, weight and target gives the law of the emitted
text. What is emitted behind a node of weight r has mass r in all.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

from specref.dist import Law, Number, normalise, top
from specref.draft import Shape, widths_of
from specref.model import Context, Model
from specref.transport import distinct, plan

Text: TypeAlias = tuple[int, ...]
Mass: TypeAlias = dict[Text, Number]

Next: TypeAlias = Callable[[Law, Text], Law | None]
"""From q and the siblings before it to the law of the next sibling; None if there is none."""


def rrs_with(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of recursive rejection, siblings independent (SpecInfer, Alg. 2)."""
    return _in_turn(p, q, shape, context, lambda law, before: law, whole_branches=False)


def rrs_without(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of recursive rejection, siblings distinct (RSD; Sequoia, Alg. 2)."""
    return _in_turn(p, q, shape, context, _others, whole_branches=False)


def heterogeneous(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of recursive rejection, the first sibling from q, the second uniform.

    Raises:
        ValueError: a third sibling.
    """
    if max(widths_of(shape), default=0) > 2:
        raise ValueError(f"shape = {shape!r} has a third sibling; pass widths 1 and 2")
    return _in_turn(p, q, shape, context, _then_uniform, whole_branches=False)


def traversal(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of traversal verification, siblings distinct (Weng et al. 2025)."""
    return _in_turn(p, q, shape, context, _others, whole_branches=True)


def traversal_with(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of traversal verification, siblings independent (Weng et al. 2025)."""
    return _in_turn(p, q, shape, context, lambda law, before: law, whole_branches=True)


def _others(q: Law, before: Text) -> Law | None:
    left = sum(w for x, w in enumerate(q) if x not in before)
    return tuple(w * (x not in before) / left for x, w in enumerate(q)) if left else None


def _then_uniform(q: Law, before: Text) -> Law:
    return normalise([w * 0 + (w > 0) for w in q]) if before else q


def _in_turn(
    p: Model, q: Model, shape: Shape, context: Context, next_law: Next, whole_branches: bool
) -> Mass:
    """Return the law of a rule that tries siblings in turn, each held to `next_law`.

    A branch that is to be accepted with probability a is given the weight a, if the rule looks at
    whole branches. If not, it is given the weight 1 with probability a.
    """
    widths = widths_of(shape)

    def behind(text: Context, level: int, r: Number) -> Mass:
        return refused(text, level, (), r, p(text))

    def refused(text: Context, level: int, before: Text, r: Number, b: Law) -> Mass:
        """Return the law behind `text` once the siblings `before` have left weight r, target b."""
        more = level < len(widths) and len(before) < widths[level]
        s = next_law(q(text), before) if more else None
        if s is None:
            return {(y,): r * mass for y, mass in enumerate(b) if r * mass > 0}
        wanted = tuple(max(r * x - y, 0) for x, y in zip(b, s, strict=True))
        spare = sum(wanted)
        out: defaultdict[Text, Number] = defaultdict(int)
        for x, drafted in enumerate(s):
            a = min(drafted, r * b[x]) / drafted if drafted else 0
            if a > 0:
                weight, chance = (a, 1) if whole_branches else (1, a)
                for tail, mass in behind((*text, x), level + 1, weight).items():
                    out[x, *tail] += drafted * chance * mass
            if drafted * (1 - a) > 0:
                new_b = normalise(wanted) if spare > 0 else b
                rest = refused(text, level, (*before, x), spare / (spare + 1 - r), new_b)
                for tail, mass in rest.items():
                    out[tail] += drafted * (1 - a) * mass
        return dict(out)

    return behind(tuple(context), 0, 1)


def nested_transport(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of nested transport, siblings distinct: each member of a tuple has its share.

    It depends on the plan, so the plan is the one thing that it has in common with the rule.
    """
    widths = widths_of(shape)

    def behind(text: Context, level: int, r: Number) -> Mass:
        wanted = [r * mass for mass in p(text)]
        out: defaultdict[Text, Number] = defaultdict(int)
        if level < len(widths):
            mu = distinct(q(text), widths[level])
            for drawn, given in plan(mu, tuple(wanted)).items():
                left = mu[drawn]  # mass with which none of the members has been accepted yet
                for x in drawn:
                    if given[x] > 0:
                        for tail, mass in behind((*text, x), level + 1, given[x] / left).items():
                            out[x, *tail] += left * mass
                        left -= given[x]
                        wanted[x] -= given[x]
        for y, mass in enumerate(wanted):
            if mass > 0:
                out[(y,)] += mass
        return dict(out)

    return behind(tuple(context), 0, 1)


def target_only(p: Model, q: Model, shape: Shape, context: Context) -> Mass:
    """Return the law of target-only verification on trees of q's likeliest tokens.

    The emitted text is the target's own, up to the first token that is not in the tree.
    """
    widths = widths_of(shape)

    def behind(text: Context, level: int) -> Mass:
        drafted = top(q(text), widths[level]) if level < len(widths) else ()
        out: Mass = {}
        for y, chance in enumerate(p(text)):
            if chance > 0:
                tails = behind((*text, y), level + 1) if y in drafted else {(): 1}
                out |= {(y, *tail): chance * mass for tail, mass in tails.items()}
        return out

    return behind(tuple(context), 0)
