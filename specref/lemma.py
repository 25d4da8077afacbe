"""The master lemma: one contract, of which nearly every acceptance rule is an instance.

*Verify node u with weight r*: accept with probability r, and then let the output continue exactly
as the target would after u. A verifier that keeps this contract at every node can be asked for any
weight by whoever stands above it, so rules are built from it by saying three things:

    what is known of the drafted siblings    the law of each one given those before it (`OneByOne`),
                                             or the law of all of them, and a plan (`Planned`)
    when an accepted child is final          at once (`immediate`), or when something below it has
                                             been accepted too (`deferred`)

At the root the weight is 1, so something is always accepted, and the text is the target's own:
that is losslessness. The continuation after an accepted node is the untouched target, so rounds
compose.

Throughout, what the target still wants at a node is one row, `owed`: the weight of the node times
the current law of the next token. It starts as r p, and shrinks to what refused siblings have left
of it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Protocol, TypeAlias

from specref.choice import Choose, law
from specref.decode import complete, target_law
from specref.dist import Law, Number, as_fraction, exact_number, normalise, top, tv, without
from specref.draft import (
    Drafter,
    Node,
    Shape,
    as_is,
    depth,
    hub_pairs,
    top_and_one,
    uniform,
    with_replacement,
    without_replacement,
)
from specref.model import Context, Model, exact_pair
from specref.rules.importance import larger_ratio
from specref.rules.k_seq import smallest_rho
from specref.rules.one_shot import acceptance
from specref.transport import Drafts
from specref.transport import plan as optimal_plan

Text: TypeAlias = tuple[int, ...]


class Verifier(Protocol):
    """A program that verifies a node with a weight: what it emits below the node, or None."""

    def __call__(self, node: Node, weight: Number, choose: Choose) -> Text | None: ...


Commit: TypeAlias = Callable[[Verifier, Node, Number, Choose], Text | None]
"""How a child is tried with a weight: `immediate` or `deferred`."""

Siblings: TypeAlias = Callable[[Node, int], Law]
"""From (node, i) to the law of its i-th child, given the children drafted before it."""

Pi: TypeAlias = Mapping[Drafts, Mapping[int, Number]]
"""pi[t][x]: how much of the mass of the tuple t is emitted through its member x."""

Plan: TypeAlias = Callable[[Mapping[Drafts, Number], Law, Law], Pi]
"""From (law mu of the tuple of siblings, q, owed) to a plan."""


def immediate(verifier: Verifier, child: Node, weight: Number, choose: Choose) -> Text | None:
    """Toss the coin of the child; once it has moved there, a round never steps back."""
    return verifier(child, 1, choose) if choose.flip(weight, at=child) else None


def deferred(verifier: Verifier, child: Node, weight: Number, choose: Choose) -> Text | None:
    """Hand the weight down; coins are tossed where no child is left to try, deepest node first."""
    return verifier(child, weight, choose)


@dataclass(frozen=True)
class OneByOne:
    """Verify a node whose children were drafted one after another, each from a known law.

    Why it keeps the contract. Let s be the law of the next child, and a(x) = min(1, owed(x)/s(x)).

        (i)   s(x) a(x) = min(s(x), owed(x))         what the child x receives
        (ii)  1 - sum_x min(s, owed) = 1 - r + S     the chance that it is refused, S = sum(left)
        (iii) min(s, owed) + left = owed             left = (owed - s)+

    By (iii) the siblings to come have to emit `left` in all, and by (ii) they get to do so with
    probability 1 - r + S, so they owe left / (1 - r + S): the same contract with one child less. At
    the last, the node accepts itself with the weight that is left. A weight of 1 stays 1.

    It needs that (a) s is the true law of the token, given all that was drafted before; (b) the
    order of the siblings is the order drawn; (c) whether a node exists does not depend on its own
    or later tokens; (d) no two coins, and no coin and terminal draw, are one.

    Args:
        siblings: the law of the next child.
        commit: `immediate` or `deferred`.
    """

    siblings: Siblings
    commit: Commit

    def __call__(self, node: Node, weight: Number, choose: Choose) -> Text | None:
        """Emit the accepted tokens below `node` and one more, or None.

        Args:
            node: with everything drafted below it.
            weight: the probability of accepting it, over drafts and coins.
            choose: the reading; the coin of a drafted node is addressed by it.
        """
        owed = times(weight, node.p)
        for i, (x, child) in enumerate(node.children):
            s = self.siblings(node, i)
            below = self.commit(self, child, min(1, owed[x] / s[x]), choose)
            if below is not None:
                return (x, *below)
            owed = refused(owed, tuple(max(w - c, 0) for w, c in zip(owed, s, strict=True)))
        return here(node, owed, choose)


@dataclass(frozen=True)
class Planned:
    """Verify a node whose children were drafted as a tuple of known law mu, by a plan.

    A plan says how much of the mass of each tuple t is emitted through its member x: pi(t, x), with
    sum_x pi(t, x) <= mu(t) and sum_t pi(t, x) <= owed(x). Given t, its member x has to be accepted
    with the share pi(t, x) / mu(t), so it is tried with this share over what the members tried
    before it have left of 1. Over all tuples that emits sum_t pi(t, x). The rest of what is owed is
    accepted at the node itself, in the same way whatever t was.

    It needs (d) of `OneByOne`, and that mu is the true law of the tuple. So the number of siblings
    must not depend on any of them, where `OneByOne` lets it depend on those before; but their order
    does not matter to the argument.

    Args:
        plan: from (mu, q, owed) to pi; of equal siblings the first takes the share.
        draft: the drafter, which says what mu is.
        commit: `immediate` or `deferred`.
    """

    plan: Plan
    draft: Drafter
    commit: Commit

    def __call__(self, node: Node, weight: Number, choose: Choose) -> Text | None:
        """Emit the accepted tokens below `node` and one more, or None; as `OneByOne` does."""
        owed = times(weight, node.p)
        drafted = tuple(x for x, _ in node.children)
        shares, left = divided(self.plan, self.draft, node.q, owed, len(drafted))
        unused: Number = 1
        for share, (x, child) in zip(shares[drafted], node.children, strict=True):
            below = self.commit(self, child, share / unused if share else share, choose)
            if below is not None:
                return (x, *below)
            unused = unused - share
        return here(node, refused(owed, left) if drafted else owed, choose)


@lru_cache(maxsize=4096)
def divided(plan: Plan, draft: Drafter, q: Law, owed: Law, k: int) -> tuple[dict[Drafts, Law], Law]:
    """Return the share of each member by tuple of `k` siblings, and what is owed besides."""

    def q_alone(context: Context) -> Law:
        return q

    def siblings(choose: Choose) -> Drafts:
        return tuple(x for x, _ in draft(q_alone, q_alone, (k,), choose, ()).children)

    if k == 0:
        return {(): ()}, owed
    mu = law(siblings)
    left, shares = list(owed), {}
    for t, row in plan(mu, q, owed).items():
        shares[t] = tuple(row[x] / mu[t] if x not in t[:i] else 0 for i, x in enumerate(t))
        for x, mass in row.items():
            left[x] = left[x] - mass
    return shares, tuple(left)


def times(weight: Number, row: Iterable[Number]) -> Law:
    """Return every entry of `row` times `weight`."""
    return tuple(weight * w for w in row)


def refused(owed: Law, left: Law) -> Law:
    """Return what a node owes after a refusal that leaves `left` of what it owed.

    A refusal has probability 1 - sum(owed) + sum(left). Given it, `left` must still be emitted in
    all, so it weighs more by that factor. The two sums can only be 1 and 0 at once when nothing is
    ever refused.
    """
    chance = sum(left) + (1 - sum(owed))
    return tuple(w / chance for w in left)


def here(node: Node, owed: Law, choose: Choose) -> Text | None:
    """Accept the node itself with the weight that is left, and draw the next token."""
    weight = sum(owed)
    if weight < 1 and not choose.flip(weight, at=node):
        return None
    return (choose(normalise(owed)),)


def drawn_with(node: Node, i: int) -> Law:
    """Return the law of the i-th child when siblings are drawn with replacement."""
    return node.q


def drawn_without(node: Node, i: int) -> Law:
    """Return the law of the i-th child when siblings are drawn without replacement."""
    q = node.q
    for x, _ in node.children[:i]:
        q = without(q, x)
    return q


def certain(node: Node, i: int) -> Law:
    """Return the law of a child that is certain: mass 1 on its token.

    Given the draft, every draft is certain, so this is a true law of any draft whatever; it is just
    not the one that accepts most.
    """
    x, _ = node.children[i]
    return tuple(w * 0 + (y == x) for y, w in enumerate(node.p))


def drawn_from_each(node: Node, i: int) -> Law:
    """Return the law of the i-th child when each has a draft model of its own (`one_from_each`)."""
    return (as_is, uniform)[i](node.q)


def most(mu: Mapping[Drafts, Number], q: Law, owed: Law) -> Pi:
    """Plan by optimal transport: no plan emits more through drafted tokens."""
    return optimal_plan(mu, owed)


def one_selected(mu: Mapping[Drafts, Number], q: Law, owed: Law) -> Pi:
    """Plan as importance sampling does: `token` for one member, selected by p/q."""
    chosen = {t: larger_ratio(owed, q, t) for t in mu}
    total = [sum(mass * chosen[t].get(x, 0) for t, mass in mu.items()) for x in range(len(q))]

    def kept(t: Drafts, x: int) -> Number:
        part = mu[t] * chosen[t][x]
        return part * min(1, owed[x] / total[x]) if part else part

    return {t: {x: kept(t, x) for x in t} for t in mu}


def threshold_over_rho(mu: Mapping[Drafts, Number], q: Law, owed: Law) -> Pi:
    """Plan as K-SEQ does: each member in turn takes min(1, owed / (rho q)) of what is left."""
    masses: dict[Drafts, dict[int, Number]] = {}
    for t, left in mu.items():
        rho, masses[t] = smallest_rho(owed, q, len(t)), dict.fromkeys(t, 0)
        for x in t:
            taken = left * min(1, owed[x] / (rho * q[x]))
            masses[t][x] += taken
            left = left - taken
    return masses


def one_trial(mu: Mapping[Drafts, Number], q: Law, owed: Law) -> Pi:
    """Plan as one-shot rejection sampling does: the same part of what is owed to every token."""
    weight = sum(owed)
    return {
        (x,): {x: mass * weight * acceptance(owed, q, x) if weight else weight}
        for (x,), mass in mu.items()
    }


def hub_last(mu: Mapping[Drafts, Number], q: Law, owed: Law) -> Pi:
    """Plan as SpecHub does: pairs serve their other member first, and the hub from what is left."""
    (hub,) = top(q, 1)
    wanted, left = list(owed), dict(mu)
    masses: dict[Drafts, dict[int, Number]] = {t: {} for t in mu}

    def serve(t: Drafts, x: int, mass: Number) -> None:
        masses[t][x] = mass
        wanted[x], left[t] = wanted[x] - mass, left[t] - mass

    hub_second = [t for t in mu if t[1:] == (hub,)]
    hub_first = [t for t in mu if len(t) == 2 and t[0] == hub]
    for t in (*(t for t in mu if len(t) == 1), *hub_second, *hub_first):
        x = t[-1] if t[-1] != hub or len(t) == 1 else t[0]
        serve(t, x, min(left[t], wanted[x]))
    for group in (hub_first, hub_second):
        pool = sum(left[t] for t in group)
        part = min(1, wanted[hub] / pool) if pool else 0
        for t in group:
            serve(t, hub, left[t] * part)
    return masses


def drawn_first(mu: Mapping[Drafts, Number], q: Law, owed: Law) -> Pi:
    """Plan as greedy multi-draft does: the drawn member, which is last, then the certain ones."""
    drawn = {t: min(mass, owed[t[-1]]) for t, mass in mu.items()}
    refusal = 1 - sum(drawn.values())
    masses: dict[Drafts, dict[int, Number]] = {}
    for t, mass in mu.items():
        part = (mass - drawn[t]) / refusal if refusal else refusal
        masses[t] = {**{x: part * owed[x] for x in t[:-1]}, t[-1]: drawn[t]}
    return masses


INSTANCES: dict[str, Verifier] = {
    "token": OneByOne(drawn_with, immediate),
    "one_hot": OneByOne(certain, immediate),
    "match": OneByOne(certain, immediate),
    "greedy": OneByOne(certain, immediate),
    "block": OneByOne(drawn_with, deferred),
    "one_shot": Planned(one_trial, with_replacement, immediate),
    "rrs_with": OneByOne(drawn_with, immediate),
    "rrs_without": OneByOne(drawn_without, immediate),
    "target_only": OneByOne(certain, immediate),
    "heterogeneous": OneByOne(drawn_from_each, immediate),
    "traversal": OneByOne(drawn_without, deferred),
    "traversal_with": OneByOne(drawn_with, deferred),
    "k_seq": Planned(threshold_over_rho, with_replacement, immediate),
    "spec_hub": Planned(hub_last, hub_pairs, immediate),
    "importance": Planned(one_selected, with_replacement, immediate),
    "greedy_multi": Planned(drawn_first, top_and_one, immediate),
    "transport": Planned(most, with_replacement, immediate),
    "nested_transport": Planned(most, without_replacement, deferred),
}
"""The form of each rule that is an instance; with weight 1 it is the rule, draft by draft, in law.

`match`, `target_only` and `greedy` are written as draws from the target, not as coins for drafted
tokens; but what they emit on a draft has the law of the form for certain drafts.
"""

OUTSIDE: dict[str, str] = {
    "coupled": "it couples the target's draw with the drafted token: what it emits after a refusal "
    "depends on the refused token, and given the token it is not the target's",
    "hierarchical": "it goes on behind a correction, with other targets than p: no node before the "
    "last keeps a contract, and it accepts more than any rule that leaves later targets alone",
}
"""Lossless rules that are no instances, and why. Lossy rules keep no contract."""


def contract(
    verifier: Verifier,
    p: Model,
    q: Model,
    *,
    shape: Shape,
    weight: Number,
    draft: Drafter,
    context: Context = (),
) -> Fraction:
    """Return how far a verifier is from its contract at the node after `context`: 0 iff it holds.

    All drafts, and all coins on each, are enumerated; the target continues what is emitted; and
    the mass of *every* continuation is compared with `weight` times the target's, that of a
    refusal with `1 - weight`. The result is the total variation between the two, exactly.

    Args:
        verifier: an entry of `INSTANCES`, or any other program.
        p, q: target and draft, callables from a context to a law of exact numbers.
        shape: depth of a chain, or widths of a tree.
        weight: in [0, 1].
        draft: the drafter.
        context: the text before the node.

    Raises:
        ValueError: a weight outside [0, 1], or models that do not return laws over the same tokens.

    >>> from specref.draft import with_replacement, without_replacement
    >>> from specref.model import Table
    >>> p = Table({(): ["1/2", "3/10", "1/5"]}, order=0)
    >>> q = Table({(): ["1/5", "1/5", "3/5"]}, order=0)
    >>> half = {"shape": (2,), "weight": Fraction(1, 2)}
    >>> contract(INSTANCES["rrs_with"], p, q, draft=with_replacement, **half)
    Fraction(0, 1)
    >>> contract(INSTANCES["rrs_with"], p, q, draft=without_replacement, **half)
    Fraction(61, 880)
    """
    r = exact_number(weight, "weight")
    if not 0 <= r <= 1:
        raise ValueError(f"weight = {r} is outside 0 <= weight <= 1; it is a probability")
    p, q = exact_pair(p, q, context)
    emitted: defaultdict[Text, Number] = defaultdict(int)
    refusal: Number = 0
    for root, mass in law(lambda choose: draft(p, q, shape, choose, context)).items():
        for text, chance in law(partial(verifier, root, r)).items():
            if text is None:
                refusal += mass * chance
            else:
                emitted[text] += mass * chance
    length = depth(shape) + 1
    done = complete(emitted, p, length, context)
    due = {text: r * mass for text, mass in target_law(p, length, context).items()}
    return as_fraction(tv({None: refusal, **done}, {None: 1 - r, **due}))
