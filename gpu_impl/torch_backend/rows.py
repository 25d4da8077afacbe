"""Rows in plain torch, in float64: the readable twin of every other implementation of them.

Three functions are all that touches rows of size V: `laws` reads their scalars, `mass` and `draw`
go over max(a p - c q, 0), which every rule's residual is (`walk`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gpu_impl.laws import Laws
from gpu_impl.parameters import Reading

CHUNK = 16
"""Rows that are worked on together: their float64 copies stay small."""


@dataclass(frozen=True)
class Side:
    """The rows of the target, or of the draft.

    Attributes:
        x: [rows, width], float32, bfloat16 or float16; the last stride is 1.
        probs: whether they are probabilities, not logits.
        reading: the preset.
        temperature, top_k, top_p, min_p: [B], float64; top_k int32.
        filters: whether any filter may act.
        bias, allowed: see `Parameters`, or None.
        place: int32 [V], the column of each target token, -1 if it has none; None if it is its own.
    """

    x: Any
    probs: bool
    reading: Reading
    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    filters: bool
    bias: Any = None
    allowed: Any = None
    place: Any = None


@dataclass(frozen=True)
class Picked:
    """Rows of a side, in any order; rows may repeat.

    Attributes:
        side: where they are.
        rows: int64 [n].
        requests: int64 [n], whose parameters they have.
        nodes: int64 [n], whose mask they have.
    """

    side: Side
    rows: Any
    requests: Any
    nodes: Any

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, index: Any) -> "Picked":
        """Return some of them, by slice, mask or index."""
        return Picked(self.side, self.rows[index], self.requests[index], self.nodes[index])


def laws(picked: Picked) -> Laws:
    """Return the scalars of rows."""
    parts = [_laws(picked.at(chunk)) for chunk in _chunks(len(picked))]
    return Laws(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def mass(
    p: Picked, p_laws: Laws, q: Picked | None, q_laws: Laws | None, a: Any, c: Any, out: Any = None
) -> Any:
    """Return sum_v max(a p(v) - c q(v), 0) over the tokens that are not excluded.

    Args:
        p, p_laws: target rows and their scalars, n.
        q, q_laws: draft rows, or None for none.
        a, c: float64 [n].
        out: int32 [n, w], tokens that are excluded, padded with -1; or None.
    """
    parts = [
        _weights(p, p_laws, q, q_laws, a, c, out, chunk).cumsum(1)[:, -1]
        for chunk in _chunks(len(p))
    ]
    return torch.cat(parts)


def draw(
    p: Picked, p_laws: Laws, q: Picked | None, q_laws: Laws | None, a: Any, c: Any, out: Any, u: Any
) -> tuple[Any, Any]:
    """Draw one token of each row from the weights of `mass`, by inverse CDF in token order.

    Args:
        u: float64 [n], the draws.

    Returns:
        int32 [n], the tokens, -1 where there is no mass; and float64 [n], the mass.
    """
    tokens, masses = [], []
    for chunk in _chunks(len(p)):
        weights = _weights(p, p_laws, q, q_laws, a, c, out, chunk)
        sums = weights.cumsum(1)
        total = sums[:, -1]
        over = sums > (u[chunk] * total)[:, None]
        # Rounded up, u * total can be the total: the last token that has weight then.
        last = weights.shape[1] - 1 - (weights > 0).flip(1).byte().argmax(1)
        token = torch.where(over.any(1), over.byte().argmax(1), last)
        tokens.append(torch.where(total > 0, token, -1).int())
        masses.append(total)
    return torch.cat(tokens), torch.cat(masses)


def mass_at(picked: Picked, known: Laws, tokens: Any) -> Any:
    """Return the mass of one token of each row: float64 [n]; 0 for those outside 0 <= token < V."""
    side = picked.side
    vocab = side.x.shape[1] if side.place is None else len(side.place)
    inside = (tokens >= 0) & (tokens < vocab)
    token = torch.where(inside, tokens, 0).long()
    column = token
    if side.place is not None:
        column = side.place[token].long()
        inside = inside & (column >= 0)
        column = column.clamp(min=0)
    x = side.x[picked.rows, column].float()
    if side.bias is not None:
        x = x + side.bias[picked.requests, token]
    if side.allowed is not None:
        word = side.allowed[picked.nodes, token >> 5]
        inside = inside & ((word >> (token & 31)) & 1).bool()
    if side.probs:
        found = x.double() / known.total
    else:
        kept = (x > known.cut) | ((x == known.cut) & (column >= known.low) & (column <= known.high))
        found = ((x.double() - known.top.double()) * known.scale.double()).exp() / known.total
        inside = inside & kept
    return torch.where(inside & ~known.bad, found, 0.0)


def _chunks(n: int) -> Iterator[slice]:
    for first in range(0, max(n, 1), CHUNK):
        yield slice(first, first + CHUNK)


def _read(picked: Picked) -> Any:
    """Return the numbers of rows as the filters see them: float32 [n, width]."""
    side = picked.side
    x = side.x[picked.rows].float()
    if side.bias is not None:
        x = x + side.bias[picked.requests]
    if side.allowed is not None:
        bits = torch.arange(32, dtype=torch.int32, device=x.device)
        words = side.allowed[picked.nodes]
        allowed = ((words[:, :, None] >> bits) & 1).bool().flatten(1)[:, : x.shape[1]]
        x = x.masked_fill(~allowed, -torch.inf)
    return x


def _laws(picked: Picked) -> Laws:
    side = picked.side
    x = _read(picked)
    width = x.shape[1]
    finite = x.isfinite()
    some = finite.any(1)
    best = torch.where(finite, x, -torch.inf).argmax(1)
    top = torch.where(some, x.gather(1, best[:, None])[:, 0], 0.0)
    bad = x.isnan().any(1) | (x == torch.inf).any(1) | ~some
    nothing = torch.zeros_like(best)
    if side.probs:
        total = x.double().cumsum(1)[:, -1]
        bad = bad | (x < 0).any(1) | ~(total > 0)
        zero = torch.zeros_like(top)
        return Laws(
            top, zero + 1, zero, nothing.int(), nothing.int() + width, total,
            torch.where(some, best, -1).int(), bad, torch.zeros_like(bad),
        )  # fmt: skip
    asked = _Asked.of(picked, width)
    scale = torch.where(asked.greedy | asked.lawless, 1.0, 1.0 / asked.temperature).float()
    x, top = torch.where(bad[:, None], 0.0, x), torch.where(bad, 0.0, top)
    low, high = nothing, nothing + width - 1
    hot = ((x.double() - top.double()[:, None]) * scale.double()[:, None]).exp()
    cut = torch.full_like(top, -torch.inf)
    if side.filters:
        cut, low, high = _cut(x, top, scale, asked, side.reading)
        ids = torch.arange(width, device=x.device)
        ties = (x == cut[:, None]) & (ids >= low[:, None]) & (ids <= high[:, None])
        hot = torch.where((x > cut[:, None]) | ties, hot, 0.0)
    total = hot.cumsum(1)[:, -1]
    return Laws(
        top,
        scale,
        torch.where(asked.greedy, top, cut),
        torch.where(asked.greedy, best, low).int(),
        torch.where(asked.greedy, best, high).int(),
        torch.where(asked.greedy, 1.0, total),
        torch.where(some, best, -1).int(),
        bad,
        asked.lawless,
    )


@dataclass(frozen=True)
class _Asked:
    """The parameters of rows [n], and which of them are off, wrong, or ask for greedy."""

    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    greedy: Any
    lawless: Any

    @staticmethod
    def of(picked: Picked, width: int) -> "_Asked":
        side, reading = picked.side, picked.side.reading
        t, k, p, m = (
            column[picked.requests]
            for column in (side.temperature, side.top_k, side.top_p, side.min_p)
        )
        greedy = t == 0
        fine = greedy | ((t >= reading.coldest) & (t <= reading.hottest) & t.isfinite())
        fine = fine & (t >= 0) & (k >= 0) & (p >= 0) & (p <= 1) & (m >= 0) & (m <= 1)
        if not reading.whole_top_k:
            fine = fine & (k < width)
        if reading.top_p_zero == "refused":
            fine = fine & (p > 0)
        if reading.top_p_zero == "off":
            p = torch.where(p == 0, 1.0, p)
        k = torch.where((k == 0) | (k >= width) | ~fine, width, k)
        p, m = torch.where(fine, p, 1.0), torch.where(fine, m, 0.0)
        return _Asked(t, k, p, m, greedy, ~fine)


def _cut(x: Any, top: Any, scale: Any, asked: _Asked, reading: Reading) -> tuple[Any, Any, Any]:
    """Return the smallest logit that stays, and between which tokens ties with it do.

    In the order by logit, ties in the order in which they stay, every filter keeps a beginning.
    """
    width = x.shape[1]
    if reading.highest:
        values, ids = x.flip(1).sort(dim=1, descending=True, stable=True)
        ids = width - 1 - ids
    else:
        values, ids = x.sort(dim=1, descending=True, stable=True)
    # last[i]: how many stay if the one at i does, and all that are equal to it.
    last = torch.searchsorted(-values, -values, right=True)
    kept = (values > -torch.inf).sum(1)
    apart = values.double() - top.double()[:, None]
    hot_weights = (apart * scale.double()[:, None]).exp()
    cold_weights = apart.exp() if not all(reading.hot) else hot_weights

    def whole(count: Any, ties: bool, limit: Any) -> Any:
        if not ties:
            return count
        return torch.minimum(last.gather(1, (count - 1)[:, None])[:, 0], limit)

    for group, hot in zip(reading.groups, reading.hot, strict=False):
        weights = hot_weights if hot else cold_weights
        limit = kept
        for name in group:
            if name == "top_k":
                count = whole(torch.minimum(asked.top_k, limit), reading.top_k_all, limit)
            elif name == "top_p":
                sums = weights.cumsum(1)
                wanted = asked.top_p * sums.gather(1, (limit - 1)[:, None])[:, 0]
                short = sums <= wanted[:, None] if reading.exceeds else sums < wanted[:, None]
                count = torch.minimum(short.sum(1) + 1, limit)
                count = whole(count, reading.top_p_all, limit)
                count = torch.where(asked.top_p < 1, count, limit)
            else:
                least = asked.min_p[:, None]
                count = torch.minimum((weights >= least).sum(1), limit)
                count = torch.where(asked.min_p > 0, count, limit)
            kept = torch.minimum(kept, count)
    end = (kept - 1)[:, None]
    cut, token = values.gather(1, end)[:, 0], ids.gather(1, end)[:, 0]
    every = last.gather(1, end)[:, 0] == kept
    low = torch.where(every | (not reading.highest), 0, token)
    high = torch.where(every | reading.highest, width - 1, token)
    return cut, low, high


def _weights(
    p: Picked, p_laws: Laws, q: Picked | None, q_laws: Laws | None, a: Any, c: Any, out: Any,
    chunk: slice,
) -> Any:  # fmt: skip
    """Return max(a p - c q, 0) off the excluded tokens: float64 [n, V]."""
    weights = _masses(p.at(chunk), Laws(*(column[chunk] for column in p_laws))) * a[chunk][:, None]
    if q is not None:
        assert q_laws is not None
        taken = _masses(q.at(chunk), Laws(*(column[chunk] for column in q_laws)))
        taken = torch.where(c[chunk][:, None] > 0, taken * c[chunk][:, None], 0.0)
        weights = (weights - taken).clamp(min=0)
    if out is not None and out.shape[1]:
        at = out[chunk].long()
        # Pads go to a column of their own.
        weights = torch.nn.functional.pad(weights, (0, 1))
        weights = weights.scatter(1, torch.where(at < 0, weights.shape[1] - 1, at), 0.0)[:, :-1]
    return weights


def _masses(picked: Picked, known: Laws) -> Any:
    """Return the laws of rows: float64 [n, V]."""
    x = _read(picked)
    if picked.side.probs:
        found = x.double() / known.total[:, None]
    else:
        ids = torch.arange(x.shape[1], device=x.device)
        ties = (
            (x == known.cut[:, None]) & (ids >= known.low[:, None]) & (ids <= known.high[:, None])
        )
        found = (x.double() - known.top.double()[:, None]) * known.scale.double()[:, None]
        found = found.exp() / known.total[:, None]
        found = torch.where((x > known.cut[:, None]) | ties, found, 0.0)
    found = torch.where(known.bad[:, None], 0.0, found)
    place = picked.side.place
    if place is None:
        return found
    return torch.where(place >= 0, found[:, place.clamp(min=0).long()], 0.0)
