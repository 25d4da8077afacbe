"""Exercises of notebook 4."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from exercises import exercise
from specref import excess, law, tv
from specref.dist import without

Row = tuple[Fraction, ...]


def row(*weights: int) -> Row:
    return tuple(Fraction(w, sum(weights)) for w in weights)


def shown(law_: Row) -> str:
    return f"({', '.join(map(str, law_))})"


@exercise("4.1", answer="4/9", wrong=["2/5", "4/5", 1, 0])
def chance_of_the_second(answer: Any) -> str | None:
    if Fraction(answer) == Fraction(2, 5):
        return "2/5 is p(1) itself; that the draw is not 2 is known by then"
    if Fraction(answer) != Fraction(4, 9):
        return f"{answer} is not the share that 1 has of what is left of p without 2"
    return None


CASES = [
    (row(5, 3, 2), row(1, 1, 3), 2, 1),
    (row(5, 3, 2), row(1, 1, 3), 2, 0),
    (row(4, 3, 2, 1), row(1, 2, 3, 4), 3, 2),
    (row(4, 3, 2, 1), row(1, 2, 3, 4), 2, 1),
]


def _second(p: Row, q: Row, a: int, b: int) -> Fraction:
    left, now = excess(p, q), without(q, a)
    return min(Fraction(1), Fraction(left[b] / now[b]))


@exercise(
    "4.2",
    answer=_second,
    wrong=[
        lambda p, q, a, b: min(1, p[b] / q[b]),
        lambda p, q, a, b: min(1, excess(p, q)[b] / q[b]),
        lambda p, q, a, b: min(1, p[b] / without(q, a)[b]),
    ],
)
def chance_without_replacement(answer: Callable[..., Any]) -> str | None:
    for p, q, a, b in CASES:
        given = answer(p, q, a, b)
        if given != _second(p, q, a, b):
            return f"for p = {shown(p)}, q = {shown(q)} and the siblings {a}, {b} it is not {given}"
    return None


def _in_turn(p: Row, q1: Row, q2: Row, drafts: tuple[int, int], choose: Any) -> Any:
    for x, q in zip(drafts, (q1, q2), strict=True):
        if choose.flip(min(1, p[x] / q[x])):
            return x
        p = excess(p, q)
    return choose(p)


def _same_law(p: Row, q1: Row, q2: Row, drafts: tuple[int, int], choose: Any) -> Any:
    return _in_turn(p, q1, q1, drafts, choose)


def _target_alone(p: Row, q1: Row, q2: Row, drafts: tuple[int, int], choose: Any) -> Any:
    return choose(p)


def _first_alone(p: Row, q1: Row, q2: Row, drafts: tuple[int, int], choose: Any) -> Any:
    x, _ = drafts
    return x if choose.flip(min(1, p[x] / q1[x])) else choose(excess(p, q1))


def _each_alone(p: Row, q1: Row, q2: Row, drafts: tuple[int, int], choose: Any) -> Any:
    for x, q in zip(drafts, (q1, q2), strict=True):
        if choose.flip(min(1, p[x] / q[x])):
            return x
    return choose(excess(p, q2))


TRIPLES = [
    (row(5, 3, 2), row(1, 1, 3), row(1, 1, 1)),
    (row(5, 3, 2), row(1, 1, 1), row(1, 1, 3)),
    (row(1, 2, 3, 4), row(4, 1, 2, 3), row(3, 3, 3, 1)),
]


def outcomes(rule: Callable[..., Any], p: Row, q1: Row, q2: Row) -> dict[Any, Any]:
    """Return the law of (drafts, token)."""

    def program(choose: Any) -> Any:
        drafts = choose(q1), choose(q2)
        return drafts, rule(p, q1, q2, drafts, choose)

    return law(program)


@exercise(
    "4.3",
    answer=_in_turn,
    wrong=[_same_law, _target_alone, _first_alone, _each_alone],
)
def rule_for_two_draft_models(answer: Callable[..., Any]) -> str | None:
    for p, q1, q2 in TRIPLES:
        case = f"for p = {shown(p)}, q1 = {shown(q1)}, q2 = {shown(q2)}"
        found, right = outcomes(answer, p, q1, q2), outcomes(_in_turn, p, q1, q2)
        emitted: dict[Any, Any] = {}
        for (_, x), mass in found.items():
            emitted[x] = emitted.get(x, 0) + mass
        distance = tv(emitted, dict(enumerate(p)))
        if distance:
            return f"{case} the law of the token is off by TV {distance}"
        kept, most = (
            sum(mass for (drafts, x), mass in masses.items() if x in drafts)
            for masses in (found, right)
        )
        if kept < most:
            return f"{case} it is lossless, but emits a draft with {kept} only"
    return None
