"""Requests to a sampling law, smallest first, and how far float32 may stray from the exact law.

An `Ask` is one row of logits with what is asked of it. The exact law is that of
`specref.logits` under the declared preset. A subject computes in float32, so a mass may be off by
rounding, and where a filter's bound is nearer than rounding, or two logits are, another token may
stay: such requests are not `firm`, and no law is held to them. Nothing is tuned; with the rounding
error u = 2^-24 and V tokens:

- *scores*: each parameter that changes them is rounded itself, and takes two operations at most;
  the softmax subtracts twice. A score is off by `noise` = u M (3 n + 4), where n counts these
  parameters, and M bounds all scores, in a count in which no step makes them smaller.
- *masses*: an exponential is off by 4 u relatively, a sum of V terms and a division by (V + 1) u;
  each filter may divide anew. With f filters a law is off, in TV, by `band`
  = noise + (f + 1)(V + 5) u, and so is a sum that should be 1.
- *bounds*: numerator and denominator of a mass are off by the noise each, a running sum by V u
  more, the bound itself by 2 u: `reach` = 2 noise + (f + 2)(V + 5) u, relative for bounds on one
  mass, absolute for a share of the whole, whose masses add up to 1.
- *entropies* are means of logarithms that are off by the reach, under weights that are: off by
  reach (log V + 3).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from specref.dist import Number, as_fraction, rational
from specref.gate.cases import UNIT
from specref.logits import Enclosure, Parameters, Preset, Row, filtered
from specref.logits.parameters import OFF

U = UNIT["float32"]

STABLE = 16
"""Longest row in which it matters which of equal logits stay: sorts may mix longer ones."""

DIGITS = 12
"""Irrational masses are enclosed to 10^-12, far below what float32 tells apart."""

CHANGES = ("bias", "repetition_penalty", "presence_penalty", "frequency_penalty", "temperature")
"""The parameters that change scores."""

FILTERS = ("top_k", "top_p", "min_p", "typical_p", "epsilon", "eta", "top_n_sigma")
"""The parameters that keep some tokens only, by what their scores are."""

CONTEXT = ("prompt", "output")
"""What else a request may hold: the tokens that came before."""


@dataclass(frozen=True)
class Ask:
    """One row of logits, and what is asked of it.

    Attributes:
        logits: float32 numbers [V], or minus infinity.
        given: what the subject is given: values by the names of `logits.Parameters`, only those
            that are asked, and `prompt` and `output` where they matter.
        preset: how it is to be read.

    >>> from specref.logits import PRESETS
    >>> ask = Ask((2.0, 1.0, 1.0), {"top_k": 2, "temperature": 0.5}, PRESETS["vllm"])
    >>> print(ask)
    temperature 0.5, top_k 2 on logits (2, 1, 1)
    >>> sorted(ask.row.scores), ask.firm
    ([0, 1], True)
    """

    logits: tuple[float, ...]
    given: Mapping[str, Any]
    preset: Preset

    def __str__(self) -> str:
        asked = ", ".join(f"{name} {self._shown(name)}" for name in self.asked)
        row = ", ".join(f"{s:g}" for s in self.logits)
        many = f"({row})" if self.vocab <= STABLE else f"of {self.vocab} tokens"
        return f"{asked or 'nothing asked'} on logits {many}"

    def _shown(self, name: str) -> str:
        value = self.given[name]
        return f"{value:g}" if isinstance(value, float) else str(value)

    @property
    def vocab(self) -> int:
        """V."""
        return len(self.logits)

    @property
    def context(self) -> dict[str, tuple[int, ...]]:
        """The prompt and the output."""
        return {name: tuple(self.given.get(name, ())) for name in CONTEXT}

    @cached_property
    def parameters(self) -> Parameters:
        """What is asked, read exactly: floats count at their binary value."""
        return Parameters(**{n: v for n, v in self.given.items() if n not in CONTEXT})

    @cached_property
    def asked(self) -> list[str]:
        """The names of what is asked."""
        return self.parameters.asked()

    @property
    def filters(self) -> list[str]:
        """The filters that are asked for, in the order in which they act."""
        return [name for name in self.preset.names if name in FILTERS and name in self.asked]

    def handed(self) -> dict[str, Any]:
        """Return what the subject is given, as its own copy."""
        return deepcopy(dict(self.given))

    def with_(self, logits: Sequence[float] | None = None, **given: Any) -> "Ask":
        """Return the ask with other logits, and with other values; None takes a value away."""
        merged = {n: v for n, v in {**self.given, **given}.items() if v is not None}
        return replace(self, logits=tuple(logits) if logits else self.logits, given=merged)

    @cached_property
    def row(self) -> Row:
        """The tokens that stay, with their exact scores.

        Raises:
            ValueError: the preset refuses the request.
        """
        return self._filtered(self.parameters)

    def _filtered(self, parameters: Parameters) -> Row:
        prompt, output = self.context.values()
        return filtered(self.logits, parameters, self.preset, prompt=prompt, output=output)

    @property
    def refused(self) -> bool:
        """Whether the preset refuses the request, or leaves no token."""
        try:
            return not self.row.scores
        except ValueError:
            return True

    @cached_property
    def law(self) -> tuple[Number, ...]:
        """The exact law [V]; masses that are irrational to `DIGITS`."""
        found = self.row.law(rational(1, 10**DIGITS))
        return found.inside() if isinstance(found, Enclosure) else found

    @cached_property
    def expected(self) -> dict[str, str]:
        """The law for a report, by outcome: as fractions, or as decimals where it is irrational."""
        exact = not isinstance(self.row.law(rational(1, 10**DIGITS)), Enclosure)
        masses = {x: as_fraction(self.law[x]) for x in sorted(self.row.scores)}
        return {f"({x},)": str(m) if exact else _decimal(m) for x, m in masses.items()}

    @cached_property
    def origins(self) -> list[tuple[float, ...]]:
        """What the score of each token is computed from: equal logits under the same steps."""
        prompt, output = self.context.values()
        bias = self.parameters.bias
        return [
            (logit, float(bias.get(x, 0)), prompt.count(x), output.count(x))
            for x, logit in enumerate(self.logits)
        ]

    # What float32 may do to it.

    @cached_property
    def noise(self) -> float:
        """How far a score may be off."""
        ask = self.parameters
        prompt, output = self.context.values()
        size = max(abs(s) for s in self.logits if s > -math.inf)
        size += max((abs(float(b)) for b in ask.bias.values() if b > -math.inf), default=0.0)
        size += abs(float(ask.presence_penalty))
        size += abs(float(ask.frequency_penalty)) * (len(prompt) + len(output))
        size *= float(max(ask.repetition_penalty, 1 / ask.repetition_penalty))
        size /= float(min(ask.temperature or 1, 1))
        return U * size * (3 * sum(name in self.asked for name in CHANGES) + 4)

    @property
    def band(self) -> float:
        """The largest TV that rounding explains, and the largest excess of a sum over 1."""
        rounds = (len(self.filters) + 1) * (self.vocab + 5) * U
        return self.noise + rounds + 10.0**-DIGITS

    @property
    def reach(self) -> float:
        """How near a filter's bound a mass may be for rounding to decide."""
        return 2 * self.noise + (len(self.filters) + 2) * (self.vocab + 5) * U

    @cached_property
    def firm(self) -> bool:
        """Whether the tokens that stay are the same for all that float32 may make of the request.

        Only equal scores of equal origin tie for float32 as they do exactly; others have to be
        apart. No filter's bound may be within reach of what it is compared with.
        """
        names = self.filters
        if not names and self.parameters.temperature:
            return True
        return self._apart and all(self._settled(names[: at + 1]) for at in range(len(names)))

    @property
    def _apart(self) -> bool:
        plain = replace(self._only([]), temperature=self.parameters.temperature or 1)
        origins = self.origins
        scores = {x: score.plain for x, score in self._filtered(plain).scores.items()}
        rising = sorted(scores, key=lambda x: (scores[x], origins[x]))
        return all(
            origins[x] == origins[y] or scores[y] - scores[x] > 2 * self.noise
            for x, y in pairwise(rising)
        )

    def _only(self, filters: Iterable[str], **moved: Any) -> Parameters:
        """Return the parameters with these filters only, and other values for some of them."""
        off = {name: OFF[name] for name in self.filters if name not in filters}
        return replace(self.parameters, **{**off, **moved})

    def _settled(self, names: list[str]) -> bool:
        """Whether the last of these filters keeps the same tokens however rounding moves it."""
        *before, name = names
        here = self._filtered(self._only(names)).scores.keys()
        moved = (self._only(names, **{name: value}) for value in self.moves(name))
        if any(self._filtered(parameters).scores.keys() != here for parameters in moved):
            return False
        return name != "typical_p" or self._ranked(self._filtered(self._only(before)))

    def moves(self, name: str) -> list[Number]:
        """Return the values of a filter's bound between which float32 may take it to be."""
        value = getattr(self.parameters, name)
        if name == "top_k":
            return []
        share = rational(self.reach)
        if name in ("top_p", "typical_p"):
            least, most = value - share, value + share
        else:
            share *= {"eta": 2 * self._blur, "top_n_sigma": self._spread}.get(name, 1)
            least, most = value * (1 - share), value * (1 + share)
        lowest = rational(1, 1 << 60) if name == "typical_p" else rational(0)
        highest = None if name == "top_n_sigma" else rational(1)
        return [max(least, lowest), most if highest is None else min(most, highest)]

    @property
    def _blur(self) -> Number:
        """How many times the reach an entropy may be off."""
        return rational(math.log(self.vocab) + 3)

    @property
    def _spread(self) -> Number:
        """How many times the reach a standard deviation of logits may be off, relatively."""
        finite = [s for s in self.logits if s > -math.inf]
        mean = math.fsum(finite) / len(finite)
        deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in finite) / len(finite))
        size = max(abs(s) for s in finite)
        return rational(2 + 2 * size / deviation if deviation else 1)

    def _ranked(self, row: Row) -> bool:
        """Whether float32 ranks tokens by their distance from the entropy as they are ranked."""
        scores = {x: float(score.plain) for x, score in row.scores.items()}
        best = max(scores.values())
        weights = {x: math.exp(s - best) for x, s in scores.items()}
        mean = math.fsum(w * scores[x] for x, w in weights.items()) / math.fsum(weights.values())
        distances = sorted({abs(s - mean) for s in set(scores.values())})
        apart = 2 * self.reach * float(self._blur + 2)
        return all(b - a > apart for a, b in pairwise(distances)) and len(distances) == len(
            set(scores.values())
        )

    @property
    def edge(self) -> str:
        """The filter whose bound is met exactly, in numbers that float32 holds; "" if none is.

        Equal logits whose number is a power of two have masses, and sums of them, without rounding.
        """
        finite = [s for s in self.logits if s > -math.inf]
        fair = len(set(finite)) == 1 and len(finite) & (len(finite) - 1) == 0
        exact = all(name in ("temperature", *EDGES) for name in self.asked)
        edges = [name for name in self.asked if name in EDGES]
        if not fair or not exact or len(edges) != 1 or self.firm or not self.parameters.temperature:
            return ""
        return edges[0] if getattr(self.parameters, edges[0]) * 1024 % 1 == 0 else ""

    def beyond(self) -> list["Ask"]:
        """Return an exact edge with its bound moved to either side of it."""
        name = self.edge
        return [self.with_(**{name: value}) for value in self.moves(name)]

    # As JSON data.

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data; logits are exact, as hexadecimal strings."""
        given = self.handed()
        if "bias" in given:
            given["bias"] = {
                str(x): "-inf" if b == -math.inf else b for x, b in given["bias"].items()
            }
        return {
            "logits": [s.hex() for s in self.logits],
            "parameters": given,
            "preset": self.preset.name,
        }


EDGES = ("top_p", "typical_p")
"""Filters with a bound that equal logits can meet exactly."""


def from_json(data: Mapping[str, Any], preset: Preset) -> Ask:
    """Return the ask that JSON data holds.

    Args:
        data: what `Ask.to_json` returned, and perhaps more.
        preset: how it is to be read.

    Raises:
        ValueError: data that is no request; the message says which part.
    """
    given = data.get("parameters")
    row = _read_row(data.get("logits"))
    if not isinstance(given, dict):
        raise ValueError("case.parameters is not a set of names with values")
    values = dict(given)
    if isinstance(values.get("bias"), dict):
        try:
            values["bias"] = {int(x): float(b) for x, b in values["bias"].items()}
        except (TypeError, ValueError):
            raise ValueError("case.parameters.bias has entries that are no numbers") from None
    ask = Ask(row, values, preset)
    try:
        _ = ask.row
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"case is no request: {error}") from None
    return ask


def _read_row(texts: Any) -> tuple[float, ...]:
    try:
        row = tuple(float.fromhex(text) for text in texts)
    except (TypeError, ValueError, OverflowError):
        row = ()
    if not row or any(_rounded(s) != s for s in row):
        raise ValueError("case.logits is not a row of hexadecimal floats that float32 holds")
    return row


def _rounded(value: float) -> float:
    """Return the nearest float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _decimal(mass: Any) -> str:
    """Write an irrational mass, so that it reads as a fraction again."""
    text = f"{float(mass):.{DIGITS}g}"
    return text if "e" not in text else f"{float(text):.60f}".rstrip("0") or "0"


# What is asked, of what.

INF = math.inf
NEAR = 1 + 2.0**-23

ROWS: tuple[tuple[float, ...], ...] = (
    (1, 0),
    (0, 0),
    (2, 1, 0),
    (1, 1, 0),
    (0, -INF, 1),
    (1, NEAR, 0),  # as near as float32 can tell
    (100, 99, 97),  # their exponentials overflow
    (2, 1, 1, 0),  # a tie at the second place
    (0, 0, 0, 0),
    (-1, -3, -2, -0.5),
    (40, 0, -40, 1),  # all but one-hot
    (0, -INF, 0, -INF, 0, 0),
    (1.5, -0.5, 0, 0.75, -2, 3, -1.25, 0.25),
    (2, 0.5, 1, -INF, 0.5, 1, 0.5, 0),
)
"""Rows of logits: ties at every place, minus infinity, either sign, far apart and near."""

MORE_ROWS: tuple[tuple[float, ...], ...] = (
    (0, 0, 1),
    (-INF, 3, -INF),
    (0.25, 0.5, 1, 2, 4),
    (3, 3, 3, -1, -1),
    (-0.125, 0, 0.125, -5, 5, 5),
    (0,) * 8,
    (0,) * 16,
    (1, 2, 1, 0.5, 2, 1, -1, 0.5, 0, -1, 2, 1, -INF),
    tuple((7 * x % 16) / 4 for x in range(16)),
)

TELLING = (ROWS[0], ROWS[7], ROWS[9], ROWS[12], ROWS[13])
"""Rows that are asked for pairs of further parameters, and that relations start from."""

WIDE: tuple[tuple[float, ...], ...] = (
    tuple(((389 * x) % 1000 - 500) / 64 for x in range(1000)),
    (6.25, *[0.0] * 512),  # half of the mass in one token, the rest in small equal ones
)
"""Rows of many tokens, of which a few requests are asked."""

GRID: dict[str, tuple[Any, ...]] = {
    "temperature": (0.5, 2.0, 0.7, 0.0),
    "top_k": (2, 1, 3),
    "top_p": (0.6, 0.9, 0.5, 0.25),
    "min_p": (0.4, 0.1, 1.0),
    "typical_p": (0.6, 0.2, 0.9, 0.5),
    "epsilon": (0.1, 0.3),
    "eta": (0.3, 0.05),
    "top_n_sigma": (1.0, 0.5),
    "repetition_penalty": (1.5, 0.8),
    "presence_penalty": (0.75, -0.5),
    "frequency_penalty": (0.5, -0.25),
    "bias": ({0: 1.5}, {1: -INF}),
    "allowed": ([0, 2, 3],),
    "min_tokens": (4, 3),
}
"""Values of each parameter; the first ones are asked in pairs, too."""

MORE: dict[str, tuple[Any, ...]] = {
    "temperature": (1.3, 0.25),
    "top_k": (5, 100),
    "top_p": (0.99, 0.75, 0.0),
    "min_p": (0.02,),
}
"""Further values for a thorough look."""

FEW: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7},
    {"top_k": 50},
    {"top_p": 0.95},
    {"temperature": 0.7, "top_k": 50, "top_p": 0.9, "min_p": 0.05},
)
"""What is asked of long rows."""

CORE = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
SAID: dict[str, Any] = {"prompt": [0], "output": [1, 1, 1]}
"""What came before, where it matters: a token of the prompt, and another one three times."""


def settings(parameters: Sequence[str], thorough: bool) -> list[dict[str, Any]]:
    """Return what is asked of every row, fewer parameters first.

    Each value of each parameter alone; temperature, top_k, top_p and min_p combined, with more
    values if `thorough`; and everything at once.

    Args:
        parameters: those that the subject has.
        thorough: whether to take more values.

    >>> settings(["top_k"], False)
    [{}, {'top_k': 2}, {'top_k': 1}, {'top_k': 3}]
    """
    values = {n: GRID[n] + (MORE.get(n, ()) if thorough else ()) for n in parameters}
    core = [n for n in CORE if n in values]
    widths = {2: 4, 3: 4, 4: 2} if thorough else {2: 2, 3: 1, 4: 2}
    found: list[dict[str, Any]] = [{}]
    found += [{n: v} for n in values for v in values[n]]
    for size in range(2, len(core) + 1):
        for names in combinations(core, size):
            few = (values[n][: widths[size]] for n in names)
            found += [dict(zip(names, choice, strict=True)) for choice in product(*few)]
    if len(values) > len(core):
        found.append({n: values[n][0] for n in values})
    return [_complete(asked) for asked in found]


def pairs(parameters: Sequence[str]) -> list[dict[str, Any]]:
    """Return pairs of parameters that are not both among temperature, top_k, top_p and min_p.

    >>> pairs(["top_k", "eta"])
    [{'top_k': 2, 'eta': 0.3}]
    """
    names = [pair for pair in combinations(parameters, 2) if not set(pair) <= set(CORE)]
    return [_complete({n: GRID[n][0] for n in pair}) for pair in names]


def _complete(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked, with what else such a request has to hold."""
    given = dict(asked)
    if given.keys() & {*PENALTIES, "min_tokens"}:
        given |= SAID
    if "min_tokens" in given:
        given["eos"] = [1]
    return given


@lru_cache(maxsize=4)  # what is computed of them serves the next subject of the kind, too
def asks(preset: Preset, parameters: tuple[str, ...], thorough: bool) -> tuple[Ask, ...]:
    """Return requests that the preset takes: fewer tokens first, then fewer parameters.

    Args:
        preset: how they are read.
        parameters: those that the subject has.
        thorough: whether to ask more.
    """
    every, both = settings(parameters, thorough), pairs(parameters)
    some = [{n: v for n, v in one.items() if n in parameters} for one in FEW]
    rows = sorted((*ROWS, *(MORE_ROWS if thorough else ())), key=len)
    todo = [(row, every + (both if thorough or row in TELLING else [])) for row in rows]
    todo += [(row, [one for at, one in enumerate(some) if one not in some[:at]]) for row in WIDE]
    found = (asked_of(row, given, preset) for row, chosen in todo for given in chosen)
    return tuple(ask for ask in found if not ask.refused)


def asked_of(row: Sequence[float], given: Mapping[str, Any], preset: Preset) -> Ask:
    """Return a request of a row, with those of the allowed tokens that it has."""
    fitted = dict(given)
    if "allowed" in given:
        fitted["allowed"] = [x for x in given["allowed"] if x < len(row)]
    return Ask(tuple(float(s) for s in row), fitted, preset)
