"""Where a sequence ends: end tokens, stop sequences and limits, read off the emitted text alone.

Whoever decodes plainly looks for an end after every token. A round of speculation emits several at
once, and has to end where plain decoding would have, whatever stands behind in its block:

- a token of `eos` ends the text wherever it comes from: accepted inside a block, as correction or
  as bonus. It is the last token of the text; what the block holds behind it is dropped, and nothing
  is drawn again in its place;
- a stop sequence ends the text with its last token, also when it began rounds before. It is looked
  for in what was emitted, so it cannot begin in the prompt, and it stays in the text;
- `max_tokens` ends the text at that length: 0 emits nothing and asks no model;
- until `min_tokens` tokens have come, `eos` is masked in the target, which changes the law that is
  asked for, and stop sequences are overlooked. So what ends by either has more than `min_tokens`
  tokens; `logits.Parameters.min_tokens` counts alike.

The first end counts. Where several fall on one token, EOS is named before a stop sequence, and that
before the limit.

Behind an end there is no text, so no model is asked there (`Stops.ended`): both go on with
certainty. To rules and drafters they are two models like any other, and every rule that is lossless
for all models stays so, with ends at any place of its drafts.
"""

import operator
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from specref.dist import Law, entries, integers, keep, normalise, whole
from specref.model import Context, Model

Text: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, init=False)
class Stops:
    """When a sequence ends.

    Attributes:
        max_tokens: so many tokens at most; None for no limit.
        eos: the tokens that end a text; one token, several, or None may be passed.
        stop: sequences of tokens that end a text.
        min_tokens: so many tokens come before an end by `eos` or `stop`.

    >>> stops = Stops(max_tokens=4, eos=2, stop=[(0, 1)])
    >>> stops.cut((1, 0, 1, 2, 1)), stops.cut((0, 2, 1)), stops.cut((0, 0, 0, 0, 0))
    ((1, 0, 1), (0, 2), (0, 0, 0, 0))

    Raises:
        ValueError: a negative number or token, an empty stop sequence, a minimum above the limit,
            or one that holds back nothing.
    """

    max_tokens: int | None
    eos: frozenset[int]
    stop: tuple[Text, ...]
    min_tokens: int

    def __init__(
        self,
        max_tokens: int | None,
        eos: int | Iterable[int] | None = None,
        stop: Iterable[Sequence[int]] = (),
        min_tokens: int = 0,
    ) -> None:
        cure = "pass a number of tokens >= 0"
        most = None if max_tokens is None else whole(max_tokens, "max_tokens", cure, 0)
        least = whole(min_tokens, "min_tokens", cure, 0)
        ends, sequences = _tokens(eos), _sequences(stop)
        for name, value in (
            ("max_tokens", most),
            ("eos", ends),
            ("stop", sequences),
            ("min_tokens", least),
        ):
            object.__setattr__(self, name, value)
        if most is not None and least > most:
            raise ValueError(
                f"min_tokens = {least} is above max_tokens = {most}; pass 0 <= min_tokens <= {most}"
            )
        if least and not (ends or sequences):
            raise ValueError(
                f"min_tokens = {least} holds back no end; name the ends by eos or stop"
            )

    def end(self, text: Text, begun: int = 0) -> int | None:
        """Return the length of the shortest beginning of `text` that is finished, or None.

        Args:
            text: emitted tokens.
            begun: of these, so many are known to be unfinished.
        """
        limit = self.max_tokens
        if limit == 0 or not (self.eos or self.stop):
            return None if limit is None or len(text) < limit else limit
        for length in range(begun + 1, len(text) + 1):
            if text[length - 1] in self.eos or length == limit:
                return length
            if self.stop and self._stopped(text, length):
                return length
        return None

    def cut(self, text: Text, begun: int = 0) -> Text:
        """Return `text` up to its first end, which is included."""
        return text[: self.end(text, begun)]

    def over(self, text: Text) -> bool:
        """Whether a text without an end before its last token is finished."""
        return self.reason(text) is not None

    def reason(self, text: Text) -> str | None:
        """Return what finished a text that was cut: "eos", "stop" or "length"; None if nothing."""
        if text and text[-1] in self.eos:
            return "eos"
        if self.stop and self._stopped(text, len(text)):
            return "stop"
        if self.max_tokens is not None and len(text) >= self.max_tokens:
            return "length"
        return None

    def left(self, text: Text) -> int | None:
        """Return how many tokens may still be emitted after `text`, or None for no limit."""
        if self.over(text):
            return 0
        return None if self.max_tokens is None else self.max_tokens - len(text)

    def asked(self, model: Model, context: Context = ()) -> Model:
        """Return the target under these stops: `eos` is masked until `min_tokens` have come.

        The masses of the other tokens are divided by their sum. A draft model is left alone: any
        draft law will do.

        Args:
            model: target.
            context: what stood before the emitted text.

        >>> stops = Stops(5, eos=0, min_tokens=1)
        >>> target = stops.asked(lambda context: normalise([2, 1, 1]))
        >>> print(*target(()), "then", *target((1,)))
        0 1/2 1/2 then 1/2 1/4 1/4

        Raises:
            ValueError: on a call, if nothing is left to draw (also behind a text that was merely
                drafted), or for tokens that the model does not have.
        """
        start, largest = len(context), max((*self.eos, *(max(s) for s in self.stop)), default=-1)
        if largest < 0:
            return model

        def masked(context: Context) -> Law:
            row = model(context)
            if largest >= len(row):
                raise ValueError(
                    f"{'eos' if largest in self.eos else 'stop'} has token {largest}, but there "
                    f"are {len(row)} tokens; pass tokens in 0 <= token < {len(row)}"
                )
            if len(context) - start >= self.min_tokens:
                return row
            others = [x for x, w in enumerate(row) if x not in self.eos and w > 0]
            if not others:
                raise ValueError(
                    f"min_tokens = {self.min_tokens} masks eos = {sorted(self.eos)}, and after "
                    f"{len(context) - start} tokens the target has no other token; lower min_tokens"
                )
            return keep(row, others)

        return masked

    def ended(self, model: Model, context: Context = (), begun: int = 0) -> Model:
        """Return `model` as long as nothing has ended; behind an end, certainty of token 0.

        What is emitted behind an end is cut, so it does not matter; `model` is not asked there.

        Args:
            model: target or draft.
            context: what stood before the emitted text.
            begun: so many emitted tokens are known to be unfinished.
        """
        start = len(context)
        seen: list[Law] = []

        def certain(context: Context) -> Law:
            if self.end(tuple(context[start:]), begun) is None:
                seen[:] = [model(context)]
                return seen[0]
            row = seen[0] if seen else model(context[: start + begun])  # for its size and numbers
            return normalise([w * 0 + (x == 0) for x, w in enumerate(row)])

        return certain

    def _stopped(self, text: Text, length: int) -> bool:
        if length <= self.min_tokens:
            return False
        return any(
            text[max(0, length - len(sequence)) : length] == sequence for sequence in self.stop
        )


def as_stops(stops: Stops | int) -> Stops:
    """Return stops as they are, and a number of tokens as a limit that nothing undercuts."""
    return stops if isinstance(stops, Stops) else Stops(max_tokens=stops)


def finite(stops: Stops | int) -> Stops:
    """Return stops that have a limit: without one a law has no end.

    Raises:
        ValueError: no limit.
    """
    found = as_stops(stops)
    if found.max_tokens is None:
        raise ValueError("max_tokens = None has no limit; the law of whole sequences needs one")
    return found


def _tokens(eos: Any) -> frozenset[int]:
    """Read one token, several, or None."""
    if eos is None:
        return frozenset()
    try:
        listed = [operator.index(eos)]
    except TypeError:
        listed = integers(list(eos) if isinstance(eos, Set) else eos, "eos")
    return frozenset(_natural(listed, "eos"))


def _sequences(stop: Any) -> tuple[Text, ...]:
    """Read sequences of tokens, none of them empty."""
    found: list[Text] = []
    for at, sequence in enumerate(entries(() if stop is None else stop, "stop")):
        if not isinstance(sequence, Iterable):
            raise ValueError(
                f"stop[{at}] = {sequence!r} is no sequence; write lists of tokens, [[1, 2]], and "
                "single tokens as eos"
            )
        tokens = tuple(_natural(integers(sequence, f"stop[{at}]"), f"stop[{at}]"))
        if not tokens:
            raise ValueError(f"stop[{at}] is empty; a stop sequence has at least one token")
        found.append(tokens)
    return tuple(found)


def _natural(tokens: list[int], name: str) -> list[int]:
    for token in tokens:
        if token < 0:
            raise ValueError(f"{name} has token {token}; tokens are >= 0")
    return tokens
