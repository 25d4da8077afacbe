"""Exercises of notebook 7: faults, and the tests that miss them."""

from fractions import Fraction
from math import log, log1p
from typing import Any

from exercises import exercise
from specref import FAULTS, Table, excess, normalise

STEP = 2.0**-24


@exercise(
    "7.1",
    answer={"target_rows_shifted", "block_residual_unscaled"},
    wrong=[set(), {"target_rows_shifted"}, {"target_rows_shifted", "residual_floored"}],
)
def faults_that_the_first_token_of_equal_rows_hides(answer: Any) -> str | None:
    right = {"target_rows_shifted", "block_residual_unscaled"}
    given = set(answer)
    for name in sorted(given - right):
        return f"{name!r} is not among those whose TV there is exactly 0"
    return None if given == right else f"{len(given)} of them are found, and there are more"


@exercise("7.2", answer=11_629_080, wrong=[1 << 23, 1 << 24, 11_629_079, 11_629_081, True])
def rounds_until_an_even_chance(answer: Any) -> str | None:
    rounds = int(answer)
    if isinstance(answer, bool) or rounds != answer:
        return f"{answer!r} is no number of rounds"
    if rounds * log1p(-STEP) > -log(2):
        return f"after {rounds:,} rounds the chance is still below 1/2"
    if (rounds - 1) * log1p(-STEP) <= -log(2):
        return f"after {rounds - 1:,} rounds the chance is 1/2 already, or more"
    return None


@exercise(
    "7.3",
    answer=(["1/2", "1/2", 0], ["1/4", "1/4", "1/2"]),
    wrong=[
        ([1, 0, 0], ["1/3", "1/3", "1/3"]),
        (["1/2", "1/4", "1/4"], ["1/2", "1/4", "1/4"]),
        (["1/2", "3/10", "1/5"], ["3/5", "1/10", "3/10"]),
        (["1/2", "1/2"], ["1/4", "3/4"]),
        (["1/2", "1/4", 0], ["1/4", "1/4", "1/2"]),
    ],
)
def rows_that_hide_a_wrong_residual(answer: Any) -> str | None:
    p, q = ([Fraction(w) for w in row] for row in answer)
    for name, row in (("p", p), ("q", q)):
        if len(row) != 3 or min(row) < 0 or sum(row) != 1:
            return f"{name} = {[str(w) for w in row]} is no law of three tokens"
    if max(p) == 1:
        return "an entry of p is 1; there every residual is p"
    if p == q:
        return "p and q are equal, so no draft is refused"
    target, draft = (Table({(): normalise(row)}, order=0) for row in (p, q))
    apart = FAULTS["residual_is_target"].deviation(target, draft, shape=1, length=1)
    if apart:
        left = ", ".join(str(w) for w in excess(p, q))
        return f"the first token is off by TV {apart}: the residual is ({left}), and p is not"
    return None
