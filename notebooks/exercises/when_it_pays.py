"""Exercises of notebook 6."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from exercises import exercise


@exercise("6.1", answer="175/64", wrong=["111/64", "256/81", 4, "37/16"])
def expected_length(answer: Any) -> str | None:
    given = Fraction(answer)
    if given == Fraction(175, 64) - 1:
        return "these are the accepted tokens; a correction or bonus comes in any case"
    if given != Fraction(175, 64):
        return f"{answer} is not the sum of the chances that 0, 1, 2 and 3 drafts are accepted"
    return None


def _tokens(chances: Sequence[Fraction]) -> Fraction:
    total = term = Fraction(1)
    for chance in chances:
        term *= chance
        total += term
    return total


HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


@exercise(
    "6.2",
    answer=_tokens,
    wrong=[
        lambda chances: 1 + sum(chances),
        lambda chances: _tokens(chances) - 1,
        lambda chances: _tokens([sum(chances, Fraction(0)) / max(1, len(chances))] * len(chances)),
        lambda chances: _tokens(chances[:1] * len(chances)),
    ],
)
def expected_length_of_any_chain(answer: Callable[[Sequence[Fraction]], Any]) -> str | None:
    for chances in ([], [HALF], [HALF, THIRD], [THIRD, HALF, HALF], [Fraction(1)] * 4):
        given = answer(list(chances))
        if given != _tokens(chances):
            return f"for the chances {', '.join(map(str, chances)) or '(none)'} it is not {given}"
    return None


@exercise("6.3", answer="7/10", wrong=["3/10", "1/5", "17/10", 1])
def least_alpha(answer: Any) -> str | None:
    given = Fraction(str(answer))
    if given == Fraction(3, 10):
        return "3/10 is the cost; it would do if verifying took 10 ms and there were nothing else"
    if given != Fraction(7, 10):
        return f"with alpha = {answer}, 1 + alpha tokens do not take just as long as plain steps"
    return None
