"""Exercises of notebook 1: one drafted token."""

from collections.abc import Sequence
from typing import Any

from exercises import exercise
from specref import law, normalise, tv
from specref.dist import Law, as_fraction, as_law, rational

P = as_law(["1/2", "3/10", "1/5"])
Q = as_law(["1/5", "1/5", "3/5"])


def missing(p: Sequence[Any], q: Sequence[Any]) -> list[Any]:
    """Return what the target still lacks when drafts are kept with half the usual chance."""
    return [a - min(a, b) / 2 for a, b in zip(p, q, strict=True)]


def right_correction(p: Sequence[Any], q: Sequence[Any]) -> list[Any]:
    """Return the answer to 1.3."""
    wanted = missing(p, q)
    return [w / sum(wanted) for w in wanted]


def usual_correction(p: Sequence[Any], q: Sequence[Any]) -> list[Any]:
    """Return the residual of drafts that are kept with the whole chance."""
    wanted = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    return [w / sum(wanted) for w in wanted] if sum(wanted) else list(p)


def halved_too_often(p: Sequence[Any], q: Sequence[Any]) -> list[Any]:
    """Return the residual of p and q/2, which is not what is kept where p is below q/2."""
    wanted = [max(a - b / 2, 0) for a, b in zip(p, q, strict=True)]
    return [w / sum(wanted) for w in wanted]


@exercise("1.1", answer="2/5", wrong=["3/5", 0, "1/5", 0.4])
def chance_of_a_refusal(answer: Any) -> str | None:
    if isinstance(answer, float):
        return f'a float counts at its binary value; write "{answer}" or a fraction'
    given = rational(answer)
    if given == sum(max(a - b, 0) for a, b in zip(P, Q, strict=True)):
        return None
    if given == sum(min(a, b) for a, b in zip(P, Q, strict=True)):
        return f"{given} is the probability that a draft is kept"
    return f"{given} is not the sum of what p has more than q"


@exercise(
    "1.2",
    answer=["3/4", "1/4", 0],
    wrong=[["3/10", "1/10", 0], P, ["1/4", "3/4", 0], [1, 0, 0], ["5/8", "3/8", 0]],
)
def law_of_the_correction(answer: Any) -> str | None:
    given = as_law(list(answer), "your law")  # says so if it does not sum to 1
    if len(given) != len(P):
        return f"a law of three tokens has three entries, not {len(given)}"
    wanted = [max(a - b, 0) for a, b in zip(P, Q, strict=True)]
    for token, got, weight in zip("ABC", given, wanted, strict=True):
        if got != weight / sum(wanted):
            return f"token {token}: {got} is not its share of what is missing"
    return None


@exercise(
    "1.3",
    answer=right_correction,
    wrong=[usual_correction, halved_too_often, missing, lambda p, q: p],
)
def correction_of_halved_chances(answer: Any) -> str | None:
    for rows in (
        (P, Q),
        (["1/2", "1/2"], ["1/2", "1/2"]),
        (["1/10", "9/10"], ["9/10", "1/10"]),
        (["1/4", "1/4", "1/4", "1/4"], ["1/2", 0, "3/8", "1/8"]),
        ([0, 1], [1, 0]),
    ):
        p, q = as_law(rows[0]), as_law(rows[1])
        case = f"p = {shown(p)}, q = {shown(q)}"
        given = answer(tuple(map(as_fraction, p)), tuple(map(as_fraction, q)))
        if given is None or len(given) != len(p):
            return f"for {case} it returned {given}, which is no law of {len(p)} tokens"
        row = [rational(w) for w in given]
        if min(row) < 0 or not near(sum(row), 1):
            return f"for {case} it returned {shown(row)}, which is no law"
        other = normalise(row)  # of floats too, such as 1 / 2

        def program(choose: Any, p: Law = p, q: Law = q, other: Law = other) -> int:
            x = int(choose(q))
            chance = rational(min(1, p[x] / q[x])) / 2
            return x if choose.flip(chance) else int(choose(other))

        emitted = law(program)
        found = [emitted.get(x, 0) for x in range(len(p))]
        if not near(tv(found, p), 0):
            return f"for {case} the token that comes out has the law {shown(found)}"
    return None


def near(a: Any, b: Any) -> bool:
    """Whether two numbers are equal but for the rounding of floats."""
    return bool(abs(a - b) < rational(1, 10**9))


def shown(row: Sequence[Any]) -> str:
    """Return a law as people write it."""
    return f"({', '.join(map(str, row))})"
