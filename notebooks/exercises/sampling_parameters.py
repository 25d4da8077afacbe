"""Exercises of notebook 5."""

from fractions import Fraction
from typing import Any

from exercises import exercise


@exercise("5.1", answer="9/14", wrong=["1/2", "3/6", "4/14", 9])
def squared_weights(answer: Any) -> str | None:
    if Fraction(answer) == Fraction(1, 2):
        return "1/2 is its probability at temperature 1"
    if Fraction(answer) != Fraction(9, 14):
        return f"{answer} is not what the squares of 3, 2 and 1 give"
    return None


@exercise(
    "5.2",
    answer=({0}, {0, 1}),
    wrong=[({0, 1}, {0}), ({0}, {0}), ({0, 1}, {0, 1}), {0}],
)
def in_turn_and_jointly(answer: Any) -> str | None:
    in_turn, jointly = (set(tokens) for tokens in answer)
    if in_turn != {0}:
        return (
            f"one after the other, the tokens {sorted(in_turn)} are not the fewest that reach 1/2"
        )
    if jointly != {0, 1}:
        return f"looking at the whole law, the tokens {sorted(jointly)} are not all that pass both"
    return None


@exercise(
    "5.3",
    answer=(["2/5", "3/10", "3/10"], ["3/10", "2/5", "3/10"]),
    wrong=[
        (["1/2", "1/2", "0"], ["1/2", "1/2", "0"]),
        (["2/5", "3/10", "3/10"], ["2/5", "3/10", "3/10"]),
        (["9/10", "1/10", "0"], ["1/10", "9/10", "0"]),
        (["2/5", "2/5", "1/5"], ["3/10", "2/5", "3/10"]),
        (["2/5", "3/10", "3/10"], ["3/10", "2/5", "2/5"]),
    ],
)
def overlap_that_a_filter_destroys(answer: Any) -> str | None:
    laws = [[Fraction(mass) for mass in law] for law in answer]
    for name, law in zip("pq", laws, strict=True):
        if len(law) != 3 or min(law) < 0 or sum(law) != 1:
            return f"{name} is no law over three tokens: {', '.join(map(str, law))}"
        if law.count(max(law)) > 1:
            return f"{name} has a tie for the first place"
    p, q = laws
    overlap = sum(min(a, b) for a, b in zip(p, q, strict=True))
    if overlap < Fraction(4, 5):
        return f"the overlap is {overlap}, below 4/5"
    if p.index(max(p)) == q.index(max(q)):
        return f"both have token {p.index(max(p))} as their favourite, so filtered they are equal"
    return None
