"""Exercises of notebook 9: addressed draws, the strict test, and the rounding band."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from exercises import exercise
from specref.dist import as_fraction
from specref.philox import Domain, uniform


def coin(seed: int, start: int, node: int, domain: Domain = Domain.COIN) -> Fraction:
    return as_fraction(uniform(seed, start, node, domain))


@exercise(
    "9.1",
    answer=coin(7, 40, 3),
    wrong=[coin(7, 42, 3), coin(7, 40, 2), coin(40, 7, 3), coin(7, 40, 3, Domain.TERMINAL), 0],
)
def coin_of_the_third_draft(answer: Any) -> str | None:
    given = Fraction(answer)
    if given == coin(7, 40, 3):
        return None
    if given == coin(7, 43, 3) or given == coin(7, 42, 3):
        return "the address holds the tokens before the round, not before the draft"
    if given in (coin(7, 40, 3, Domain.DRAFT), coin(7, 40, 3, Domain.TERMINAL)):
        return "that draw decides something else"
    return f"{given} is another draw"


CASES = (
    ("1/2", "1/2", "0"),
    ("1/4", "1/2", "1/2"),
    ("1/4", "1/2", "1/4"),
    ("1/4", "1/2", "3/4"),
    ("0", "1/2", "0"),
    ("0", "1/2", "1/2"),
    ("1/2", "1/4", "16777215/16777216"),
    ("1/2", "0", "0"),
    ("0", "0", "0"),
    ("1/3", "1", "1/3"),
    ("1/3", "1", "5592405/16777216"),
)


@exercise(
    "9.2",
    answer=lambda p, q, u: q > 0 and u * q < p,
    wrong=[
        lambda p, q, u: q > 0 and u * q <= p,
        lambda p, q, u: u * q < p,
        lambda p, q, u: q > 0 and u < p,
        lambda p, q, u: q > 0,
    ],
)
def acceptance_of_a_draft(answer: Callable[[Fraction, Fraction, Fraction], Any]) -> str | None:
    for case in CASES:
        p, q, u = map(Fraction, case)
        given = answer(p, q, u)
        if given not in (True, False) or bool(given) != (q > 0 and u * q < p):
            return f"p = {p}, q = {q}, u = {u}: it gives {given}"
    return None


@exercise(
    "9.3",
    answer=Fraction(1 << 20, 10**6),
    wrong=[Fraction(1 << 21, 10**6), 1, Fraction(1, 1 << 20)],
)
def seconds_between_decisions_in_band(answer: Any) -> str | None:
    given = Fraction(answer)
    if given == Fraction(1 << 20, 10**6):
        return None
    if given == Fraction(1 << 21, 10**6):
        return "a coin can lie on either side of p/q"
    return f"{given} seconds are not it"
