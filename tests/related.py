"""Samplers for relations, batches and seeds: honest ones, and some that are wrong in one way.

What is wrong shows in the changed case alone, beside another request or under another seed: most of
these are right wherever single rounds are looked at.
"""

import time

import torch
from torch.nn.functional import pad

from specref.gate.loading import load
from specref.gate.report import Report
from specref.gate.session import Session


def session_of(subject, profile="quick"):
    """Return the session in which the gate holds a subject to the first rule it declares."""
    found = load(subject)
    rule = found.rules[0] if found.rules else None
    return Session(found.held_to(rule), rule, Report("it", "it", "", profile, 0), lambda _: None)


class Chain:
    """The token rule on whole batches; -1 ends a draft."""

    name, rules, placeholders, lenience = "chains", ["token"], True, 1.0

    def __init__(self, fault="", declares=True, seeded=False):
        self.fault, self.seeded = fault, seeded
        if not declares:
            self.rules = []
        self.calls, self.seeds = 0, set()

    def sample(self, case, n, seed):
        g = self.generator(seed)
        p, q, x, there = self.given(case, n)
        k, rows = x.shape[1], torch.arange(n)
        index = x.clamp(min=0)[..., None]
        u = torch.rand(1 if self.fault == "one coin for all rows" else n, k, generator=g)
        px, qx = p[:, :k].gather(2, index)[..., 0], q.gather(2, index)[..., 0]
        kept = self.accepted(u * self.lenience * qx < px, p[:, :k], q, x, there)
        left = (p[:, :k] - q).clamp(min=0)
        left = torch.where(there[..., None], left, p[:, :k])
        law = self.closing(torch.cat([left, p[:, k:]], 1)[rows, kept], k)
        law = torch.where(law.sum(1, keepdim=True) > 0, law, p[rows, kept])
        out = torch.where(torch.arange(k + 1) < kept[:, None], pad(x, (0, 1)), -1)
        out[rows, kept] = torch.multinomial(law, 1, generator=g)[:, 0]
        if self.fault == "rows sorted by draft" and k:
            out = out[x[:, 0].argsort(stable=True)]
        return out

    def given(self, case, n):
        """Return p, q, the drafts, and where there are any."""
        p, q, x = case.tensors(n)
        if self.fault == "q of the neighbour":
            q = q.roll(1, 0)
        if self.fault == "laws of the first row in calls of three" and n == 3:
            p = p[:1].expand_as(p)
        if self.fault == "laws of the first row in large calls" and n > 64:
            p = p[:1].expand_as(p)
        if self.fault == "number of drafts of the first row for all":
            return p, q, x.clamp(min=0), (x[:1] >= 0).expand_as(x)
        if self.fault == "placeholders are tokens":
            return p, q, x % case.vocab, torch.ones_like(x, dtype=torch.bool)
        return p, q, x, x >= 0

    def accepted(self, passed, p, q, x, there):
        """Return how many drafts each row keeps."""
        if self.fault == "equal laws are tossed for":
            passed = passed & ((q != p).any(2) | (x != 0))
        if self.fault == "forbidden drafts pass":
            passed = passed | ((p * q).sum(2) == 0)
        if self.fault == "token 0 is padding":
            passed = passed & (x != 0)
        if self.fault == "writes where laws are equal":
            q[(q == p).all(2)] = 0.5
        kept = (passed & there).long().cumprod(1).sum(1)
        return kept.min().expand(len(x)) if self.fault == "least length for all" else kept

    def closing(self, law, k):
        """Return the weights of the last token."""
        if self.fault == "no drafts, no target" and k == 0:
            return torch.ones_like(law)
        if self.fault == "mass for the padding" and law.shape[1] > 4:
            return law + 0.01
        return law

    def generator(self, seed):
        """Return the generator of a call."""
        self.calls += 1
        self.seeds.add(seed)
        if self.fault == "global generator":
            return torch.default_generator
        if self.fault == "one stream for all calls":
            seed = self.calls
        elif self.fault == "counts requests":
            seed += len(self.seeds)
        elif self.fault == "seed unused":
            seed = 1
        elif self.fault == "clock":
            seed = time.time_ns()
        elif seed is None and self.fault == "a default seed":
            seed = 0
        g = torch.Generator()
        if seed is None:
            g.seed()
        else:
            g.manual_seed(seed)
        return g


class Lenient(Chain):
    """Lenient acceptance behind a switch: without the fault, off means lossless."""

    rules, placeholders, lenience = ["lenient"], False, 0.5

    def off(self, case, n, seed):
        exact = Chain()
        exact.lenience = 0.6 if self.fault else 1.0
        return exact.sample(case, n, seed)


class Tree:
    """Target-only acceptance on trees, row by row."""

    name, rules = "trees", ["target_only"]

    def __init__(self, fault="", declares=True):
        self.fault = fault
        if not declares:
            self.rules, self.shape, self.drafts = [], "tree", "likeliest"

    def sample(self, case, n, seed):
        g = torch.Generator().manual_seed(seed)
        p, _, tokens, parents = case.tensors(n)
        requests = zip(p, tokens.tolist(), parents.tolist(), strict=True)
        return torch.stack([self.walk(*one, case.gamma, g) for one in requests])

    def walk(self, p, tokens, parents, gamma, g):
        out, node = [], 0
        while True:
            law = p[node].clone()
            below = [at for at, parent in enumerate(parents) if parent == node]
            for number, child in enumerate(below):
                x = tokens[child]
                chance = law[x] / law.sum()
                if self.fault == "falling siblings lose" and tokens[below[0]] > x:
                    chance = chance / 2
                if self.fault == "the second of three siblings wins" and number and len(below) > 2:
                    chance = torch.ones(())
                if torch.rand((), generator=g) < chance:
                    out.append(torch.tensor(x))
                    node = child
                    break
                law[x] = 0
            else:
                out.append(torch.multinomial(law, 1, generator=g)[0])
                return pad(torch.stack(out), (0, gamma + 1 - len(out)), value=-1)
