"""The same request as all presets read it: their laws side by side, and where they part."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from specref.dist import Law, Number, as_fraction, rational
from specref.logits import BITS, PRESETS, Enclosure, Parameters, Row, filtered, same_law

DIGITS = 30
"""Decimal places to which irrational masses are told."""

SHORT = 9
"""Characters up to which masses that stand side by side are written as fractions."""


class Reading(NamedTuple):
    """A law, and the presets that read the request so; or why one preset refuses it."""

    presets: list[str]
    row: Row | None
    error: str


def readings(
    logits: Iterable[Any],
    parameters: Parameters,
    *,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    bits: int = BITS,
) -> list[Reading]:
    """Return the different laws that presets make of a request, and the refusals.

    >>> for one in readings([0, 0, 0], Parameters(top_k=2)):
    ...     print(*one.presets, "keep", *one.row.scores)
    transformers vllm_sort flashinfer flashinfer_joint trt_llm eagle keep 0 1 2
    vllm llama_cpp mlx keep 0 1
    """
    logits = tuple(logits)
    found: list[Reading] = []
    for name in PRESETS:
        try:
            row = filtered(logits, parameters, name, prompt=prompt, output=output, bits=bits)
        except ValueError as error:
            found.append(Reading([name], None, str(error)))
            continue
        same = [one for one in found if one.row is not None and same_law(one.row, row)]
        if same:
            same[0].presets.append(name)
        else:
            found.append(Reading([name], row, ""))
    return found


def masses(law: Law | Enclosure, digits: int = DIGITS) -> list[str]:
    """Write masses: as fractions where they are exact, else as decimals with their bound.

    Args:
        law: what `specref.logits.law` returned; an enclosure to at least one digit more.
        digits: decimal places of those that are enclosed.

    >>> print(*masses((Fraction(1, 3), Fraction(2, 3))))
    1/3 2/3
    """
    if not isinstance(law, Enclosure):
        return [str(as_fraction(mass)) for mass in law]
    ends = zip(law.lower, law.upper, strict=True)
    return [_enclosed(low, high, digits) for low, high in ends]


def _enclosed(low: Number, high: Number, digits: int) -> str:
    if low == high:
        return str(as_fraction(low))
    middle = as_fraction(low + high) / 2
    if as_fraction(high - low) > Fraction(1, 10**digits):
        raise ValueError(f"the enclosure is wider than 1e-{digits}; ask for more digits")
    steps = round(middle * 10**digits)
    return f"{steps // 10**digits}.{steps % 10**digits:0{digits}} ± 1e-{digits}"


def beside(found: Sequence[Reading]) -> list[list[str]]:
    """Return a row per token: its mass, shortly, by each law, and "*" where they differ.

    >>> beside(readings([0, 0, 0], Parameters(top_k=2)))
    [['1/3', '1/2', '*'], ['1/3', '1/2', '*'], ['1/3', '0', '*']]
    """
    width = rational(1, 10 ** (DIGITS + 1))
    laws = [masses(one.row.law(width)) for one in found if one.row is not None]
    return [
        [*map(_short, cells), "*" if len(set(cells)) > 1 else ""]
        for cells in zip(*laws, strict=True)
    ]


def _short(mass: str) -> str:
    if len(mass) <= SHORT:
        return mass
    return f"{float(Fraction(mass)) if '/' in mass else float(mass.split()[0]):.5g}"


def runs(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield rows, those that repeat as one, with the tokens that they are about.

    >>> list(runs([["a"], ["a"], ["b"]]))
    [('0-1', ['a']), ('2', ['b'])]
    """
    for row, group in groupby(enumerate(rows), key=lambda pair: list(pair[1])):
        tokens = [token for token, _ in group]
        yield (f"{tokens[0]}-{tokens[-1]}" if len(tokens) > 1 else f"{tokens[0]}"), row
