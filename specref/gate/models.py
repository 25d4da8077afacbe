"""Toy models that whole engines are run on, and the requests that they are asked to serve.

A model is asked for laws or for logits by context, prompt and emitted tokens together. Its laws
depend on the last two tokens and on the parity of the position, and no two of them are alike: an
engine that reads a stale row, a shifted one or another request's gets the wrong law.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from specref.dist import Law, rational
from specref.gate.cases import exact
from specref.gate.subject import Subject
from specref.logits import PRESETS, Parameters, Preset, Process, Score, weights
from specref.model import Context, Model
from specref.stops import Stops, Text

Rows = tuple[tuple[int, ...], ...]

TARGET: Rows = ((2, 6, 4), (6, 4, 3), (4, 5, 5), (4, 1, 5), (1, 6, 3))
DRAFT: Rows = ((5, 4, 1), (6, 3, 1), (2, 6, 5), (1, 2, 4), (1, 2, 5))
"""Laws of three tokens, up to their sums; which row stands behind a context, `ToyModel` says. Of
random ones, known faults that hide well change these the most."""

FORBIDDING: Rows = ((2, 0, 4), (0, 4, 3), (4, 5, 5), (4, 1, 0), (1, 6, 3))
"""A target that forbids tokens which the draft proposes."""

NARROW: Rows = ((5, 3), (2, 6), (7, 1), (3, 5), (4, 3))
NARROW_DRAFT: Rows = ((2, 3), (4, 1), (3, 2), (1, 4), (5, 2))

WIDE: Rows = ((4, 3, 2, 1), (1, 4, 2, 3), (3, 1, 5, 1), (2, 2, 1, 5), (5, 1, 3, 1))
WIDE_DRAFT: Rows = ((1, 1, 3, 5), (3, 2, 4, 1), (1, 5, 2, 2), (4, 3, 2, 1), (2, 4, 1, 3))


def no_repeats(emitted: Context) -> list[int]:
    """Allow no token twice in a row, and not the last one at the start: a grammar with a state."""
    return [x for x in range(3) if x != (emitted[-1] if emitted else 2)]


ASKED: dict[str, Any] = {
    "temperature": 0.5, "top_k": 2, "top_p": 0.55, "min_p": 0.6, "typical_p": 0.6, "epsilon": 0.29,
    "eta": 0.3, "top_n_sigma": 0.8, "repetition_penalty": 2.0, "presence_penalty": 0.5,
    "frequency_penalty": 0.5, "bias": {0: 0.5}, "min_tokens": 2, "allowed": no_repeats,
}  # fmt: skip
"""What a request asks of each sampling parameter; every one of them changes laws above."""


@dataclass(frozen=True, eq=False)
class ToyModel:
    """A target and a draft model that a subject's `generate` is run on.

    Attributes:
        name: what reports call it.
        rows, drafts: weights [rows][V] of the target and of the draft, integers. Behind a context
            of n tokens that ends in a, b stands row (b + 2 a + 3 (n mod 2)) mod rows.
        prompt: what every context begins with; one that does not has a law like any other.
        parameters: the sampling parameters that are asked for, as `specref.logits.Parameters` takes
            them; empty if none are.
        preset: how these are read.
        stop: sequences of tokens that end a text, beside EOS.

    >>> model = ToyModel("toy", ((1, 2, 1), (1, 1, 2)), ((2, 1, 1),), (0, 1))
    >>> model.target((0, 1)), model.target((0, 1, 2))
    ([0.25, 0.25, 0.5], [0.25, 0.25, 0.5])
    """

    name: str
    rows: Rows
    drafts: Rows
    prompt: tuple[int, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    preset: Preset = PRESETS["transformers"]
    stop: tuple[Text, ...] = ()
    _known: dict[Any, list[float]] = field(default_factory=dict, init=False, repr=False)

    @property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self.rows[0])

    def target(self, context: Context) -> list[float]:
        """Return the law [V] of plain decoding behind a context, parameters applied, in float32.

        Raises:
            ValueError: a context that holds what is no token.
        """
        return self._law(self.rows, context)

    def draft(self, context: Context) -> list[float]:
        """Return the law [V] of the draft model behind a context, likewise."""
        return self._law(self.drafts, context)

    def logits(self, context: Context) -> list[float]:
        """Return the target's raw logits [V] behind a context, in float32."""
        return _logits(self._weights(self.rows, self._read(context)))

    def draft_logits(self, context: Context) -> list[float]:
        """Return the raw logits [V] of the draft model behind a context, in float32."""
        return _logits(self._weights(self.drafts, self._read(context)))

    def scores(self, context: Context) -> tuple[Score | None, ...]:
        """Return the target's logits behind a context as exact logarithms."""
        return weights(self._weights(self.rows, self._read(context)))

    def _law(self, rows: Rows, context: Context) -> list[float]:
        key = rows, self._read(context)
        if key not in self._known:
            self._known[key] = _floats(self._exact(*key))
        return [*self._known[key]]

    def asked(self, max_tokens: int, eos: Iterable[int]) -> tuple[Model, Model, Stops, Context]:
        """Return what a loop is given: exact target and draft, stops, and the context before.

        Under sampling parameters the target is a `Process`, whose context is what was emitted; but
        min_tokens is a matter of the loop.
        """
        prompt, least = self.prompt, int(self.parameters.get("min_tokens", 0))
        stops = Stops(max_tokens, eos, self.stop, least)
        draft = lru_cache(lambda text: exact(tuple(self.draft(text)), "float64"))
        rest = {n: v for n, v in self.parameters.items() if n not in ("min_tokens", "eos")}
        if not rest:
            bare = replace(self, parameters={})
            target = lru_cache(lambda text: exact(tuple(bare.target(text)), "float64"))
            return target, draft, stops, prompt
        asked = replace(self, parameters=rest)._process(self.rows, prompt)
        return asked, lambda text: draft((*prompt, *text)), stops, ()

    def _exact(self, rows: Rows, context: Context) -> Law:
        if not self.parameters:
            row = self._weights(rows, context)
            return tuple(rational(w, sum(row)) for w in row)
        begun, emitted = context[: len(self.prompt)], context[len(self.prompt) :]
        return self._process(rows, begun)(emitted)

    def _process(self, rows: Rows, prompt: Context) -> Process:
        def behind(emitted: Context) -> Any:
            row = self._weights(rows, (*prompt, *emitted))
            # Their spread is measured in logits, and exact logarithms have no rational one.
            return _logits(row) if "top_n_sigma" in self.parameters else weights(row)

        return Process(behind, Parameters(**self.parameters), self.preset, prompt=prompt)

    def _weights(self, rows: Rows, context: Context) -> tuple[int, ...]:
        before, last = (0, 0, *context)[-2:]
        return rows[(last + 2 * before + 3 * (len(context) % 2)) % len(rows)]

    def _read(self, context: Context) -> Context:
        tokens = tuple(int(x) for x in context)
        if any(not 0 <= x < self.vocab for x in tokens):
            raise ValueError(f"context {tokens} has tokens outside 0 <= token < {self.vocab}")
        return tokens


def _floats(law: Law) -> list[float]:
    return [float(np.float32(float(w))) for w in law]


def _logits(row: tuple[int, ...]) -> list[float]:
    with np.errstate(divide="ignore"):
        return [float(x) for x in np.log(np.array(row, np.float64)).astype(np.float32)]


class Failing:
    """A model like another one that raises once, when it is asked for the `at`-th time."""

    def __init__(self, model: ToyModel, at: int) -> None:
        self._model, self._left = model, at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        return self._counted(found) if name in ASKABLE else found

    def _counted(self, function: Callable[[Context], list[float]]) -> Any:
        def asked(context: Context) -> list[float]:
            self._left -= 1
            if self._left == 0:
                raise InjectedError("the model fails, once; the request will be tried again")
            return function(context)

        return asked

    @property
    def failed(self) -> bool:
        """Whether it has raised."""
        return self._left <= 0


ASKABLE = ("target", "draft", "logits", "draft_logits")


class InjectedError(RuntimeError):
    """What a `Failing` model raises."""


@dataclass(frozen=True)
class Request:
    """What an engine is asked for: sequences of a model, with their ends.

    Attributes:
        name: what reports call it.
        model: a `ToyModel`, or one that the subject brings.
        max_tokens, eos: where sequences end.
        certified: whether counts have to certify its law; else they only may not refute it.
    """

    name: str
    model: Any
    max_tokens: int
    eos: tuple[int, ...] = ()
    certified: bool = True

    @property
    def stops(self) -> Stops:
        """The ends of its sequences."""
        return Stops(self.max_tokens, frozenset(self.eos), getattr(self.model, "stop", ()))

    @property
    def dtype(self) -> str:
        """The coarsest type in which its laws are handed over or computed."""
        return str(getattr(self.model, "dtype", "float32"))

    @property
    def parameters(self) -> dict[str, Any]:
        """The sampling parameters that are asked for."""
        return dict(getattr(self.model, "parameters", {}))

    def law(self, context: Context) -> Law:
        """Return the target's law behind prompt and text: that of its floats, exactly.

        Raises:
            ValueError: the model returns what is no law of its vocabulary.
        """
        row = tuple(float(w) for w in self.model.target(context))
        # A bfloat16 softmax is off by no more than two roundings.
        if len(row) != self.model.vocab or min(row) < 0 or not abs(sum(row) - 1) <= 2 / 256:
            raise ValueError(f"target({context}) = {row} is no law of {self.model.vocab} tokens")
        return exact(row, "float64")

    def draft(self, context: Context) -> Law:
        """Return the draft's law, likewise; only a `ToyModel` has one."""
        return exact(tuple(self.model.draft(context)), "float64")

    def _written(self) -> dict[str, Any]:
        """Return the parameters as JSON data; a grammar is written by its name."""
        return {n: v.__name__ if callable(v) else v for n, v in self.parameters.items()}

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "request": self.name,
            "prompt": list(self.model.prompt),
            "max_tokens": self.max_tokens,
            "eos": list(self.eos),
            **({"parameters": self._written()} if self.parameters else {}),
        }


def requests(subject: Subject, thorough: bool) -> list[Request]:
    """Return what a subject is asked for, smallest first: of its own models, or of toy models."""
    if subject.models:
        return [
            Request(m.name, m, m.max_tokens, _several(m.eos))
            for m in subject.models
            if thorough or getattr(m, "profile", "") != "ci"
        ]
    return [*_plain(thorough), *_parametrised(subject, thorough)]


def _several(eos: Any) -> tuple[int, ...]:
    """Return what a model says of its ends as a tuple: one token, several, or None."""
    return tuple(sorted(Stops(None, eos).eos))


def _plain(thorough: bool) -> Iterator[Request]:
    toy = ToyModel("toy", TARGET, DRAFT, (0, 1))
    other = ToyModel("toy, another prompt", TARGET, DRAFT, (2, 0, 1))
    strict = ToyModel("toy, forbidden tokens", FORBIDDING, DRAFT, (1,))
    yield Request("no tokens", toy, 0)
    yield Request("one token", toy, 1, certified=thorough)
    yield Request("two tokens", toy, 2, certified=thorough)
    yield Request("three tokens", toy, 3)
    yield Request("EOS 2", toy, 3, (2,))
    yield Request("EOS 0 or 1", other, 3, (0, 1), certified=thorough)
    yield Request("forbidden tokens", strict, 3, certified=thorough)
    # Long enough for a round behind one that accepted three drafts.
    narrow = ToyModel("toy, two tokens", NARROW, NARROW_DRAFT, (0, 1))
    yield Request("five tokens of two", narrow, 5, certified=thorough)
    if thorough:
        wide = ToyModel("toy, four tokens", WIDE, WIDE_DRAFT, (3, 1))
        yield Request("four words, three tokens", wide, 3, (3,))
        yield Request("four tokens", toy, 4)
        yield Request("four tokens, EOS 1", other, 4, (1,))


def _telling(model: ToyModel) -> ToyModel:
    """Return a model with a prompt behind which the parameters change its law at once.

    A draft is verified there, so that parameters which act on other rows only show. Penalties of
    emitted tokens change no law at once: any prompt will do.
    """
    made = [replace(model, prompt=prompt) for prompt in product(range(model.vocab), repeat=3)]
    plain = {one.prompt: replace(one, parameters={}) for one in made}
    telling = (m for m in made if m.target(m.prompt) != plain[m.prompt].target(m.prompt))
    return next(telling, replace(model, prompt=(0, 1, 2)))


def _parametrised(subject: Subject, thorough: bool) -> Iterator[Request]:
    """Yield a request for each sampling parameter that the subject has, and one for all of them."""
    length = 3 if thorough else 2
    eos = (0,)
    if "stop" in subject.parameters:
        stopped = ToyModel("toy, a stop sequence", TARGET, DRAFT, (0, 1), stop=((1, 2), (0, 0)))
        yield Request("stop sequences", stopped, 3, certified=thorough)
    has = [name for name in subject.parameters if name in subject.preset.names]
    asked = {name: ASKED[name] for name in has if name in ASKED}
    together: dict[str, Any] = {n: asked[n] for n in ("temperature", "top_k") if n in asked}
    sets: list[dict[str, Any]] = [{name: value} for name, value in asked.items()]
    sets += [together] if len(together) > 1 else []
    for parameters in sets:
        ends = eos if "min_tokens" in parameters else ()
        if ends:
            parameters = {**parameters, "eos": ends}
        label = ", ".join(
            f"{name} {getattr(value, '__name__', value)}"
            for name, value in parameters.items()
            if name != "eos"
        )
        model = _telling(ToyModel(label, TARGET, DRAFT, (), parameters, subject.preset))
        yield Request(label, model, 3 if ends else length, ends, certified=thorough)
