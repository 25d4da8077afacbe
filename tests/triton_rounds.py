"""Rounds in Triton's interpreter, which is chosen when kernels are decorated: run this alone.

Prints one JSON object: what each check saw, and what was wrong.
"""

import json
import os
import sys
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

from gpu_impl import Lenience, Seeds, Thresholds, Workspace, call, verify
from gpu_impl.draws import philox
from gpu_impl.triton_backend import launch
from specref.logits import PRESETS
from specref.philox import Domain
from tests.gpu_cases import DEEPEST, batches
from tests.gpu_judge import judge

RULES = call.RULES
INVARIANT = ("token", "block", "target_only", "rrs_without")


def batch(made, **options):
    """Return a call as the backend is given it."""
    taken = []
    whole = call._backend
    call._backend = lambda name, device: taken.append
    try:
        made.verify(**options)
    finally:
        call._backend = whole
    return taken[0]


def columns(out):
    """Return everything that was returned, as bytes that can be compared."""
    parts = [*out[:6], *(out.trace or ())]
    return [part.numpy().tobytes() for part in parts]


def judged(count, requests, faults):
    """Judge every rule, on sound and on broken inputs."""
    decisions = band = differ = 0
    wrong = []
    for made in batches(70 + faults, count, requests, faults=faults):
        out = launch.verify(batch(made))
        found = judge(made, out)
        decisions, band = decisions + found.decisions, band + found.band
        wrong += [(made.rule, made.parameters.preset, made.vocab, text) for text in found.wrong[:3]]
        twin = made.verify(backend="torch")
        for ours, theirs in zip(out[:5], twin[:5], strict=True):
            unlike = (ours != theirs).reshape(len(ours), -1).any(1).numpy()
            differ += int((unlike & ~found.in_band).sum())
    return {"decisions": decisions, "band": band, "wrong": wrong, "differ": differ}


def invariant():
    """Run batches in other ways that may not change a bit; return those that did."""
    wrong = []
    for filters, rules in ((False, INVARIANT), (True, ("rrs_without",))):
        for made in batches(72, len(rules), 4, rules=rules, filters=filters):
            lazy = batch(made, lazy=True)
            once = columns(launch.verify(lazy, rows=4))
            if columns(launch.verify(lazy, rows=2)) != once:
                wrong.append((made.rule, filters, "rows"))
            eager = replace(lazy, lazy=False, workspace=Workspace())
            if columns(launch.verify(eager, rows=4)) != once:
                wrong.append((made.rule, filters, "eager"))
    return wrong


class Guarded(Workspace):
    """Tensors with a margin on both sides, which has to stay as it is."""

    MARGIN = 64

    def __init__(self):
        super().__init__()
        self.around = {}

    def take(self, name, shape, dtype, device):
        size = int(np.prod(shape))
        fill = 77
        whole = torch.full((size + 2 * self.MARGIN,), fill, dtype=dtype)
        self.around[name] = whole
        return whole[self.MARGIN : self.MARGIN + size].view(shape)

    def broken(self):
        """Return the names of tensors that were written around."""
        return [
            name
            for name, whole in self.around.items()
            if bool((whole[: self.MARGIN] != 77).any()) or bool((whole[-self.MARGIN :] != 77).any())
        ]


def guards():
    """Run on forests that are none, as they reach a device; return what was written around."""
    wrong = []
    for made in batches(73, 2, 6, rules=("block", "rrs_without"), faults=True, filters=False):
        good = batch(made)
        nodes = good.forest.nodes
        begin = good.forest.begin.clone()
        begin[1:-1] = torch.tensor([5, 2, -7, nodes + 9, nodes])[: len(begin) - 2]
        odd = replace(good.forest, begin=begin, max_depth=1)
        if good.forest.parents is not None:
            parents = good.forest.parents.clone()
            parents[:3] = torch.tensor([2, 9999, -5])
            odd = replace(odd, parents=parents)
        for forest in (good.forest, odd):
            for lazy in (True, False):
                memory = Guarded()
                out = launch.verify(replace(good, forest=forest, lazy=lazy, workspace=memory))
                wrong += [(made.rule, lazy, name) for name in memory.broken()]
                if forest is odd and not bool((out.status & 128).any()):
                    wrong.append((made.rule, lazy, "no flag"))
                fine = (out.counts >= 1) & (out.counts <= forest.max_depth + 1)
                last = out.tokens.gather(1, (out.counts - 1)[:, None].long())[:, 0]
                fine &= (last >= 0) & (last < made.vocab)
                if not bool(fine.all()):
                    wrong.append((made.rule, lazy, "output"))
    return wrong


def alone():
    """Run each request of a batch alone; return rules of which one came out otherwise."""
    wrong = []
    generator = torch.Generator().manual_seed(5)
    for rule in ("one_hot", "match"):
        logits = torch.randn(12, 9, generator=generator)
        tokens = torch.randint(9, (12,), generator=generator)
        seeds = Seeds(torch.arange(4) - 2, torch.arange(4) * 2**33)

        def run(tokens, begin, logits, seeds, rule=rule):
            return verify(
                logits, tokens, torch.tensor(begin), draws=seeds, rule=rule, backend="triton",
                max_depth=DEEPEST,
            )  # fmt: skip

        whole = run(tokens, [0, 3, 6, 9, 12], logits, seeds)
        for b in range(4):
            part = slice(3 * b, 3 * b + 3)
            mine = Seeds(seeds.seed[b : b + 1], seeds.start[b : b + 1])
            one = run(tokens[part], [0, 3], logits[part], mine)
            if one.tokens.tolist() != whole.tokens[b : b + 1].tolist():
                wrong.append((rule, b))
    return wrong


def draws():
    """Return how many draws by address differ from the reference's."""
    made = next(batches(74, 1, 200, rules=("match",)))
    seeds = Seeds(
        torch.arange(200) * 0x123456789ABCDEF - 2**62, torch.arange(200) * 2**31 + (1 << 40)
    )
    out = launch.verify(replace(batch(made), draws=seeds, trace=True))
    request = torch.from_numpy(made.request).long()
    local = torch.arange(len(request)) - made.begin.long()[request]
    coins = philox(seeds.seed[request], seeds.start[request], local, Domain.COIN)
    last = philox(seeds.seed, seeds.start, seeds.start * 0, Domain.TERMINAL)
    return int((out.trace.coins != coins).sum()) + int((out.trace.terminal != last).sum())


def empty():
    """Return the shapes that a batch of no requests comes out with."""
    none = torch.zeros(0, dtype=torch.int64)
    seeds = Seeds(none, none)
    out = verify(
        torch.zeros(0, 5), none, torch.zeros(1, dtype=torch.int64), draws=seeds, rule="match",
        backend="triton",
    )  # fmt: skip
    return [list(out.tokens.shape), list(out.counts.shape)]


def lossy():
    """Return how many outputs of lossy rules are not those of the torch backend."""
    differ = 0
    for rule, asked in (("token", Lenience(0.7)), ("one_hot", Thresholds(0.6, 0.8))):
        made = next(batches(75, 1, 200, rules=(rule,), filters=False))
        ours = made.verify(backend="triton", lossy=asked)
        theirs = made.verify(backend="torch", lossy=asked)
        strict = made.verify(backend="torch")
        unlike = (ours.tokens != theirs.tokens).any(1)
        differ += int(unlike.sum()) + int(torch.equal(theirs.tokens, strict.tokens))
    return differ


CHECKS = {
    "judged": lambda: judged(len(RULES), 128, True),
    "lossy": lossy,
    "invariant": invariant,
    "guards": guards,
    "alone": alone,
    "draws": draws,
    "empty": empty,
}

LONG = {"ten thousand": lambda: judged(len(PRESETS) * len(RULES), 40, False)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    asked = sys.argv[1:] or CHECKS
    print(json.dumps({name: (CHECKS | LONG)[name]() for name in asked}))
