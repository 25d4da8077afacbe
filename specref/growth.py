"""How the cost of the two oracles grows: `choice.law` against `closed`, over gamma and V.

Timings are of one machine and one moment; compare them within one run.
"""

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

from specref import closed, decode
from specref.dist import normalise, rational
from specref.draft import Shape, depth
from specref.model import Context, Model
from specref.picture import picture
from specref.rules import RULES


class Point(NamedTuple):
    """One measurement.

    Attributes:
        rule: whose law of one round.
        vocab, gamma: size of the case.
        oracle: "law" or "closed".
        seconds: of one computation; None where an earlier size took longer than the limit.
        outcomes: the number of texts that can be emitted.
    """

    rule: str
    vocab: int
    gamma: int
    oracle: str
    seconds: float | None
    outcomes: int


def models(vocab: int) -> tuple[Model, Model]:
    """Return a target and a draft model whose laws differ after every token.

    >>> p, q = models(3)
    >>> print(*p((0,)), *q((0,)))
    2/7 1/2 3/14 2/11 6/11 3/11
    """

    def model(step: int) -> Model:
        def law(context: Context) -> Any:
            seen = sum((at + 2) * (x + 1) for at, x in enumerate(context)) + step
            return normalise(rational(1 + (seen * (x + step)) % 7) for x in range(vocab))

        return law

    return model(1), model(2)


def measure(
    rule: str, vocabs: Iterable[int], shapes: Iterable[Shape], limit: float = 10.0
) -> Iterator[Point]:
    """Yield the time that each oracle takes for the law of one round, size by size.

    Args:
        rule: a name in `RULES`.
        vocabs: sizes of the vocabulary, growing.
        shapes: of the draft, growing.
        limit: seconds; once an oracle has taken longer, it is not tried on larger sizes.
    """
    shapes = list(shapes)
    oracles: dict[str, Callable[..., Any]] = {
        "law": lambda *case: decode.round_law(RULES[rule], *case),
        "closed": lambda *case: closed.round_law(rule, *case),
    }
    slow: list[tuple[str, int, int]] = []
    for vocab in vocabs:
        p, q = models(vocab)
        for shape in shapes:
            gamma = depth(shape)
            for oracle, compute in oracles.items():
                if any(o == oracle and v <= vocab and g <= gamma for o, v, g in slow):
                    yield Point(rule, vocab, gamma, oracle, None, 0)
                    continue
                begin = perf_counter()
                outcomes = len(compute(p, q, shape))
                seconds = perf_counter() - begin
                if seconds > limit:
                    slow.append((oracle, vocab, gamma))
                yield Point(rule, vocab, gamma, oracle, seconds, outcomes)


def plot(points: Iterable[Point], file: str) -> None:
    """Draw seconds over gamma, one line per oracle and vocabulary, on a logarithmic scale."""
    with picture(file, (7, 4.5)) as figure:
        _draw(figure, points)


def _draw(figure: Any, points: Iterable[Point]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    lines: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for point in points:
        if point.seconds is not None:
            line = lines.setdefault((point.oracle, point.vocab), [])
            line.append((point.gamma, point.seconds))
    vocabs = sorted({vocab for _, vocab in lines})
    for (oracle, vocab), found in lines.items():
        axes.plot(
            *zip(*found, strict=True),
            color=f"C{vocabs.index(vocab)}",
            linestyle="-" if oracle == "closed" else "--",
            marker="o",
            label=f"{oracle}, V = {vocab}",
        )
    axes.set_yscale("log")
    axes.set_xlabel("gamma: levels of the draft")
    axes.set_ylabel("seconds")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
