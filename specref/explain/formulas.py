"""Formulas for what was read off a rule, each tried by its value.

No formula is tied to a rule. One is named for a coin if it gives the chance that was read there,
and also does so under other laws, and with any one drafted token exchanged for another: a formula
that is right by coincidence, as many are where the chance is 1, is not named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log
from typing import NamedTuple, TypeAlias

from specref.choice import Step
from specref.dist import Law, Number, normalise, rational, top, without
from specref.draft import Drafter, uniform, with_replacement, without_replacement
from specref.explain.given import Draft, accepted, coins, leaves
from specref.rules.importance import larger_ratio, selected
from specref.rules.k_seq import PARTS, smallest_rho
from specref.transport import Siblings, distinct, independent, plan

DRAWN: dict[Drafter, Siblings] = {with_replacement: independent, without_replacement: distinct}
"""The law of siblings, by drafter."""


@dataclass(frozen=True)
class Coin:
    """The coin of a drafted node.

    Attributes:
        draft: the draft.
        index: of the node.
    """

    draft: Draft
    index: int

    @property
    def x(self) -> int:
        """The token of the node."""
        return self.draft.tokens[self.index - 1]

    @property
    def parent(self) -> int:
        """The node at which it was drafted."""
        return self.draft.parents[self.index - 1]

    @property
    def p(self) -> Law:
        """The target's law there."""
        return self.draft.p[self.parent]

    @property
    def q(self) -> Law:
        """The draft law there."""
        return self.draft.q[self.parent]

    @property
    def before(self) -> tuple[int, ...]:
        """The siblings drafted before it."""
        return siblings(self.draft.first(self.index - 1), self.parent)


class Value(NamedTuple):
    """A formula at a coin.

    Attributes:
        chance: its value.
        name: the formula as it is written, such as "min(1, p/q)".
        given: what stands in it, by name.
        where: a sentence on that.
    """

    chance: Number
    name: str
    given: Mapping[str, Number]
    where: str = ""


Formula: TypeAlias = Callable[[Coin], Value | None]


class Named(NamedTuple):
    """A law, how it is written, and a sentence on what stands in it."""

    name: str
    law: Law
    where: str = ""


def siblings(draft: Draft, at: int) -> tuple[int, ...]:
    """Return the tokens drafted at a node."""
    return tuple(x for x, up in zip(draft.tokens, draft.parents, strict=True) if up == at)


def named(coin: Coin) -> tuple[Formula, Value] | None:
    """Return the first formula that gives the chance of a coin, here and on drafts like this one.

    Args:
        coin: one that the rule asks.
    """
    near = [coin, *(Coin(draft, coin.index) for draft in _alike(coin.draft))]
    read = [
        (other, coins(other.draft)[coin.index])
        for other in near
        if coin.index in coins(other.draft)
    ]
    for formula in FORMULAS:
        value = formula(coin)
        if value and all(_gives(formula, other, chance) for other, chance in read):
            return formula, value
    return None


def _gives(formula: Formula, coin: Coin, chance: Number) -> bool:
    value = formula(coin)
    return value is not None and bool(value.chance == chance)


def _alike(draft: Draft) -> Iterator[Draft]:
    """Yield drafts under other laws, with these tokens and with any one of them exchanged.

    The laws have no pattern, and tokens enough that chances seldom are 1. Tokens keep their order
    by q, so whoever drafts the likeliest can have drafted these as well.
    """
    size = max(len(draft.p[0]), TOKENS)
    order = [*top(draft.q[0], size), *range(len(draft.p[0]), size)]
    rank = {x: at for at, x in enumerate(order)}
    q = normalise([rational(2 * (size - rank[x]) + 1) for x in range(size)])
    targets = [[rational(step * (at + 1) % 7 + 1) for at in range(size)] for step in (3, 5)]
    # Near q but for one token, so that what a refusal of that one leaves is spread over the others.
    for less in range(3):
        more = [3 * (at + less + 1) % 7 + 1 for at in range(size)]
        near = [2 * (size - at) + 1 + more[at] for at in range(size)]
        targets.append([rational(1 if at == less else near[at]) for at in range(size)])
    for by_rank in targets:
        p = normalise([by_rank[rank[x]] for x in range(size)])
        rows = len(draft.p)
        other = replace(draft, p=(p,) * rows, q=(q,) * rows)
        yield other
        for index, old in enumerate(draft.tokens, start=1):
            for x in range(size):
                if x != old:
                    yield other.instead(index, x)


def _ratio(a: Number, b: Number, name: str, given: dict[str, Number], where: str = "") -> Value:
    return Value(min(1, a / b), f"min(1, {name})", given, where)


def _p(coin: Coin) -> Value | None:
    p = coin.p[coin.x]
    return None if coin.draft.rule.drafts_from_q else Value(p, "p", {})


def _p_over_q(coin: Coin) -> Value:
    p, q = coin.p[coin.x], coin.q[coin.x]
    return _ratio(p, q, "p/q", {"p": p, "q": q})


def _lenience(coin: Coin) -> Value | None:
    scale = coin.draft.parameters.get("lenience")
    if scale is None:
        return None
    p, q = coin.p[coin.x], coin.q[coin.x]
    return _ratio(p, scale * q, "p/(l q)", {"p": p, "q": q}, f"l = {scale} is the lenience.")


def _mixture(coin: Coin) -> Value | None:
    w = coin.draft.parameters.get("w")
    if w is None:
        return None
    p, q = coin.p[coin.x], coin.q[coin.x]
    r = w * p + (1 - w) * q
    return _ratio(r, q, "r/q", {"p": p, "q": q, "r": r}, "r = w p + (1 - w) q is the mixture.")


def deferred(draft: Draft) -> bool:
    """Whether the coins of a chain are asked from its end."""
    return draft.chain and next(iter(coins(draft)), 1) > 1


def weights(draft: Draft) -> list[Number]:
    """Return P_0, P_1, ...: the weights of the beginnings of a chain."""
    found: list[Number] = [1]
    for at, x in enumerate(draft.tokens):
        found.append(min(1, found[at] * draft.p[at][x] / draft.q[at][x]))
    return found


def _whole(coin: Coin) -> Value | None:
    """Return the weight of a whole chain."""
    if not deferred(coin.draft) or coin.index < len(coin.draft.tokens):
        return None
    before, chance = weights(coin.draft)[-2:]
    given = {f"P_{coin.parent}": before, "p": coin.p[coin.x], "q": coin.q[coin.x]}
    where = (
        f"Here p and q are those of its last token; P_{coin.parent} was made in this way, too, "
        "from P_0 = 1."
        if coin.parent
        else ""
    )
    return Value(chance, f"P_{coin.index} = min(1, P_{coin.parent} p/q)", given, where)


def _beginning(coin: Coin) -> Value | None:
    """Return the chance of a beginning of a chain, when more of it was refused."""
    at, draft = coin.index, coin.draft
    if not deferred(draft) or at == len(draft.tokens):
        return None
    weight = weights(draft)[at]
    spare = sum(max(weight * a - b, 0) for a, b in zip(draft.p[at], draft.q[at], strict=True))
    chance = 1 if weight == 1 else spare / (spare + 1 - weight)
    where = f"Here S is the sum of (P_{at} p - q)+, p and q at the token behind it."
    name = f"h_{at} = S/(S + 1 - P_{at})"
    return Value(chance, name, {f"P_{at}": weight, "S": spare}, where)


def left(draft: Draft, refused: int) -> Law | None:
    """Return what is drawn from when so many siblings are refused and there are no others."""
    shorter = draft.first(refused)
    if not coins(shorter):
        return None
    for leaf in leaves(shorter):
        if leaf.steps[-1].at is None and not any(step.outcome for step in leaf.steps[:-1]):
            return leaf.steps[-1].weights
    return None


def _rest(coin: Coin) -> Law:
    """Return q without the siblings before."""
    rest: Law = coin.q
    for x in coin.before:
        rest = without(rest, x)
    return rest


def _left_over(coin: Coin, name: str, law: Law, where: str) -> Value | None:
    """Return the ratio of what refusals left of p, and a law that the sibling may be drawn from."""
    wanted = left(coin.draft, len(coin.before)) if coin.before else None
    if wanted is None or law[coin.x] == 0:
        return None
    given = {"p'": wanted[coin.x], name: law[coin.x]}
    where = f"Here p' = {row(wanted)} is what the refusals left of p{where}."
    return _ratio(wanted[coin.x], law[coin.x], f"p'/{name}", given, where)


def _left_over_rest(coin: Coin) -> Value | None:
    rest = _rest(coin)
    return _left_over(coin, "q'", rest, f", and q' = {row(rest)} of q")


def _left_over_q(coin: Coin) -> Value | None:
    return _left_over(coin, "q", coin.q, "")


def _left_over_uniform(coin: Coin) -> Value | None:
    other = uniform(coin.q)
    return _left_over(coin, "u", other, f", and u = {row(other)} is uniform on the tokens of q")


def _p_over_rest(coin: Coin) -> Value | None:
    p, rest = coin.p[coin.x], _rest(coin)
    if not coin.before or rest[coin.x] == 0:
        return None
    where = f"Here q' = {row(rest)} is q without {listed(coin.before)}."
    return _ratio(p, rest[coin.x], "p/q'", {"p": p, "q'": rest[coin.x]}, where)


def _one_shot(coin: Coin) -> Value | None:
    p, q = coin.p[coin.x], coin.q[coin.x]
    given = {"p": p, "q": q}
    if coin.before:
        return None
    if any(a > 0 and b == 0 for a, b in zip(coin.p, coin.q, strict=True)):
        where = "M = max p/q has no bound here: p has a token that q never draws."
        return Value(p * 0, "p/(M q)", given, where)
    most = max(a / b for a, b in zip(coin.p, coin.q, strict=True) if a > 0)
    return Value(p / (most * q), "p/(M q)", given, f"M = max p/q = {most}.")


def _k_seq(coin: Coin) -> Value | None:
    count = len(siblings(coin.draft, coin.parent))
    if count < 2:
        return None
    p, q, rho = coin.p[coin.x], coin.q[coin.x], smallest_rho(coin.p, coin.q, count)
    where = (
        f"rho = {rho} is the least multiple of 1/{PARTS} with which {count} tests accept no token "
        "with more than p."
    )
    return _ratio(p, rho * q, "p/(rho q)", {"p": p, "q": q}, where)


def _pair(coin: Coin) -> Value | None:
    if len(coin.before) != 1 or _rest(coin)[coin.x] == 0:
        return None
    p, q = coin.p[coin.x], coin.q[coin.x]
    (other,) = coin.before
    mass = coin.q[other] * _rest(coin)[coin.x]
    where = f"Here m is the chance that {other} and then {coin.x} are drafted."
    return _ratio(max(p - q, 0), mass, "(p - q)+/m", {"p": p, "q": q, "m": mass}, where)


def _hub(coin: Coin) -> Value | None:
    drafted, p, q = siblings(coin.draft, coin.parent), coin.p, coin.q
    if len(drafted) != 2 or coin.x != likeliest(q):
        return None
    second = [w * q[coin.x] for w in without(q, coin.x)]
    wanted = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    others = [x for x in range(len(p)) if x != coin.x]
    unused = sum(max(second[x] - wanted[x], 0) for x in others)
    given = {"p": p[coin.x], "q": q[coin.x], "m": unused}
    where = f"Here m is what the pairs that begin with {coin.x} have unused by then"
    if not coin.before:
        return _ratio(p[coin.x], unused, "p/m", given, f"{where}.") if unused else None
    spare = sum(max(q[x] - p[x], 0) for x in others)
    where += f", and n what the pairs that end with {coin.x} have."
    if not spare:
        return None
    return _ratio(max(p[coin.x] - unused, 0), spare, "(p - m)+/n", given | {"n": spare}, where)


_selected = lru_cache(maxsize=256)(selected)


def _importance(coin: Coin) -> Value | None:
    drafted = siblings(coin.draft, coin.parent)
    if DRAWN.get(coin.draft.rule.draft) is not independent or len(drafted) < 2:
        return None
    p, q = coin.p[coin.x], coin.q[coin.x]
    if not larger_ratio(coin.p, coin.q, drafted)[coin.x]:
        return Value(p * 0, "", {"p": p, "q": q}, "Here another sibling has the largest p/q.")
    law = _selected(coin.p, coin.q, len(drafted), larger_ratio)
    where = (
        "Here it is the sibling with the largest p/q, "
        f"and p_I = {row(law)} is the law of the one that has, over all drafts."
    )
    return _ratio(p, law[coin.x], "p/p_I", {"p": p, "p_I": law[coin.x]}, where)


def _share(coin: Coin) -> Value | None:
    drafted, drawn = siblings(coin.draft, coin.parent), DRAWN.get(coin.draft.rule.draft)
    mu = drawn(coin.q, len(drafted)) if drawn else {}
    if len(drafted) < 2 or drafted not in mu:
        return None
    flow = plan(mu, coin.p)[drafted]
    rest = mu[drafted] - sum(flow[x] for x in dict.fromkeys(coin.before))
    if coin.x in coin.before or rest == 0:
        return None
    given = {"p": coin.p[coin.x], "q": coin.q[coin.x], "pi": flow[coin.x]}
    if not coin.before:
        where = f"Here mu is the chance of these siblings; the plan emits pi of it as {coin.x}."
        return Value(flow[coin.x] / rest, "pi/mu", given | {"mu": rest}, where)
    where = f"Here m is what the plan left of mu so far; it emits pi of it as {coin.x}."
    return Value(flow[coin.x] / rest, "pi/m", given | {"m": rest}, where)


LEFT_OVER: tuple[Formula, ...] = (_left_over_rest, _left_over_q, _left_over_uniform)
"""Those by which every refusal is a step towards the next sibling."""

TOKENS = 5
"""Of the laws on which formulas are tried, at least."""

FORMULAS: tuple[Formula, ...] = (
    _p,
    _lenience,
    _mixture,
    _whole,
    _beginning,
    *LEFT_OVER,
    _p_over_q,
    _p_over_rest,
    _one_shot,
    _k_seq,
    _pair,
    _hub,
    _importance,
    _share,
)
"""Tried in this order."""


def correction(draft: Draft, at: int, law: Law) -> Named | None:
    """Return the name of the law of a correction, if it has one.

    Args:
        draft: the draft.
        at: the node at which the correction is drawn.
        law: what was read.
    """
    return next((known for known in _corrections(draft, at) if known.law == law), None)


def _corrections(draft: Draft, at: int) -> Iterator[Named]:
    """Yield what a correction may be drawn from."""
    p, q, drafted = draft.p[at], draft.q[at], siblings(draft, at)
    if not draft.rule.drafts_from_q:
        rest: Law = p
        for x in dict.fromkeys(drafted):
            rest = without(rest, x)
        yield Named(f"p without {listed(dict.fromkeys(drafted))}", rest)
        return
    if deferred(draft) and at:
        yield from _excess(f"P_{at} p", (weights(draft)[at] * w for w in p), "q", q)
    if len(drafted) == 1:
        yield from _excess("p", p, "q", q)
        if scale := draft.parameters.get("lenience"):
            yield from _excess("p", p, "l q", (scale * w for w in q))
        yield Named("p", p)
        return
    last = Coin(draft, len(draft.tokens))
    found = named(last) if last.index in coins(draft) else None
    wanted = left(draft, len(drafted))
    if found and found[0] in LEFT_OVER and wanted:
        yield Named("what the refusals left", wanted)
    if found and found[0] is _p_over_rest:
        yield from _drawn_after(last)
    for known in _excess("p", p, "a", accepted(draft)):
        where = "Here a is what is accepted of each token, over all drafts."
        yield known._replace(where=where)


def _drawn_after(last: Coin) -> Iterator[Named]:
    """Yield the correction where it was looked for among the other siblings before."""
    for known in _excess("p", last.p, "q'", _rest(last)):
        rest: Law = known.law
        for x in last.before:
            rest = without(rest, x)
        yield Named(f"{known.name} without {listed(last.before)}", rest)


def _excess(a: str, p: Iterable[Number], b: str, q: Iterable[Number]) -> Iterator[Named]:
    wanted = [max(x - y, 0) for x, y in zip(p, q, strict=True)]
    if sum(wanted) > 0:
        yield Named(f"norm(({a} - {b})+)", normalise(wanted))


def drawn_from(draft: Draft, step: Step, found: Mapping[int, Number]) -> str:
    """Return what a draw at a node is from, as far as it is seen, or nothing.

    Args:
        draft: the draft.
        step: the draw.
        found: chances by token, as read; 0 for the drafted that are never drawn.
    """
    last = Coin(draft, len(draft.tokens))
    node = Coin(draft, step.at.index)
    if _agree(found, node.p):
        return " from p"
    if len(last.before) and coins(draft):
        for known in _excess("p", last.p, "q'", _rest(last)):
            if _agree(found, known.law):
                return f" from {known.name}"
    if scale := draft.parameters.get("acc"):
        drafted = siblings(draft, node.parent)
        if all(found[x] == node.p[x] / scale for x in drafted):
            return ", in which each of the drafted has p/acc"
    if draft.rule.drafts_from_q and draft.chain and _on_average(node):
        return " from p, on average over drafts from q,"
    return ""


def _agree(found: Mapping[int, Number], law: Law) -> bool:
    return all(law[x] == chance for x, chance in found.items())


def _on_average(coin: Coin) -> bool:
    """Whether draws at a node have law p, mixed over the tokens that q can draft there."""
    mixed = [w * 0 for w in coin.p]
    for x, mass in enumerate(coin.q):
        if mass > 0:
            steps = [s for leaf in leaves(coin.draft.instead(coin.index, x)) for s in leaf.steps]
            law = next(s.weights for s in steps if s.at and s.at.index == coin.index)
            mixed = [a + mass * b for a, b in zip(mixed, law, strict=True)]
    return tuple(mixed) == coin.p


def bar(draft: Draft) -> float | None:
    """Return the bar above which a rule keeps what it does not toss for, where it can be seen."""
    epsilon, delta = (draft.parameters.get(name) for name in ("epsilon", "delta"))
    if epsilon is None or delta is None or not draft.tokens:
        return None
    p = draft.p[0]
    entropy = -sum(float(w) * log(w) for w in p if w > 0)
    found = min(float(epsilon), float(delta) * exp(-entropy))
    for x, chance in enumerate(p):
        (leaf,) = leaves(draft.first(1).instead(1, x))
        if abs(float(chance) - found) > ROUNDING and (chance > found) != (len(leaf.emitted) > 1):
            return None
    return found


ROUNDING = 1e-9
"""How close to the bar a chance in floats is not told from it."""


def likeliest(law: Law) -> int:
    """Return the likeliest token; of equal ones the first."""
    return top(law, 1)[0]


def row(law: Law) -> str:
    """Return a law as text."""
    return f"({listed(law)})"


def listed(values: Iterable[object]) -> str:
    """Return entries as text."""
    return ", ".join(str(value) for value in values)
