"""Twins: samplers as real engines write them, honest and wrong, each with the verdict it deserves.

Every twin is a subject for the gate, written from scratch in a style of its own: batched or row by
row, in probabilities or logarithms, with every way to draw, to count accepted drafts and to
invert a CDF that is common in torch code. `TWINS` says in advance what the gate must find.
"""

import os
import random
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils import dlpack

from specref.choice import Proposal
from specref.draft import tree

MEASURED, SAMPLES = "measured law", "samples"
CHANGES = "the output changes although every draw on the tape is the same"


@dataclass
class Twin:
    """A subject and what the gate should say of it.

    Attributes:
        verdict: "pass", "fail" or "inconclusive".
        depth: at which the joint law is judged; "" if the gate should not get that far.
        fails: severity of each claim that must fail; all others must not.
        fault: a known fault that must be among those named.
        escape: pattern of an escape that must be logged; "" if there must be none.
        says: words of the message of the first failure, or of what was left open.
    """

    name: str
    sample: Callable[[Any, int, int], Any]
    rules: tuple[str, ...] = ()
    drafts: Any = None
    shape: str = "chain"
    propose: Callable[[Any, int, int], Any] | None = None
    decide: Callable[[Any, Any], Any] | None = None
    time_limit: float = 20.0
    verdict: str = "pass"
    depth: str = MEASURED
    fails: dict[str, str] = field(default_factory=dict)
    fault: str | None = None
    escape: str = ""
    says: str = ""


TWINS: dict[str, Twin] = {}


def twin(*rules: str, **known: Any) -> Callable[[Any], Any]:
    """Register a sampler under its name; of a class, an instance."""

    def register(found: Any) -> Any:
        subject = found() if isinstance(found, type) else found
        sample = getattr(subject, "sample", subject)
        name = re.sub("(?<!^)(?=[A-Z])", "_", found.__name__).lower()
        others = {key: getattr(subject, key, None) for key in ("propose", "decide")}
        TWINS[name] = Twin(name, sample, rules, **others, **known)
        return found

    return register


def wrong(*rules: str, **known: Any) -> Callable[[Any], Any]:
    """Register a sampler that must fail, and on the claims listed only."""
    return twin(*rules, verdict="fail", **known)


# Honest: the token rule.


@twin("token")
def batched_products(case, n, seed):
    """u q < p for all positions at once; correction and bonus in one multinomial."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    k = x.shape[1]
    px = p[:, :k].gather(-1, x.unsqueeze(-1)).squeeze(-1)
    qx = q.gather(-1, x.unsqueeze(-1)).squeeze(-1)
    accept = torch.rand(n, k, generator=g) * qx < px
    kept = accept.long().cumprod(-1).sum(-1)
    rows = torch.arange(n)
    p_last = p[rows, kept]
    q_last = F.pad(q, (0, 0, 0, 1))[rows, kept]
    left = (p_last - q_last).clamp(min=0)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, p_last)
    extra = torch.multinomial(left / left.sum(-1, keepdim=True), 1, generator=g)
    out = torch.full((n, k + 1), -1)
    columns = torch.arange(k).expand(n, k)
    out[:, :k] = torch.where(columns < kept[:, None], x, out[:, :k])
    return out.scatter(1, kept[:, None], extra)


@twin("token")
def uniforms_up_front(case, n, seed):
    """One buffer of float32 uniforms for a whole round; the last column inverts the CDF."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    k, vocab = case.gamma, case.vocab
    noise = torch.empty(n, k + 1).uniform_(generator=g)
    index = x[..., None]
    ratio = p[:, :-1].gather(2, index)[..., 0] / q.gather(2, index)[..., 0]
    refused = (noise[:, :k] >= ratio).cumsum(1) > 0
    kept = (~refused).sum(1)
    diff = p.clone()
    diff[:, :k] -= q
    diff.clamp_min_(0)
    row = torch.arange(n)
    law = diff[row, kept]
    dead = law.sum(-1) <= 0
    law[dead] = p[row, kept][dead]
    cdf = law.cumsum(-1)
    # The product can round up to the total, so never step past the last token with mass.
    last = vocab - 1 - law.flip(-1).gt(0).int().argmax(-1, keepdim=True)
    sought = noise[:, k:] * cdf[:, -1:]
    extra = torch.searchsorted(cdf, sought, right=True).minimum(last)
    out = x.new_full((n, k + 1), -1)
    out[:, :k] = x.masked_fill(refused, -1)
    out[row, kept] = extra[:, 0]
    return out


@twin("token")
class PreallocatedVerifier:
    """An engine that keeps its buffers and writes into them, in inference mode, in float64."""

    def __init__(self):
        self.buffers = {}

    def buffer(self, name, shape, dtype):
        held = self.buffers.get(name)
        if held is None or held.shape != shape:
            held = self.buffers[name] = torch.empty(shape, dtype=dtype)
        return held

    @torch.inference_mode()
    def sample(self, case, n, seed):
        p, q, x = case.tensors(n, dtype="float64")
        k = x.size(1)
        coins = self.buffer("coins", (n, k), torch.float64)
        coins.uniform_(generator=torch.Generator().manual_seed(seed))
        out = self.buffer("out", (n, k + 1), torch.int64).fill_(-1)
        alive = self.buffer("alive", (n,), torch.bool).fill_(True)
        final = torch.zeros(n, case.vocab, dtype=torch.float64)
        for i in range(k):
            token = x[:, i : i + 1]
            numerator = p[:, i].gather(1, token).squeeze(1)
            denominator = q[:, i].gather(1, token).squeeze(1)
            keep = alive & (coins[:, i].mul_(denominator) < numerator)
            out[:, i].masked_scatter_(keep, token[keep])
            gone = alive & ~keep
            rest = torch.maximum(p[:, i] - q[:, i], torch.zeros(()))
            total = rest.sum(-1, keepdim=True)
            rest = torch.where(total > 0, rest, p[:, i])
            final.index_put_((gone,), rest[gone])
            alive &= keep
        final[alive] = p[alive, k]
        final.div_(final.sum(-1, keepdim=True))
        point = torch.empty(n, 1, dtype=torch.float64).uniform_()
        cdf = final.cumsum(-1)
        cdf /= cdf[:, -1:].clone()
        token = (cdf <= point).sum(-1)
        where = (out >= 0).sum(1)
        out.index_put_((torch.arange(n), where), token)
        return out.clone()


def _round(
    p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, u: torch.Tensor, k: int
) -> torch.Tensor:
    out = torch.full([k + 1], -1, dtype=torch.long)
    kept = 0
    refused = False
    while kept < k and not refused:
        token = int(x[kept])
        if bool(u[kept] * q[kept, token] < p[kept, token]):
            out[kept] = token
            kept += 1
        else:
            refused = True
    weights = p[kept]
    if refused:
        left = torch.relu(p[kept] - q[kept])
        if float(left.sum()) > 0.0:
            weights = left
    out[kept] = torch.multinomial(weights, 1)[0]
    return out


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # old, and still found in engines
    _scripted = torch.jit.script(_round)


@twin("token")
def scripted(case, n, seed):
    """The round itself is TorchScript."""
    torch.manual_seed(seed)
    p, q, x = case.tensors(n)
    u = torch.rand(n, case.gamma)
    return torch.stack([_scripted(p[i], q[i], x[i], u[i], case.gamma) for i in range(n)])


@twin("token")
def bfloat16_laws(case, n, seed):
    """Laws in bfloat16, coins in float32: coarse, and honest."""
    torch.manual_seed(seed)
    p, q, x = case.tensors(n, dtype="bfloat16")
    k = case.gamma
    p, q = p.float(), q.float()
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    u = torch.rand(n, k)
    accept = u * q.gather(2, x[..., None])[..., 0] < p[:, :k].gather(2, x[..., None])[..., 0]
    kept = accept.to(torch.uint8).cumprod(1).sum(1)
    law = torch.stack(
        [p[i, c] if c == k else (p[i, c] - q[i, c]).relu() for i, c in enumerate(kept.tolist())]
    )
    law = torch.where(law.sum(1, keepdim=True) > 0, law, p[torch.arange(n), kept])
    token = torch.multinomial(law, num_samples=1)
    cells = [
        torch.cat([x[i, :c], token[i], token.new_full((k - c,), -1)])
        for i, c in enumerate(kept.tolist())
    ]
    return torch.vstack(cells)


@twin("token")
def checked_and_printed(case, n, seed):
    """Asserts about its draws, as careful code has them, and prints what it decides."""

    def coins(g, x):
        u = torch.rand(x.shape, generator=g)
        assert torch.isfinite(u).all()
        assert ((u >= 0) & (u < 1)).all()
        return u

    out = plainly(case, n, seed, u=coins)
    print("accepted", ((out >= 0).sum(1) - 1).tolist(), "of", case.gamma)
    return out


@twin("token")
def forked_generator(case, n, seed):
    """The global generator is borrowed and given back."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return plainly(case, n, None)


# Honest: other rules. Several of these were reported as biased, and are not.


@twin(drafts="with_replacement")
def certain_drafts(case, n, seed):
    """Accept with p(x), else p without x: q is not looked at, and any draft will do."""
    g = torch.Generator().manual_seed(seed)
    p, _, x = case.tensors(n)
    k = case.gamma
    chance = p[:, :k].gather(2, x.unsqueeze(2)).squeeze(2)
    kept = torch.rand(chance.shape, generator=g).lt(chance).cumprod(1).sum(1)
    rest = p.clone()
    rest[:, :k].scatter_(2, x.unsqueeze(2), 0.0)
    final = torch.multinomial(rest[torch.arange(n), kept], 1, generator=g)
    out = torch.where(torch.arange(k) < kept[:, None], x, -1)
    return torch.cat([out, torch.full((n, 1), -1)], 1).scatter(1, kept[:, None], final)


@twin("match")
def sample_and_compare(case, n, seed):
    """The target draws at every position; drafts are kept while they agree with it."""
    torch.manual_seed(seed)
    p, _, x = case.tensors(n)
    drawn = torch.multinomial(p.flatten(0, 1), 1).view(n, -1)
    agree = F.pad(drawn[:, :-1] == x, (1, 0), value=True).int().cumprod(1).bool()
    return drawn.masked_fill(~agree, -1)


@twin("greedy")
def greedy_argmax(case, n, seed):
    """Longest prefix of argmax tokens, and one more."""
    p, _, x = case.logits(n)
    best = p.argmax(-1)
    same = (best[:, :-1] == x).long().cumprod(-1)
    return torch.where(F.pad(same, (1, 0), value=1) > 0, best, -1)


@twin("rrs_without")
def batched_siblings(case, n, seed):
    """Recursive rejection without replacement on all rows at once, by child pointers."""
    torch.manual_seed(seed)
    p, q, tokens, _ = case.tensors(n)
    first, sibling = (torch.from_numpy(a) for a in case.pointers(n))
    coins = torch.rand(tokens.shape)
    row = torch.arange(n)
    node = torch.zeros(n, dtype=torch.long)
    target, draft = p[row, node], q[row, node]
    child = first[row, node]
    out = torch.full((n, case.gamma + 1), -1)
    length = torch.zeros(n, dtype=torch.long)
    while (child >= 0).any():
        live = child >= 0
        at = child.clamp(min=0)
        x = tokens[row, at].clamp(min=0)
        px, qx = target[row, x], draft[row, x]
        yes = live & (coins[row, at] * qx < px)
        no = live & ~yes
        out[row[yes], length[yes]] = x[yes]
        length = length + yes
        node = torch.where(yes, at, node)
        left = (target - draft).clamp(min=0)
        total = left.sum(1, keepdim=True)
        left = torch.where(total > 0, left / total, target)
        without = draft.scatter(1, x[:, None], 0.0)
        without = without / without.sum(1, keepdim=True).clamp(min=1e-38)
        target = torch.where(no[:, None], left, torch.where(yes[:, None], p[row, node], target))
        draft = torch.where(no[:, None], without, torch.where(yes[:, None], q[row, node], draft))
        child = torch.where(yes, first[row, node], torch.where(no, sibling[row, at], child))
    out[row, length] = torch.multinomial(target, 1)[:, 0]
    return out


@twin(shape="tree", drafts="likeliest")
def renormalised_after_refusal(case, n, seed):
    """Top-k siblings with q = 1: accept with p(x), else zero x and renormalise."""
    random_source = torch.Generator().manual_seed(seed)
    p, _, tokens, parents = case.tensors(1, dtype="float64")
    children = {}
    for at, parent in enumerate(parents[0].tolist()):
        children.setdefault(parent, []).append(at)
    result = torch.full((n, case.gamma + 1), -1)
    for out in result:
        node, depth = 0, 0
        while True:
            law = p[0, node].clone()
            for at in children.get(node, ()):
                x = tokens[0, at]
                r = torch.rand((), dtype=torch.float64, generator=random_source).item()
                if r < law[x]:
                    out[depth] = x
                    node, depth = at, depth + 1
                    break
                law[x] = 0
                law = law / law.sum()
            else:
                out[depth] = torch.multinomial(law, 1, generator=random_source)
                break
    return result


@twin("target_only")
def target_draw_among_siblings(case, n, seed):
    """One draw from the target per node, looked up among the siblings."""
    g = torch.Generator().manual_seed(seed)
    p, _, tokens, parents = case.tensors(n)
    drawn = torch.multinomial(p.reshape(-1, case.vocab), 1, generator=g).view(n, -1)
    row = torch.arange(n)
    node = torch.zeros(n, dtype=torch.long)
    alive = torch.ones(n, dtype=torch.bool)
    columns = []
    for _ in range(case.gamma + 1):
        y = drawn[row, node]
        columns.append(torch.where(alive, y, -1))
        hit = (parents == node[:, None]) & (tokens == y[:, None])
        alive = alive & hit.any(1)
        node = torch.where(alive, hit.int().argmax(1), node)
    return torch.stack(columns, 1)


# Honest, and out of the tape's sight.


def numpy_rounds(case, u):
    """Decide every row in NumPy; the last column inverts the CDF."""
    n = len(u)
    p, q, x = case.arrays(n)
    k = case.gamma
    row = np.arange(n)
    px = np.take_along_axis(p[:, :k], x[..., None], 2)[..., 0]
    qx = np.take_along_axis(q, x[..., None], 2)[..., 0]
    kept = np.cumprod(u[:, :k] * qx < px, axis=1).sum(1).astype(np.int64)
    law = np.concatenate([np.clip(p[:, :k] - q, 0, None), p[:, k:]], 1)
    law = np.where(law.sum(2, keepdims=True) > 0, law, p)[row, kept]
    edges = np.cumsum(law, 1)
    token = (edges <= u[:, k:] * edges[:, -1:]).sum(1)
    out = np.where(np.arange(k + 1) < kept[:, None], np.pad(x, ((0, 0), (0, 1))), -1)
    out[row, kept] = np.minimum(token, (edges < edges[:, -1:]).sum(1))
    return out


@twin("token")
class Folding:
    """A coin is twice a draw's distance from one half: not monotone. Decides given draws too."""

    def decide(self, case, u):
        coins = np.abs(2 * u[:, :1] - 1)
        return numpy_rounds(case, np.concatenate([coins, u[:, 1:]], 1))

    def sample(self, case, n, seed):
        return self.decide(case, np.random.default_rng(seed).random((n, case.gamma + 1)))


@twin("token")
def numpy_clock(case, n, seed):
    """NumPy, seeded by the clock: whatever the seeds, the law of what follows is the right one."""
    u = np.random.default_rng(time.time_ns()).random((n, case.gamma + 1))
    return numpy_rounds(case, u)


@twin("token", depth=SAMPLES, escape=CHANGES)
def system_random(case, n, seed):
    """Numbers of the operating system, which nobody can have it give again."""
    bits = np.frombuffer(os.urandom(8 * n * (case.gamma + 1)), np.uint64) >> 11
    return numpy_rounds(case, bits.reshape(n, -1) * 2.0**-53)


@twin("token")
def python_random(case, n, seed):
    """Python's generator, global, started by the call's seed."""
    random.seed(seed)
    us = [[random.random() for _ in range(case.gamma + 1)] for _ in range(n)]
    return numpy_rounds(case, np.array(us)).tolist()


@twin("token", depth=SAMPLES, escape="pins a draw")
def seeds_from_a_seed(case, n, seed):
    """Each request's seed is drawn from a generator that the call's seed starts."""
    seeds = torch.randint(0, 2**62, (n,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([plainly(case, 1, s) for s in seeds.tolist()])


@twin("token", depth=SAMPLES, escape=CHANGES)
class PooledUniforms:
    """Uniforms from a pool that outlives the call, filled again when it is used up."""

    def __init__(self):
        self.pool, self.at = torch.empty(0), 0
        self.generator = torch.Generator().manual_seed(1)

    def take(self, shape):
        count = shape.numel()
        if self.at + count > len(self.pool):
            self.pool, self.at = torch.rand(max(64, count), generator=self.generator), 0
        self.at += count
        return self.pool[self.at - count : self.at].view(shape)

    def sample(self, case, n, seed):
        return plainly(case, n, seed, u=lambda g, x: self.take(x.shape))


def leftovers(p, q, x, u, ok=None):
    """Return (accepted drafts, law of the next token) for each row; `ok` tells what is accepted."""
    k = x.shape[1]
    rows = torch.arange(len(x))
    if ok is None:
        ok = u * q.gather(2, x[..., None])[..., 0] < p[:, :k].gather(2, x[..., None])[..., 0]
    kept = ok.long().cumprod(1).sum(1)
    law = torch.cat([(p[:, :k] - q).relu(), p[:, k:]], 1)
    return kept, torch.where(law.sum(2, keepdim=True) > 0, law, p)[rows, kept]


def laid_out(x, kept, extra):
    """Return accepted drafts, the extra token and the padding as one tensor."""
    positions = torch.arange(x.shape[1] + 1)
    out = torch.where(positions == kept[:, None], extra[:, None], F.pad(x, (0, 1)))
    return torch.where(positions > kept[:, None], -1, out)


def plainly(case, n, seed, u=None):
    """The batched round, with its coins replaced; without a seed, on the global generator."""
    g = None if seed is None else torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    coins = torch.rand(x.shape, generator=g) if u is None else u(g, x)
    kept, rows = leftovers(p, q, x, coins)
    return laid_out(x, kept, torch.multinomial(rows, 1, generator=g)[:, 0])


def inverted(law, u):
    """Invert the CDF of each row."""
    edges = law.cumsum(-1)
    token = (edges <= u * edges[..., -1:]).sum(-1)
    return torch.minimum(token, (edges < edges[..., -1:]).sum(-1))


# Wrong laws.


@wrong("token", fault="coin_inclusive", fails={"support": "edge"})
def coin_at_most_ratio(case, n, seed):
    """p/q >= u: the coin 0 accepts a token of target mass 0."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    ratio = (p[:, :-1] / q).gather(2, x[..., None])[..., 0]
    return settled(p, q, x, ratio >= torch.rand(x.shape, generator=g), g)


def settled(p, q, x, ok, g=None):
    """Finish a round in which it is settled what is accepted."""
    kept, law = leftovers(p, q, x, None, ok)
    return laid_out(x, kept, torch.multinomial(law, 1, generator=g)[:, 0])


@wrong(
    "token",
    fault="residual_softmaxed",
    fails={"support": "law", "residual": "law", "joint": "law", "rounds": "law"},
)
def softmaxed_residual(case, n, seed):
    """softmax of (p - q)+ where it should be divided by its sum."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    kept, _ = leftovers(p, q, x, torch.rand(x.shape, generator=g))
    law = torch.cat([torch.softmax((p[:, :-1] - q).relu(), -1), p[:, -1:]], 1)
    rows = law[torch.arange(n), kept]
    return laid_out(x, kept, torch.multinomial(rows, 1, generator=g)[:, 0])


@wrong(
    "token",
    fault="target_rows_shifted",
    fails={
        "support": "law",
        "acceptance": "law",
        "residual": "law",
        "joint": "law",
        "rounds": "law",
    },
)
def rows_off_by_one(case, n, seed):
    """Draft i is judged by target row i + 1."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    shifted = torch.cat([p[:, 1:], p[:, -1:]], 1)
    kept, law = leftovers(shifted, q, x, torch.rand(x.shape, generator=g))
    return laid_out(x, kept, torch.multinomial(law, 1, generator=g)[:, 0])


@wrong("token", fault="coin_reused", fails={"residual": "law", "joint": "law"})
def coin_inverts_residual(case, n, seed):
    """The coin that refused is also the draw of the correction."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    u = torch.rand(n, case.gamma + 1, generator=g)
    kept, law = leftovers(p, q, x, u[:, :-1])
    return laid_out(x, kept, inverted(law, u[torch.arange(n), kept][:, None]))


@wrong("rrs_with", fault="siblings_merged", fails={"residual": "law", "joint": "law"})
def siblings_deduplicated(case, n, seed):
    """Equal siblings are tested once, to save work."""
    torch.manual_seed(seed)
    return [sibling_round(case, unique=True) for _ in range(n)]


def sibling_round(case, unique=False, coins=()):
    """One round of recursive rejection; coins by child, if they are given."""
    p, q, tokens, parents = (a[0] for a in case.tensors(1))
    node, row = 0, []
    while True:
        law, tried = p[node], set()
        for child in torch.nonzero(parents == node).squeeze(1):
            x = tokens[child].item()
            if unique and x in tried:
                continue
            tried.add(x)
            coin = coins[int(child) - 1] if coins else torch.rand(())
            if coin * q[node, x] < law[x]:
                row.append(x)
                node = int(child)
                break
            left = torch.relu(law - q[node])
            if left.sum() > 0:
                law = left / left.sum()
        else:
            row.append(torch.multinomial(law, 1).item())
            return row + [-1] * (case.gamma + 1 - len(row))


@wrong("token", fails=dict.fromkeys(["support", "acceptance", "joint", "rounds"], "law"),
       says="a forbidden token, with probability")  # fmt: skip
def bfloat16_coins(case, n, seed):
    """Coins drawn in bfloat16: one in 2^9 is 0, and even p = 0 is at least that."""
    torch.manual_seed(seed)
    p, q, x = case.tensors(n)
    ratio = (p[:, :-1] / q).gather(2, x[..., None])[..., 0]
    return settled(p, q, x, torch.rand(x.shape, dtype=torch.bfloat16) <= ratio)


@wrong("target_only", fails={"support": "edge"}, says="exception: IndexError")
def falls_off_the_end(case, n, seed):
    """One draw among siblings and rest, by a CDF whose rounding may leave it below the draw."""
    g = torch.Generator().manual_seed(seed)
    p, _, tokens, parents = (a[0] for a in case.tensors(1))
    out = torch.full((n, case.gamma + 1), -1)
    for row in out:
        node = 0
        for depth in range(case.gamma + 1):
            u = torch.rand((), generator=g)
            row[depth] = (p[node].cumsum(0) > u).nonzero()[0, 0]
            hit = ((parents == node) & (tokens == row[depth])).nonzero()
            if not len(hit):
                break
            node = hit[0, 0]
    return out


@wrong("token", depth=SAMPLES, escape=CHANGES, fails={"stream": "stream"},
       says="rows of a call that are 1 apart are not independent")  # fmt: skip
class EveryOtherCall:
    """Verifies every other call only: rows of one call share their fate."""

    def __init__(self):
        self.calls = 0

    def sample(self, case, n, seed):
        self.calls += 1
        coins = None if self.calls % 2 else (lambda g, x: torch.zeros(x.shape))
        return plainly(case, n, seed, u=coins)


@wrong(
    "token",
    fails={"support": "crash", "joint": "law", "rounds": "law"},
    says="exception: IndexError: no such row",
)
def raises_now_and_then(case, n, seed):
    """An exception with a probability of 2^-7."""

    def coins(g, x):
        u = torch.rand(x.shape, generator=g)
        if (u[:, 0] >= 1 - 2**-7).any():
            raise IndexError("no such row")
        return u

    return plainly(case, n, seed, u=coins)


# Right laws on wrong streams.

STREAM = {"stream": "stream"}


@wrong("token", fails=STREAM, says="not independent")
def rows_share_uniforms(case, n, seed):
    """One row of coins, expanded over the batch."""
    k = case.gamma
    return plainly(case, n, seed, u=lambda g, x: torch.rand(1, k, generator=g).expand(n, k))


@wrong("token", fails=STREAM, says="draw 1 of a call of 8 rows decides rows 0, 4")
def four_rows_of_uniforms(case, n, seed):
    """A block of coins for four rows, repeated over the batch."""

    def tiled(g, x):
        block = torch.rand(4, x.shape[1], generator=g)
        return block.repeat(-(-n // 4), 1)[:n]

    return plainly(case, n, seed, u=tiled)


@wrong("token", fails=STREAM, says="not independent")
def antithetic_rows(case, n, seed):
    """Pairs of rows use u and 1 - u, to reduce a variance."""

    def mirrored(g, x):
        half = torch.rand((n + 1) // 2, x.shape[1], generator=g)
        return torch.stack([half, 1 - 2**-24 - half], 1).flatten(0, 1)[:n]

    return plainly(case, n, seed, u=mirrored)


@wrong("token", fails=STREAM, says="starts from the generator state of draw 1 of the same call")
def one_seed_for_all_rows(case, n, seed):
    """A fresh generator with the same seed for every row."""
    return torch.cat([plainly(case, 1, seed) for _ in range(n)])


@wrong("token", fails=STREAM, says="starts from the generator state of draw 1 of call 1")
def state_given_back(case, n, seed):
    """fork_rng without a seed of its own: every call starts from the same state."""
    with torch.random.fork_rng():
        return plainly(case, n, None)


@wrong("token", fails=STREAM, says="starts from the generator state of draw 1 of call 1")
def clock_seeded(case, n, seed):
    """Seeds with the date."""
    torch.manual_seed(int(time.time()) >> 20)
    return plainly(case, n, None)


# Decisions that the tape cannot see.


@wrong("token", fails={"audit": "law"}, says="sample follows another law than decide")
class DecidesBetter:
    """Decides given draws as it should; its own draws are too small."""

    def decide(self, case, u):
        return numpy_rounds(case, u)

    def sample(self, case, n, seed):
        return numpy_rounds(case, np.random.default_rng(seed).random((n, case.gamma + 1)) ** 2)


@twin("token", verdict="inconclusive", depth=SAMPLES, escape="real draws gave another outcome")
def hidden_decision(case, n, seed):
    """Once in 200 rounds the last token is the likeliest, by a buffer read through DLPack."""
    g = torch.Generator().manual_seed(seed)
    p, q, x = case.tensors(n)
    u = torch.rand(x.shape, generator=g)
    kept, law = leftovers(p, q, x, u)
    token = torch.multinomial(law, 1, generator=g)[:, 0]
    behind = dlpack.from_dlpack(dlpack.to_dlpack(u[:, 0].contiguous()))
    return laid_out(x, kept, torch.where(behind > 0.995, law.argmax(1), token))


# Drafters.


@twin("token")
class NumpyDrafter:
    """One generator that goes on from the drafts, half of which are short, to the round."""

    def __init__(self):
        self.rng = None

    def propose(self, case, n, seed):
        self.rng = np.random.default_rng(seed)
        q = case.arrays(n)[1]
        x = self.inverted(q, self.rng.random((n, case.gamma)))
        x[:, 1:][self.rng.random(n) < 0.5] = -1
        return x, q

    def inverted(self, q, u):
        return (q.cumsum(2) <= u[..., None]).sum(2).clip(max=q.shape[2] - 1)

    def sample(self, case, n, seed):
        rng, self.rng = self.rng or np.random.default_rng(seed), None
        return numpy_rounds(case, rng.random((n, case.gamma + 1)))


@wrong(
    "token",
    fails={"proposal": "law", "stream": "stream"},
    says="verified on its own drafts",
)
class DraftsWithItsCoins(NumpyDrafter):
    """The generator is put back before the round: what drew the drafts decides on them."""

    def propose(self, case, n, seed):
        q = case.arrays(n)[1]
        self.rng = np.random.default_rng(seed)
        return self.inverted(q, np.random.default_rng(seed).random((n, case.gamma))), q


@wrong("token", fails={"stream": "stream"}, says="starts from a generator state of call 1")
class ConstantDrafter(NumpyDrafter):
    """Its drafts are the same in every call."""

    def propose(self, case, n, seed):
        q = case.arrays(n)[1]
        return self.inverted(q, np.random.default_rng(7).random((n, case.gamma))), q


@twin("rrs_with")
class TreeDrafter:
    """Two siblings at every level, drawn independently, below the first of the level above."""

    def propose(self, case, n, seed):
        g = torch.Generator().manual_seed(seed)
        q = case.tensors(n)[1]
        depths = [0] + [level for level in range(1, case.gamma + 1) for _ in range(2)]
        parents = [-1] + [2 * (level - 1) - (level > 1) for level in depths[1:]]
        tokens = [self.siblings(q[:, level], g) for level in range(case.gamma)]
        tokens = torch.cat([torch.full((n, 1), -1), *tokens], 1)
        return tokens, torch.tensor(parents).repeat(n, 1), q[:, depths]

    def siblings(self, q, g):
        return torch.multinomial(q, 2, replacement=True, generator=g)

    def sample(self, case, n, seed):
        torch.manual_seed(seed)
        return [sibling_round(case) for _ in range(n)]


@wrong("rrs_with", fails={"proposal": "contract"}, says="its drafts do not follow the q")
class DistinctSiblings(TreeDrafter):
    """Draws its siblings without replacement, and verifies them as if they were independent."""

    def siblings(self, q, g):
        return torch.multinomial(q, 2, generator=g)


@wrong("rrs_with", fails={"proposal": "law"}, says="verified on its own drafts")
class TreeCoinsReused(TreeDrafter):
    """The uniforms that drew the siblings are the coins that test them."""

    def __init__(self):
        self.coins = []

    def siblings(self, q, g):
        u = torch.rand(len(q), 2, generator=g)
        self.coins += u.unbind(1)
        return (q.cumsum(1)[:, None] <= u[..., None]).sum(2).clamp(max=q.shape[1] - 1)

    def propose(self, case, n, seed):
        self.coins = []
        return super().propose(case, n, seed)

    def sample(self, case, n, seed):
        torch.manual_seed(seed)
        held, self.coins = self.coins, []
        return [sibling_round(case, coins=[u[0] for u in held]) for _ in range(n)]


def one_sibling_or_two(p, q, shape, choose, context):
    """Draft a second sibling unless the first is token 0, whatever the shape asks for."""
    first = choose(q(context), at=Proposal(1))
    tokens = [first] if first == 0 else [first, choose(q(context), at=Proposal(2))]
    texts = [context, *((*context, x) for x in tokens)]
    return tree([p(t) for t in texts], [q(t) for t in texts], tokens, [0] * len(tokens))


@twin("rrs_with", drafts=one_sibling_or_two)
def ragged_trees(case, n, seed):
    """Some nodes have one child, some have two."""
    torch.manual_seed(seed)
    return [sibling_round(case) for _ in range(n)]


# No samplers at all: none must get past the first calls.


def broken(says: str, **known: Any) -> Callable[[Any], Any]:
    """Register a sampler that must fail at once."""
    return wrong("token", depth="", fails={"smoke": "crash"}, says=says, **known)


@broken("exception: RuntimeError: not implemented on this backend")
def raises_always(case, n, seed):
    raise RuntimeError("not implemented on this backend")


@broken("exception: SystemExit: no device")
def leaves_the_interpreter(case, n, seed):
    sys.exit("no device")


@broken("exception: AssertionError")
def one_row_at_a_time(case, n, seed):
    assert n == 1
    return plainly(case, n, seed)


@broken("sample ran longer than 0.2 s", time_limit=0.2)
def hangs(case, n, seed):
    while True:
        pass


@broken("exception: ")
def absent_device(case, n, seed):
    return case.tensors(n, device="cuda")[2]


@broken("sample writes to the tensors that the case gave it")
def writes_into_laws(case, n, seed):
    out = plainly(case, n, seed)
    p, q, _ = case.tensors(n)
    p[:, :-1].sub_(q).relu_()
    return out


@broken("sample writes to the tensors that the case gave it")
def writes_into_logits(case, n, seed):
    out = plainly(case, n, seed)
    p, _, _ = case.logits(n)
    p.sub_(p.amax(-1, keepdim=True) + 1)
    return out


SPOILED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "too_few_columns": ("shape: sample returned (1, 1); expected (1, 2)", lambda out: out[:, :-1]),
    "flattened": ("shape: sample returned (2,); expected (1, 2)", lambda out: out.flatten()),
    "returns_nothing": ("shape: sample returned nothing", lambda out: None),
    "ragged": ("shape: sample returned no array", lambda out: [*out.tolist(), [0]]),
    "yields": ("shape: sample returned ()", iter),
    "floats": ("dtype: sample returned float32; expected integers", lambda out: out.float()),
    "not_numbers": ("dtype: sample returned NaN", lambda out: out * torch.nan),
    "out_of_vocabulary": ("range: token", lambda out: torch.where(out < 0, out, out + 9)),
    "padded_in_front": (
        "padding: tokens after the first -1",
        lambda out: F.pad(out, (1, 0), value=-1)[:, :-1],
    ),
    "emits_nothing": ("empty: a round emitted nothing", lambda out: torch.full_like(out, -1)),
}
"""What is done to what a sampler returns, and what the gate says of it."""


def spoiled(spoil: Callable[[Any], Any]) -> Callable[[Any, int, int], Any]:
    """Return a sampler that does something to its output."""
    return lambda case, n, seed: spoil(plainly(case, n, seed))


for _name, (_says, _spoil) in SPOILED.items():
    TWINS[_name] = Twin(_name, spoiled(_spoil), ("token",), verdict="fail", depth="",
                        fails={"smoke": "crash"}, says=_says)  # fmt: skip
