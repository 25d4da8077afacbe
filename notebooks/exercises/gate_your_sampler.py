"""Exercises of notebook 8: a sampler for drafts that are certain, and how wrong it is."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from exercises import exercise
from specref import verify
from specref.gate.cases import Case


@exercise("8.1", answer=Fraction(1, 4), wrong=[Fraction(1, 2), Fraction(1, 8), "1/16", 0])
def distance_of_the_faulty_sampler(answer: Any) -> str | None:
    given = Fraction(answer)
    return None if given == Fraction(1, 4) else f"{given} is not the TV"


ROWS = (0.5, 0.375, 0.125), (0.25, 0.25, 0.5), (0.0, 1.0, 0.0)
DRAFTS = ((0,), (2,), (1, 2), (2, 1))
COINS = (0.0, 0.25, 0.625)
TERMINALS = (0.0, 0.125, 0.25, 0.5, 0.75, 0.9375)


def decided(case: Any, u: Any) -> list[list[int]]:
    (p,), _, (x,) = case.arrays()
    rounds = []
    for *coins, terminal in u:
        kept, law = 0, p[0].copy()
        while kept < len(x):
            if coins[kept] >= law[x[kept]]:
                law[x[kept]] = 0
                break
            kept += 1
            law = p[kept].copy()
        sums = law.cumsum()
        last = int((sums <= terminal * sums[-1]).sum())
        rounds.append([*x[:kept].tolist(), last] + [-1] * (len(x) - kept))
    return rounds


def decided_with_what_was_refused(case: Any, u: Any) -> list[list[int]]:
    (p,), _, (x,) = case.arrays()
    rounds = []
    for *coins, terminal in u:
        kept = 0
        while kept < len(x) and coins[kept] < p[kept][x[kept]]:
            kept += 1
        last = int((p[kept].cumsum() <= terminal).sum())
        rounds.append([*x[:kept].tolist(), last] + [-1] * (len(x) - kept))
    return rounds


def accepted_at_the_edge(case: Any, u: Any) -> list[list[int]]:
    return decided(case, [[*(coin - 1e-9 for coin in coins), last] for *coins, last in u])


@exercise(
    "8.2",
    answer=decided,
    wrong=[
        decided_with_what_was_refused,
        accepted_at_the_edge,
        lambda case, u: [[0] * (case.gamma + 1)] * len(u),
    ],
)
def rounds_that_given_draws_decide(answer: Callable[[Any, Any], Any]) -> str | None:
    for drafts in DRAFTS:
        gamma = len(drafts)
        p, parents = ROWS[: gamma + 1], tuple(range(gamma))
        case = Case(p, p, drafts, parents, "one_hot")
        draws = np.array(list(product(*[COINS] * gamma, TERMINALS)))
        rows = [[int(x) for x in row] for row in answer(case, draws)]
        if [len(row) for row in rows] != [gamma + 1] * len(draws):
            return f"there are {len(draws)} rows of draws; return as many, of {gamma + 1} tokens"
        for u, row in zip(draws.tolist(), rows, strict=True):
            wanted = verify("one_hot", p, p[:-1], drafts, uniforms=u).emitted
            padded = [*wanted, *[-1] * (gamma + 1 - len(wanted))]
            if row != padded:
                return f"p = {list(p)}, drafts {drafts}, draws {u}: {row}, not {padded}"
    return None


LAWS = (["1/2", "1/4", "1/4"], ["1/3", "0", "2/3"], ["1", "0", "0"], ["1/7", "2/7", "4/7"])


@exercise(
    "8.3",
    answer=lambda p, x, tries: (1 - p[x]) * p[x] ** tries,
    wrong=[
        lambda p, x, tries: p[x] ** tries,
        lambda p, x, tries: (1 - p[x]) * p[x],
        lambda p, x, tries: 0,
        lambda p, x, tries: p[x] ** (tries + 1),
    ],
)
def distance_after_so_many_tries(
    answer: Callable[[Sequence[Fraction], int, int], Any],
) -> str | None:
    for row, tries in product(LAWS, (1, 2, 3, 10)):
        p = [Fraction(w) for w in row]
        for x in range(3):
            given = Fraction(answer(p, x, tries))
            # What is refused and comes back, every time, is the mass that is in the wrong place.
            if given != (1 - p[x]) * p[x] ** tries:
                return f"p = ({', '.join(row)}), x = {x}, tries = {tries}: it gives {given}"
    return None
