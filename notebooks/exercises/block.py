"""Exercises of notebook 3: block verification."""

from typing import Any

from exercises import exercise
from specref import Table
from specref.dist import as_law, rational
from specref.oracle import lengths

P = as_law(["1/2", "3/10", "1/5"])


@exercise("3.1", answer="5/6", wrong=["1/3", 1, "5/2", "1/2"])
def weight_of_a_block(answer: Any) -> str | None:
    given = rational(answer)
    q = as_law(["1/5", "1/5", "3/5"])
    weight = min(1, P[2] / q[2])
    if given == min(1, weight * P[0] / q[0]):
        return None
    if given == weight * min(1, P[0] / q[0]):
        return (
            f"{given} is the chance of token, which cuts the ratio of A at 1 before it multiplies"
        )
    return f"{given} is not P2; begin with P1 = min(1, p(C)/q(C)), at the token C"


@exercise("3.2", answer="11/8", wrong=["21/16", "19/8", "5/8", "3/2"])
def mean_of_accepted_tokens(answer: Any) -> str | None:
    given = rational(answer)
    p, q = (Table({(): row}, order=0) for row in (["1/2", "1/2"], ["3/4", "1/4"]))
    found = {rule: lengths(rule, p, q, shape=2) for rule in ("token", "block")}
    if given == found["block"].accepted:
        return None
    if given == found["token"].accepted:
        return f"{given} is the mean of token"
    if given == found["block"].expected:
        return f"{given} counts the correction or bonus, too"
    return f"{given} is not E[P1] + E[P2]; go through the drafts AA, AB, BA and BB"


@exercise(
    "3.3",
    answer=["3/5", "2/5", 0],
    wrong=[["1/5", "1/5", "3/5"], P, [0, 0, 1], ["1/2", "1/2"], ["1/5", "4/5", 0]],
)
def draft_law_without_gain(answer: Any) -> str | None:
    q = as_law(list(answer), "your q")
    if len(q) != len(P):
        return f"q needs {len(P)} entries, it has {len(q)}"
    if q == P:
        return "this q is p itself"
    if max(q) == 1:
        return "this q is certain of a token"
    for gamma in (2, 3):
        models = [Table({(): row}, order=0) for row in (P, q)]
        token, block = (lengths(rule, *models, shape=gamma).accepted for rule in ("token", "block"))
        if token != block:
            return f"with gamma = {gamma} token accepts {token} in the mean and block {block}"
    return None
