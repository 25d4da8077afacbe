"""Whole engines for the tests: honest ones that look very different, and wrong ones."""

import random
from typing import Any

import numpy as np
import torch

GAMMA = 2


class Engine:
    """Row by row, in torch; subclasses break one step each.

    A round drafts up to `GAMMA` tokens, but never more than may still be emitted less one.
    """

    name = "an engine, row by row"

    def generate(self, model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
        self.begin(seed)
        rows = [self.row(model, seed, max_tokens, eos) for _ in range(n)]
        return padded(rows, max_tokens)

    def begin(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def row(self, model: Any, seed: int, max_tokens: int, eos: tuple[int, ...]) -> list[int]:
        text: list[int] = []
        while not self.over(text, max_tokens, eos):
            emitted = self.round(model, text, max_tokens)
            text = self.grown(text, emitted, max_tokens, eos)
        return text

    def over(self, text: list[int], max_tokens: int, eos: tuple[int, ...]) -> bool:
        return len(text) >= max_tokens or bool(text and text[-1] in eos)

    def grown(
        self, text: list[int], emitted: list[int], max_tokens: int, eos: tuple[int, ...]
    ) -> list[int]:
        for x in emitted:
            text = [*text, x]
            if x in eos:
                break
        return text

    def most(self, text: list[int], max_tokens: int) -> int:
        return min(GAMMA, max_tokens - len(text) - 1)

    def array(self, row: list[float]) -> Any:
        return torch.tensor(row)

    def target(self, model: Any, text: list[int]) -> Any:
        return self.array(model.target((*model.prompt, *text)))

    def round(self, model: Any, text: list[int], max_tokens: int) -> list[int]:
        drafted: list[int] = []
        q = []
        for _ in range(self.most(text, max_tokens)):
            q.append(self.array(model.draft((*model.prompt, *text, *drafted))))
            drafted.append(self.draw(q[-1]))
        p = [self.target(model, [*text, *drafted[:at]]) for at in range(len(drafted) + 1)]
        return self.verify(p, q, drafted)

    def verify(self, p: list[Any], q: list[Any], drafted: list[int]) -> list[int]:
        for at, x in enumerate(drafted):
            if not self.coin() * q[at][x] < p[at][x]:
                rest = (p[at] - q[at]).clip(0)
                return [*drafted[:at], self.draw(rest / rest.sum())]
        return [*drafted, self.draw(p[-1])]

    def draw(self, law: Any) -> int:
        return int(torch.multinomial(law, 1, generator=self.generator))

    def coin(self) -> Any:
        return torch.rand((), generator=self.generator)


class FromLogits(Engine):
    """It has temperature and top-k of its own, and asks the model for logits."""

    name = "an engine on logits"
    parameters = ("temperature", "top_k")

    def target(self, model: Any, text: list[int]) -> Any:
        return self.sampled(model, model.logits((*model.prompt, *text)))

    def sampled(self, model: Any, logits: list[float]) -> Any:
        scores = torch.tensor(logits) / model.parameters.get("temperature", 1.0)
        kept = torch.topk(scores, model.parameters.get("top_k", len(logits))).values[-1]
        return scores.masked_fill(scores < kept, -torch.inf).softmax(-1)


class Batched:
    """All rows of a round at once, in torch: rows that are done are drawn for, and dropped."""

    name = "an engine in batches"

    def generate(self, model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
        generator = torch.Generator().manual_seed(seed)
        texts: list[list[int]] = [[] for _ in range(n)]
        live = list(range(n)) if max_tokens else []
        while live:
            count = min(GAMMA, max_tokens - 1 - max(len(texts[row]) for row in live))
            drafted = torch.zeros((len(live), 0), dtype=torch.long)
            q = []
            for _ in range(count):
                q.append(self.rows(model.draft, model, live, texts, drafted))
                drawn = torch.multinomial(q[-1], 1, generator=generator)
                drafted = torch.cat((drafted, drawn), 1)
            p = [
                self.rows(model.target, model, live, texts, drafted[:, :at])
                for at in range(count + 1)
            ]
            coins = torch.rand((len(live), max(count, 1)), generator=generator)
            kept = torch.ones(len(live), dtype=torch.bool)
            accepted = torch.zeros(len(live), dtype=torch.long)
            for at in range(count):
                x = drafted[:, at : at + 1]
                fits = coins[:, at] * q[at].gather(1, x)[:, 0] < p[at].gather(1, x)[:, 0]
                kept = kept & fits
                accepted += kept
            blank = torch.zeros_like(p[-1])
            ahead = torch.stack(p, 1)[torch.arange(len(live)), accepted]
            behind = torch.stack([*q, blank], 1)[torch.arange(len(live)), accepted]
            rest = (ahead - behind).clamp(min=0)
            last = torch.multinomial(rest / rest.sum(-1, keepdim=True), 1, generator=generator)
            for at, row in enumerate(list(live)):
                for x in [*drafted[at, : accepted[at]].tolist(), int(last[at])]:
                    texts[row].append(x)
                    if x in eos:
                        break
                if len(texts[row]) >= max_tokens or texts[row][-1] in eos:
                    live.remove(row)
        return padded(texts, max_tokens)

    def rows(self, law: Any, model: Any, live: list[int], texts: Any, drafted: Any) -> Any:
        ahead = drafted.tolist()
        return torch.tensor(
            [law((*model.prompt, *texts[row], *ahead[at])) for at, row in enumerate(live)]
        )


class InNumPy(Engine):
    """The same in NumPy: the tape sees nothing of it."""

    name = "an engine in NumPy"

    def begin(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def array(self, row: list[float]) -> Any:
        return np.array(row)

    def draw(self, law: Any) -> int:
        cumulative = law.cumsum()
        u = self.generator.random() * cumulative[-1]
        return int(cumulative.searchsorted(u, "right"))

    def coin(self) -> Any:
        return self.generator.random()


class InPython:
    """Without arrays, on Python's own random numbers."""

    name = "an engine in plain Python"

    def generate(self, model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
        source = random.Random(seed)
        laws: dict[Any, Any] = {}

        def law(which: Any, context: tuple[int, ...]) -> Any:
            key = which.__name__, context
            if key not in laws:
                laws[key] = which(context)
            return laws[key]

        def draw(weights: Any) -> int:
            return source.choices(range(len(weights)), weights)[0]

        texts = []
        for _ in range(n):
            text: list[int] = []
            while len(text) < max_tokens and not (text and text[-1] in eos):
                here = (*model.prompt, *text)
                if len(text) == max_tokens - 1:
                    text.append(draw(law(model.target, here)))
                    continue
                p, q = law(model.target, here), law(model.draft, here)
                x = draw(q)
                if source.random() * q[x] < p[x]:
                    text.append(x)
                    if x not in eos:
                        text.append(draw(law(model.target, (*here, x))))
                else:
                    text.append(draw([max(a - b, 0) for a, b in zip(p, q, strict=True)]))
            texts.append(text + [-1] * (max_tokens - len(text)))
        return texts


class GoesOnAfterEos(Engine):
    """Only the last token of a round is looked at."""

    def grown(self, text: Any, emitted: Any, max_tokens: int, eos: Any) -> Any:
        return [*text, *emitted]


class OneMoreAfterEos(Engine):
    """A token is drawn behind EOS before the loop notices."""

    def row(self, model: Any, seed: int, max_tokens: int, eos: tuple[int, ...]) -> list[int]:
        text = super().row(model, seed, max_tokens, eos)
        if text and text[-1] in eos and len(text) < max_tokens:
            text.append(self.draw(self.target(model, text)))
        return text


class StopsEarly(Engine):
    """It takes a rejection for an end."""

    def over(self, text: Any, max_tokens: int, eos: Any) -> bool:
        return super().over(text, max_tokens, eos) or (len(text) == 1 and max_tokens > 1)


class Overruns(Engine):
    """Drafts are not cut to what may still be emitted, nor is what was emitted."""

    def most(self, text: list[int], max_tokens: int) -> int:
        return GAMMA

    def generate(self, model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
        self.begin(seed)
        rows = [self.row(model, seed, max_tokens, eos) for _ in range(n)]
        return padded(rows, max([max_tokens, *map(len, rows)]))


class KeepsRejected(Engine):
    """The refused token stays in the text, and the correction comes behind it."""

    def verify(self, p: Any, q: Any, drafted: Any) -> Any:
        for at, x in enumerate(drafted):
            if not self.coin() * q[at][x] < p[at][x]:
                rest = (p[at] - q[at]).clip(0)
                return [*drafted[: at + 1], self.draw(rest / rest.sum())][: len(drafted) + 1]
        return [*drafted, self.draw(p[-1])]


class StaleContext(Engine):
    """The target does not see the last token that was emitted."""

    def target(self, model: Any, text: list[int]) -> Any:
        return super().target(model, text[:-1])


class WrongBonusRow(Engine):
    """The bonus is drawn from the row of the last draft."""

    def verify(self, p: Any, q: Any, drafted: Any) -> Any:
        return super().verify([*p[:-1], p[-2] if drafted else p[-1]], q, drafted)


class SeedResetEachRound(Engine):
    """Every round starts its generator anew."""

    def row(self, model: Any, seed: int, max_tokens: int, eos: tuple[int, ...]) -> list[int]:
        self.seed = seed
        return super().row(model, seed, max_tokens, eos)

    def round(self, model: Any, text: list[int], max_tokens: int) -> list[int]:
        self.begin(self.seed)
        return super().round(model, text, max_tokens)


class SeedResetInNumPy(InNumPy, SeedResetEachRound):
    """The same where no tape can see it."""


class RowsShareDraws(Engine):
    """Every row starts its generator anew."""

    def row(self, model: Any, seed: int, max_tokens: int, eos: tuple[int, ...]) -> list[int]:
        self.begin(seed)
        return super().row(model, seed, max_tokens, eos)


class RowsShareDrawsInNumPy(InNumPy, RowsShareDraws):
    """The same where no tape can see it."""


class TemperatureIgnored(FromLogits):
    """The target is sampled at temperature 1."""

    def sampled(self, model: Any, logits: list[float]) -> Any:
        scores = torch.tensor(logits)
        kept = torch.topk(scores, model.parameters.get("top_k", len(logits))).values[-1]
        return scores.masked_fill(scores < kept, -torch.inf).softmax(-1)


class IgnoresSeed(Engine):
    """Always the same generator."""

    def begin(self, seed: int) -> None:
        super().begin(7)


class KeepsItsCache(Engine):
    """What a failed call has put into the cache stays there for the next one."""

    def __init__(self) -> None:
        self.cache: list[int] = []

    def row(self, model: Any, seed: int, max_tokens: int, eos: tuple[int, ...]) -> list[int]:
        left, self.cache = self.cache, self.cache or [0]
        text = super().row(model, seed, max_tokens, eos)
        self.cache = []
        return [*text[:-1], (text[-1] + 1) % 3] if left else text


class RemembersRequests(Engine):
    """The first token of a request goes into the draws of the next one."""

    last = 0

    def begin(self, seed: int) -> None:
        super().begin(seed + self.last)

    def row(self, model: Any, seed: int, max_tokens: int, eos: tuple[int, ...]) -> list[int]:
        self.last = len(model.prompt)
        return super().row(model, seed, max_tokens, eos)


def padded(rows: list[list[int]], width: int) -> Any:
    out = torch.full((len(rows), width), -1)
    for at, row in enumerate(rows):
        out[at, : len(row)] = torch.tensor(row, dtype=torch.long)
    return out
