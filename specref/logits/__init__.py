"""Sampling parameters, exactly: from logits, and what a request asks, to the law of the next token.

Logits are rationals (floats count at their exact binary value), and `weights` are exponentials of
logits. Nothing is rounded: temperature, bias and penalties keep scores exact, and every comparison
that a filter makes is decided exactly or by certified enclosures that are refined until they
decide. So the tokens that stay are certain, ties included, and the masses are exact fractions where
they are rational, and enclosed to any width where they are not.

- score: exact logarithms;
- balls: enclosures by python-flint or mpmath;
- row: weights, and the signs of their sums;
- parameters: what a request may ask, and its ranges;
- presets: what libraries make of it;
- filters, processors: the steps;
- parting: inputs on which presets part.

CONVENTIONS.md says which variations are lawful.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from specref.dist import Law, Number, entries, exact_row, integers, rational, whole
from specref.logits.filters import filters
from specref.logits.parameters import Parameters, forbids
from specref.logits.presets import PRESETS, Preset, find
from specref.logits.processors import Context, processors
from specref.logits.row import Enclosure, Row, Undecided
from specref.logits.score import Score, logarithm

__all__ = [
    "PRESETS",
    "Enclosure",
    "Parameters",
    "Preset",
    "Process",
    "Row",
    "Score",
    "Undecided",
    "filtered",
    "law",
    "same_law",
    "weights",
]

BITS = 4096
"""Bits of precision after which a comparison is given up, unless more are allowed."""


def weights(row: Iterable[Number]) -> tuple[Score | None, ...]:
    """Return the logits whose exponentials are these weights: exact logarithms of rationals.

    Args:
        row: one weight per token, anything `dist.rational` reads; 0 is a logit of minus infinity.

    >>> print(*law(weights([4, 2, 1]), Parameters(temperature="1/2")))
    16/21 4/21 1/21

    Raises:
        ValueError: a weight that is negative or not finite, or none above 0.
    """
    exact = exact_row(row, "weights")
    for x, w in enumerate(exact):
        if w < 0:
            raise ValueError(f"weights[{x}] = {w} is negative; weights are exponentials, so >= 0")
    if not any(exact):
        raise ValueError("weights forbid every token; at least one has to be above 0")
    return tuple(logarithm(w) if w else None for w in exact)


def law(
    logits: Iterable[Any],
    parameters: Parameters | None = None,
    preset: str | Preset = "transformers",
    *,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    digits: int = 30,
    bits: int = BITS,
) -> Law | Enclosure:
    """Return the law of the next token that a request asks for.

    Args:
        logits: one per token [V], anything `dist.rational` reads or minus infinity; or what
            `weights` returned.
        parameters: what the request asks; nothing if left out.
        preset: the library whose reading of the parameters counts, or one of your own.
        prompt, output: the tokens before this one, which penalties, masks and min_tokens look at.
        digits: masses that are irrational are enclosed to 10^-digits.
        bits: precision after which a comparison is given up.

    Returns:
        The law [V] as exact rationals if all masses are rational, else an `Enclosure`.

    >>> ask = Parameters(top_k=2)
    >>> print(*law([0, 0, 0], ask), "or", *law([0, 0, 0], ask, "vllm"))
    1/3 1/3 1/3 or 1/2 1/2 0
    >>> law([1, 0], Parameters(temperature=0))[0] == 1
    True

    Raises:
        ValueError: logits that are no numbers, parameters that the preset refuses, tokens out of
            range, or nothing left to draw.
        Undecided: a comparison that `bits` do not decide.
        ImportError: an enclosure is needed, and neither python-flint nor mpmath is installed.
    """
    width = rational(1, 10 ** whole(digits, "digits", "pass a number of decimal places", 0))
    row = filtered(logits, parameters, preset, prompt=prompt, output=output, bits=bits)
    return row.law(width)


def filtered(
    logits: Iterable[Any],
    parameters: Parameters | None = None,
    preset: str | Preset = "transformers",
    *,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    bits: int = BITS,
) -> Row:
    """Return the tokens that stay with their exact scores, before any mass is computed.

    Arguments and errors are those of `law`.

    >>> sorted(filtered([3, 2, 1], Parameters(top_p="0.9")).scores)
    [0, 1]
    """
    asked = _asked(parameters)
    convention = find(preset)
    scores = _read(logits)
    vocab = len(scores)
    limit = whole(bits, "bits", "pass bits of precision", 2)
    row = Row({x: s for x, s in enumerate(scores) if s is not None}, vocab, limit)
    if not row.scores:
        raise ValueError("logits forbid every token; at least one has to be above minus infinity")
    acts = convention.read(asked, vocab)
    change = processors(asked, convention, Context(prompt, output, vocab))
    filter_ = filters(convention, asked.temperature)
    for step in convention.steps:
        names = [name for name in ([step] if isinstance(step, str) else step) if acts[name]]
        tokens = set(row.scores)
        for name in names:
            if name in filter_:
                tokens &= set(filter_[name](row, getattr(asked, name)))
        row = row.keep(tokens) if len(tokens) < len(row.scores) else row
        for name in names:
            if name not in filter_:
                row = change[name](row)
        if not row.scores:
            raise ValueError(f"{' and '.join(names)} forbids every token; leave at least one")
    return row


def same_law(a: Row, b: Row) -> bool:
    """Whether two rows have the same law, decided exactly.

    >>> same_law(filtered([2, 1]), filtered([1, 0]))
    True
    """
    if a.scores.keys() != b.scores.keys():
        return False
    x = min(a.scores)
    shift = a.scores[x] - b.scores[x]
    return all((a.scores[y] - b.scores[y] - shift).sign() == 0 for y in a.scores)


def _asked(parameters: Any) -> Parameters:
    """Return what is asked; nothing for None."""
    if parameters is not None and not isinstance(parameters, Parameters):
        raise ValueError(f"parameters = {parameters!r} are none; pass Parameters(...), or None")
    return parameters or Parameters()


def _read(logits: Iterable[Any]) -> list[Score | None]:
    """Read a row of logits; None stands for minus infinity."""
    found: list[Score | None] = []
    for x, value in enumerate(entries(logits, "logits")):
        if value is None or isinstance(value, Score):
            found.append(value)
        elif forbids(value):
            found.append(None)
        else:
            try:
                found.append(Score(rational(value)))
            except ValueError:
                raise ValueError(
                    f"logits[{x}] = {value} is out of range; logits are finite, or -inf"
                ) from None
    if not found:
        raise ValueError("logits are empty; a law needs at least one token")
    return found


class Process:
    """A model under sampling parameters: a model of laws made from a model of logits.

    What depends on the text so far, such as penalties, a grammar and min_tokens, is looked up anew
    for every context. So at each position of a draft it is what plain decoding would have there.

    Args:
        logits: from a context, the tokens emitted so far, to logits, or to what `weights` returned.
        parameters, preset, prompt, digits, bits: as for `law`. A law with irrational masses is
            replaced by an exact law inside its enclosure, so by less than 10^-digits per mass.

    >>> def grammar(said):
    ...     return [0, 1] if 2 in said else [0, 1, 2]
    >>> model = Process(lambda context: weights([2, 1, 1]), Parameters(allowed=grammar))
    >>> print(*model((0,)), "then", *model((0, 2)))
    1/2 1/4 1/4 then 2/3 1/3 0

    Raises:
        ValueError: as `law`, on a call; no callable, no parameters or no preset at once.
    """

    def __init__(
        self,
        logits: Callable[[tuple[int, ...]], Iterable[Any]],
        parameters: Parameters | None = None,
        preset: str | Preset = "transformers",
        *,
        prompt: Sequence[int] = (),
        digits: int = 30,
        bits: int = BITS,
    ) -> None:
        if not callable(logits):
            raise ValueError(f"logits = {logits!r} is no model; pass a callable from a context")
        if parameters is not None:
            parameters = _asked(parameters)
        self.logits, self.parameters, self.preset = logits, parameters, find(preset)
        self.prompt, self.digits, self.bits = tuple(integers(prompt, "prompt")), digits, bits

    def __call__(self, context: tuple[int, ...]) -> Law:
        found = law(
            self.logits(context),
            self.parameters,
            self.preset,
            prompt=self.prompt,
            output=context,
            digits=self.digits,
            bits=self.bits,
        )
        return found.inside() if isinstance(found, Enclosure) else found
