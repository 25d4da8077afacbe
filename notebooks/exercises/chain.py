"""Exercises of notebook 2: a chain of drafted tokens."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from exercises import exercise
from specref import Table, verify
from specref.dist import as_fraction, rational

TARGET = Table(
    {
        (): ["1/2", "3/10", "1/5"],
        (0,): ["3/10", "1/2", "1/5"],
        (1,): ["3/5", "1/5", "1/5"],
        (2,): ["1/10", "3/10", "3/5"],
    },
    order=1,
)
DRAFT = Table(
    {
        (): ["3/5", "1/10", "3/10"],
        (0,): ["1/5", "3/10", "1/2"],
        (1,): ["2/5", "2/5", "1/5"],
        (2,): ["1/4", "1/4", "1/2"],
    },
    order=1,
)
"""The models of the notebook."""


def rows_of(model: Table, drafts: Sequence[int], count: int) -> list[list[Fraction]]:
    """Return the laws behind the first `count` beginnings of the drafts."""
    return [list(map(as_fraction, model(tuple(drafts[:at])))) for at in range(count)]


def drawn(law: Sequence[Any], u: Any) -> int:
    """Return the first token at which the running sum of a law exceeds u."""
    return next(x for x in range(len(law)) if sum(law[: x + 1]) > u)


def round_of(
    p_rows: Sequence[Any],
    q_rows: Sequence[Any],
    drafts: Sequence[int],
    draws: Sequence[Any],
    *,
    offset: int = 0,
    bonus: bool = True,
    stops: bool = True,
    from_target: bool = False,
) -> list[int]:
    """Return the answer to 2.3, or with other arguments a wrong one."""
    out: list[int] = []
    for i, x in enumerate(drafts):
        p, q = p_rows[i + offset], q_rows[i]
        if draws[i] < p[x] / q[x]:
            out.append(x)
            continue
        wanted = [a if from_target else max(a - b, 0) for a, b in zip(p, q, strict=True)]
        out.append(drawn([w / sum(wanted) for w in wanted] if sum(wanted) else p, draws[-1]))
        if stops:
            return out
    return [*out, drawn(p_rows[-1] if bonus else q_rows[-1], draws[-1])]


@exercise("2.1", answer="B", wrong=["B C", "A", "A C B", "C", "B C B"])
def a_replay(answer: Any) -> str | None:
    if not isinstance(answer, str) or not set(answer.upper()) <= set("ABC ,"):
        return f'{answer!r} is no text; write letters, such as "A B"'
    given = [letter for letter in answer.upper() if letter in "ABC"]
    if len(given) != 1:
        return f"{answer!r} has {len(given)} tokens; look at the first coin again"
    if given == ["B"]:
        return None
    return f"the number of tokens is right, but {given[0]} has no mass in the residual of row 0"


@exercise("2.2", answer="369/125", wrong=["244/125", "17/5", 4, "256/125", "12/5"])
def expected_length(answer: Any) -> str | None:
    given = rational(answer)
    chance = rational("4/5")
    if given == sum(chance**i for i in range(4)):
        return None
    if given == sum(chance**i for i in range(1, 4)):
        return f"{given} counts accepted drafts; the correction or bonus is missing"
    return f"{given} is not it: draft i is accepted only if all drafts before it are"


@exercise(
    "2.3",
    answer=round_of,
    wrong=[
        lambda p, q, x, u: round_of(p, q, x, u, offset=1),
        lambda p, q, x, u: round_of(p, q, x, u, bonus=False),
        lambda p, q, x, u: round_of(p, q, x, u, stops=False),
        lambda p, q, x, u: round_of(p, q, x, u, from_target=True),
        lambda p, q, x, u: round_of(p, q, x, u)[:-1],
    ],
)
def the_round(answer: Any) -> str | None:
    tenths = [Fraction(k, 10) for k in (0, 3, 6, 9)]
    for drafts in ((), (0,), (1,), (2, 0), (0, 2), (1, 1, 2), (0, 2, 1)):
        count = len(drafts)
        p_rows, q_rows = rows_of(TARGET, drafts, count + 1), rows_of(DRAFT, drafts, count)
        for number in range(len(tenths) ** (count + 1)):
            draws = [tenths[number // len(tenths) ** at % len(tenths)] for at in range(count + 1)]
            wanted = verify("token", p_rows, q_rows, drafts, uniforms=draws).emitted
            given = answer(p_rows, q_rows, list(drafts), draws)
            if given is None or list(given) != list(wanted):
                told = ", ".join(map(str, draws))
                return f"for drafts {list(drafts)} and draws [{told}] it returned {given}"
    return None
