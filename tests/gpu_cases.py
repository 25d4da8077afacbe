"""Batches for `gpu_impl.verify`, generated from a seed: what serving hands over, and what breaks.

Everything is drawn: rules, sizes, types, sampling parameters under every preset, drafts from q as
the rule wants them, draft vocabularies of their own, and, where `faults` are asked, rows that are
no laws, tokens that cannot have been drafted and parameters that are none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gpu_impl import DraftLogits, DraftProbs, OneHot, Parameters, Seeds, Uniforms, Verified, verify
from gpu_impl.call import CHAINS, NEED_Q, RULES
from specref.logits import PRESETS
from tests.gpu_laws import Rows, of_logits, of_probs

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEEPEST = 6
WIDEST = 4
FILTERS = ("top_k", "top_p", "min_p")


@dataclass(frozen=True)
class Made:
    """A batch: the arguments of one call, and views of them in NumPy that the judge needs.

    Attributes:
        rule: one of `RULES`.
        logits, tokens, begin, parents, draft, parameters, draws: as `verify` takes them.
        fallback: as `verify` takes it.
    """

    rule: str
    logits: Any
    tokens: Any
    begin: Any
    parents: Any
    draft: Any
    parameters: Parameters
    draws: Any
    fallback: int

    def verify(self, **options: Any) -> Verified:
        """Run the call, with its trace and its logprobs."""
        options = {"trace": True, "logprobs": True, "max_depth": DEEPEST, **options}
        return verify(
            self.logits, self.tokens, self.begin, self.draft, draws=self.draws,
            parents=self.parents, rule=self.rule, parameters=self.parameters,
            fallback=self.fallback, **options,
        )  # fmt: skip

    @property
    def vocab(self) -> int:
        return int(self.logits.shape[1])

    @property
    def requests(self) -> int:
        return len(self.begin) - 1

    @cached_property
    def starts(self) -> Any:
        """Where each request begins [B]."""
        return self.begin[:-1].numpy().astype(np.int64)

    @cached_property
    def request(self) -> Any:
        """The request of each node [R]."""
        return np.repeat(np.arange(self.requests), np.diff(self.begin.numpy()))

    @cached_property
    def above(self) -> Any:
        """The parent of each node, as a row [R]; -1 for roots."""
        rows = np.arange(len(self.tokens))
        roots = rows == self.starts[self.request]
        if self.parents is None:
            return np.where(roots, -1, rows - 1)
        return np.where(roots, -1, self.parents.numpy() + self.starts[self.request])

    @cached_property
    def rank(self) -> Any:
        """The place of each node among its siblings [R]; 0 for roots."""
        return ranks(self.above)

    @cached_property
    def kids(self) -> Any:
        """The children of each node in order, as rows [R, width]; -1 for none."""
        return children(self.above, self.rank)

    @cached_property
    def draft_row(self) -> Any:
        """The row of the draft's laws of each node [R]; -1 where a node has none."""
        if isinstance(self.draft, OneHot):
            return np.full(len(self.tokens), -1)
        if self.draft.row is not None:
            return self.draft.row.numpy()
        given = self.draft.logits if isinstance(self.draft, DraftLogits) else self.draft.probs
        rows = np.arange(len(self.tokens))
        if len(given) == len(rows):
            return rows
        last = np.append(self.starts[1:], len(rows)) - 1
        return np.where(rows == last[self.request], -1, rows - self.request)

    def asked(self, parameters: Parameters, of: Any) -> dict[str, Any]:
        """Return the numbers that are asked for rows of the requests `of`, in float64."""
        found = {
            name: parameters.column(name, self.requests, "cpu").double().numpy()[of]
            for name in ("temperature", *FILTERS)
        }
        if self.rule == "greedy" and parameters is self.parameters:
            found["temperature"] = np.zeros(len(of))
        return found

    @cached_property
    def scores(self) -> Any:
        """The target's logits with bias, -inf where they are masked, float64 [R, V]."""
        found = self.logits.double().numpy().copy()
        if self.parameters.bias is not None:
            with np.errstate(invalid="ignore"):  # inf - inf: no law, as it should be
                found += self.parameters.bias.double().numpy()[self.request]
        if self.parameters.allowed is not None:
            found[~self.permitted] = -np.inf
        return found

    @cached_property
    def permitted(self) -> Any:
        """Which tokens the masks allow [R, V]."""
        bits = self.parameters.allowed.numpy().view(np.uint32)
        tokens = np.arange(self.vocab)
        return (bits[:, tokens // 32] >> (tokens % 32).astype(np.uint32)) & 1 == 1

    @cached_property
    def p(self) -> Rows:
        """The target's laws, of every node."""
        asked = self.asked(self.parameters, self.request)
        preset = self.parameters.preset
        return of_logits(self.scores, asked, preset if isinstance(preset, str) else preset.name)

    @cached_property
    def q(self) -> Rows | None:
        """The laws of the draft, of every node that has one; rows without are uniform."""
        if isinstance(self.draft, OneHot):
            return None
        at = np.maximum(self.draft_row, 0)
        if isinstance(self.draft, DraftProbs):
            rows = of_probs(self.draft.probs.double().numpy()[at])
        else:
            asked = self.asked(self.draft.parameters, self.request)
            preset = self.draft.parameters.preset
            assert isinstance(preset, str)
            rows = of_logits(self.draft.logits.double().numpy()[at], asked, preset)
        if self.draft.tokens is None:
            return rows
        spread = np.zeros((2, len(at), self.vocab))
        spread[:, :, self.draft.tokens.numpy()] = rows.p, rows.off
        return replace(rows, p=spread[0], off=spread[1])

    def chosen(self, requests: Any) -> "Made":
        """Return the batch of some of the requests, in the order given; one may be there twice."""
        ends = np.append(self.starts[1:], len(self.tokens))
        rows = np.concatenate([np.arange(self.starts[b], ends[b]) for b in requests])
        sizes = (ends - self.starts)[requests]
        of = torch.as_tensor(np.asarray(requests))
        at = torch.as_tensor(rows)
        draft = self.draft
        if not isinstance(draft, OneHot):
            name = "logits" if isinstance(draft, DraftLogits) else "probs"
            if draft.row is not None:
                draft = replace(draft, row=draft.row[at])
            else:
                have = self.draft_row[rows]
                if len(getattr(draft, name)) == len(self.tokens):
                    have = rows
                kept = torch.as_tensor(have[have >= 0])
                draft = replace(draft, **{name: getattr(draft, name)[kept]})
            if isinstance(draft, DraftLogits):
                draft = replace(draft, parameters=_chosen(draft.parameters, of, at))
        if isinstance(self.draws, Seeds):
            draws: Any = Seeds(self.draws.seed[of], self.draws.start[of])
        else:
            draws = Uniforms(self.draws.coins[at], self.draws.terminal[of])
        return Made(
            self.rule, self.logits[at], self.tokens[at],
            torch.tensor([0, *np.cumsum(sizes)], dtype=self.begin.dtype),
            None if self.parents is None else self.parents[at],
            draft, _chosen(self.parameters, of, at), draws, self.fallback,
        )  # fmt: skip


def _chosen(parameters: Parameters, of: Any, at: Any) -> Parameters:
    found = {
        name: getattr(parameters, name)[of]
        for name in ("temperature", *FILTERS, "bias")
        if isinstance(getattr(parameters, name), torch.Tensor)
    }
    if parameters.allowed is not None:
        found["allowed"] = parameters.allowed[at]
    return replace(parameters, **found)


def ranks(above: Any) -> Any:
    """Return the place of each row among those of the same parent."""
    order = np.argsort(above, kind="stable")
    sorted_ = above[order]
    first = np.searchsorted(sorted_, sorted_)
    found = np.empty(len(above), np.int64)
    found[order] = np.arange(len(above)) - first
    return np.where(above < 0, 0, found)


def children(above: Any, rank: Any) -> Any:
    """Return the children of each row [R, width], -1 for none."""
    below = above >= 0
    found = np.full((len(above), int(rank.max(initial=0)) + 1), -1)
    found[above[below], rank[below]] = np.flatnonzero(below)
    return found


def batches(
    seed: int, count: int, requests: int, *, faults: bool = False, rules: Any = RULES,
    vocabs: Any = (2, 3, 5, 8, 17, 32, 33, 64), filters: bool = True,
) -> Iterator[Made]:  # fmt: skip
    """Yield batches; every rule, preset and type comes in turn, all else is drawn.

    Args:
        seed: of everything.
        count: of batches.
        requests: in each batch.
        faults: whether inputs are broken now and then.
        rules, vocabs: those to take.
        filters: whether sampling parameters other than the temperature are asked for.
    """
    for at in range(count):
        rng = np.random.default_rng([seed, at])
        rule = rules[at % len(rules)]
        preset = list(PRESETS)[(at // len(rules) + at) % len(PRESETS)]
        yield _made(rng, rule, preset, requests, int(rng.choice(vocabs)), faults, filters)


def _made(
    rng: Any, rule: str, preset: str, requests: int, vocab: int, faults: bool, filters: bool
) -> Made:
    tokens, begin, parents = _forest(rng, requests, rule in CHAINS)
    nodes = len(tokens)
    dtype = DTYPES[rng.integers(3)]
    kinds = ("plain", "shared", "each") if filters else ("plain",)
    parameters = _parameters(rng, preset, requests, nodes, vocab, str(rng.choice(kinds)), faults)
    logits = _logits(rng, (nodes, vocab), parameters.bias is not None).to(dtype)
    if parameters.bias is not None:
        logits = (logits.float() * 8).round().clamp(-512, 512).to(dtype) / 8
    if faults:
        logits = _broken(rng, logits)
    draft = _draft(rng, rule, logits, requests, preset, faults) if rule in NEED_Q else OneHot()
    first = Made(rule, logits, tokens, begin, parents, draft, parameters, None, 0)
    tokens = _drawn(rng, first, faults)
    kind = (torch.int32, torch.int64)[rng.integers(2)]
    made = replace(first, tokens=tokens.to(kind), fallback=int(rng.integers(vocab)))
    return replace(made, draws=_draws(rng, made))


def _forest(rng: Any, requests: int, chain: bool) -> tuple[Any, Any, Any]:
    """Return empty tokens, boundaries and parents, of 64 different drafts that come in turn."""
    drafts = [_chain(rng) if chain else _tree(rng) for _ in range(min(64, requests))]
    of = rng.integers(len(drafts), size=requests)
    above = [drafts[at] for at in of]
    begin = torch.tensor([0, *np.cumsum([len(one) for one in above])])
    parents = None if chain else torch.as_tensor(np.concatenate(above))
    if parents is not None and rng.integers(2):
        begin, parents = begin.int(), parents.int()
    return torch.zeros(int(begin[-1]), dtype=torch.int64), begin, parents


def _chain(rng: Any) -> Any:
    return np.arange(int(rng.integers(DEEPEST + 1)) + 1) - 1


def _tree(rng: Any) -> Any:
    parents, depths, widths = [-1], [0], [0]
    for _ in range(int(rng.integers(17))):
        free = [at for at in range(len(parents)) if depths[at] < DEEPEST and widths[at] < WIDEST]
        up = int(rng.choice(free))
        widths[up] += 1
        parents.append(up)
        depths.append(depths[up] + 1)
        widths.append(0)
    return np.array(parents)


def _logits(rng: Any, shape: tuple[int, int], coarse: bool) -> Any:
    """Return logits: spread or flat, with ties in every fourth row and -inf in every fifth."""
    spread = rng.choice([0.5, 1.0, 3.0, 8.0], size=(shape[0], 1))
    values = rng.standard_normal(shape) * spread + rng.choice([0, -20, 30])
    ties = rng.random(shape[0]) < 0.25
    values[ties] = np.round(values[ties])
    values[(rng.random(shape) < 0.2) & (rng.random((shape[0], 1)) < 0.2)] = -np.inf
    empty = ~np.isfinite(values).any(1)
    values[empty, 0] = 1.0
    return torch.as_tensor(values, dtype=torch.float32)


def _broken(rng: Any, logits: Any) -> Any:
    """Return logits of which some rows are no laws."""
    found = logits.clone()
    hurt = rng.random(len(logits))
    rows = torch.as_tensor(np.flatnonzero(hurt < 0.06))
    at = torch.as_tensor(rng.integers(logits.shape[1], size=len(rows)))
    for kind, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        some = rows[kind::3]
        if value == -torch.inf:
            found[some] = value
        else:
            found[some, at[kind::3]] = value
    found[torch.as_tensor(np.flatnonzero(hurt < 0.01))] = torch.nan
    return found


def _parameters(
    rng: Any, preset: str, requests: int, nodes: int, vocab: int, kind: str, faults: bool
) -> Parameters:
    """Return what is asked: nothing, the same of all requests, or something else of each."""
    names = PRESETS[preset].names
    if kind == "plain":
        return Parameters(temperature=float(rng.choice([1.0, 0.75, 2.0])), preset=preset)
    n = requests if kind == "each" else 1
    # Shares that no few equal tokens meet exactly.
    values: dict[str, Any] = {
        "temperature": np.where(rng.random(n) < 0.15, 0.0, rng.uniform(0.25, 2.0, n)),
        "top_k": rng.integers(0, vocab if preset == "mlx" else vocab + 2, n),
        "top_p": np.where(rng.random(n) < 0.3, 1.0, rng.uniform(0.05, 0.98, n)),
        "min_p": np.where(rng.random(n) < 0.5, 0.0, rng.uniform(0.01, 0.6, n)),
    }
    if PRESETS[preset].top_p_zero != "refused":
        values["top_p"][rng.random(n) < 0.05] = 0.0
    found: dict[str, Any] = {}
    for name, column in values.items():
        if name not in names or rng.random() < 0.25:
            continue
        dtype = torch.int64 if name == "top_k" else torch.float32
        if name != "top_k" and faults and kind == "each":
            column[rng.random(n) < 0.02] = rng.choice([np.nan, -0.5, 1e9])
        given = torch.as_tensor(column, dtype=dtype)
        found[name] = given if kind == "each" else given[0].item()
    if "bias" in names and rng.random() < 0.3:
        bias = np.round(rng.uniform(-3, 3, (requests, vocab)) * 8) / 8
        bias[:, 1:][rng.random((requests, vocab - 1)) < 0.1] = -np.inf
        found["bias"] = torch.as_tensor(bias, dtype=torch.float32)
    if "allowed" in names and rng.random() < 0.3:
        allowed = rng.random((nodes, -(-vocab // 32) * 32)) < 0.7
        allowed[np.arange(nodes), rng.integers(vocab, size=nodes)] = True
        words = (allowed.reshape(nodes, -1, 32) << np.arange(32, dtype=np.uint64)).sum(2)
        found["allowed"] = torch.as_tensor(words.astype(np.uint32).view(np.int32))
    return Parameters(preset=preset, **found)


def _draft(
    rng: Any, rule: str, logits: Any, requests: int, preset: str, faults: bool
) -> DraftLogits | DraftProbs:
    """Return draft laws that are near the target's: as logits or as probabilities."""
    nodes, vocab = logits.shape
    tokens = None
    near = torch.nan_to_num(logits.float(), nan=0.0, posinf=9.0, neginf=-9.0)
    near = near + torch.as_tensor(rng.standard_normal(logits.shape) * 0.7, dtype=torch.float32)
    if vocab > 3 and rng.random() < 0.3:
        size = int(rng.integers(2, vocab))
        tokens = torch.as_tensor(rng.permutation(vocab)[:size].copy())
        near = near[:, tokens]
    row = None
    layout = rng.integers(3)
    if layout == 1:
        row = torch.as_tensor(rng.permutation(nodes))
        near = near[torch.as_tensor(np.argsort(row.numpy()))].contiguous()
    if rng.integers(2):
        dtype = DTYPES[rng.integers(3)]
        given = near.to(dtype)
        if faults:
            given = _broken(rng, given)
        asked = {}
        if rng.integers(2):
            asked["temperature"] = torch.as_tensor(
                np.where(rng.random(requests) < 0.1, 0, rng.uniform(0.3, 2, requests))
            ).float()
        if rng.integers(2):
            asked["top_k"] = torch.as_tensor(rng.integers(1, max(2, near.shape[1]), requests))
        return DraftLogits(given, Parameters(preset=preset, **asked), row, None, tokens)
    probs = near.softmax(1)
    if faults:
        probs[torch.as_tensor(np.flatnonzero(rng.random(nodes) < 0.03))] *= -1
        probs[torch.as_tensor(np.flatnonzero(rng.random(nodes) < 0.02))] = 0
        probs[torch.as_tensor(np.flatnonzero(rng.random(nodes) < 0.02)), 0] = torch.nan
    return DraftProbs(probs.to(DTYPES[rng.integers(3)]), row, tokens)


def _drawn(rng: Any, made: Made, faults: bool) -> Any:
    """Return tokens drawn from q as the rule wants them: siblings with or without replacement."""
    rows = made.q if made.q is not None else made.p
    below = np.flatnonzero(made.above >= 0)
    up, rank = made.above[below], made.rank[below]
    chance = np.where((rows.bad | rows.lawless)[:, None], 1.0, rows.p)
    if made.rule == "rrs_without" or (made.q is None and rng.integers(2)):
        with np.errstate(divide="ignore"):
            keys = np.log(chance) + rng.gumbel(size=chance.shape)
        order = np.argsort(-keys, axis=1)
        place = np.minimum(rank, made.vocab - 1)
        drawn = order[up, place]
        drawn = np.where((rank < made.vocab) & (chance[up, drawn] > 0), drawn, -1)
    else:
        sums = np.cumsum(chance[up], 1)
        spot = rng.random((len(up), 1)) * sums[:, -1:]
        drawn = np.minimum((sums <= spot).sum(1), made.vocab - 1)
        last = made.vocab - 1 - (chance[up][:, ::-1] > 0).argmax(1)
        drawn = np.minimum(drawn, last)
    drawn = np.where(rng.random(len(drawn)) < 0.04, -1, drawn)
    if faults:
        hurt = rng.random(len(drawn))
        drawn = np.where(hurt < 0.03, rng.choice([-7, made.vocab, made.vocab + 9]), drawn)
        stray = (hurt > 0.03) & (hurt < 0.12)
        drawn = np.where(stray, rng.integers(made.vocab, size=len(drawn)), drawn)
    tokens = rng.integers(-3, made.vocab + 3, size=len(made.tokens))  # of roots: not looked at
    tokens[below] = drawn
    return torch.as_tensor(tokens)


def _draws(rng: Any, made: Made) -> Seeds | Uniforms:
    """Return seeds, or uniforms of which some lie at the ends and close to where tests turn."""
    if rng.integers(2):
        info = np.iinfo(np.int64)
        seed = rng.integers(info.min, info.max, made.requests)
        return Seeds(torch.as_tensor(seed), torch.as_tensor(rng.integers(1 << 40, size=len(seed))))
    coins, terminal = (
        rng.integers(1 << 53, size=n) * 2.0**-53 for n in (len(made.tokens), made.requests)
    )
    for draws in (coins, terminal):
        which = rng.random(len(draws))
        draws[which < 0.02] = 0.0
        draws[which > 0.98] = 1 - 2.0**-53
    if made.q is not None:
        # As near to p / q as 2^-12: outside every band, but seen by no test on samples.
        turn = np.flatnonzero((made.above >= 0) & (made.tokens.numpy() >= 0))
        turn = turn[(made.tokens.numpy()[turn] < made.vocab) & (rng.random(len(turn)) < 0.1)]
        token, up = made.tokens.numpy()[turn], made.above[turn]
        with np.errstate(divide="ignore", invalid="ignore"):
            cut = made.p.p[up, token] / made.q.p[up, token]
        cut = np.where(cut < 0.99, cut, 0.5) * (1 + rng.choice([-1, 1], len(turn)) * 2.0**-12)
        coins[turn] = np.round(cut * 2.0**53) * 2.0**-53
    return Uniforms(torch.as_tensor(coins), torch.as_tensor(terminal))
