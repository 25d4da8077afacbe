"""economize: `RejectionVerifier`, on chains and on trees, and the law of its `TopPSampler`.

    pip install --no-deps economize==0.3.2      # it imports transformers

The module is the subject for chains that were drawn from the sampler's law on the draft's logits,
as the library's `draft_many` draws them. `one_hot` is that for drafts without a law, such as n-gram
look-up, and `tree` that for trees. All draw from the sampler's own generator.
"""

from importlib.metadata import version
from typing import Any

import torch
from economize.decoding import DecodeConfig, Draft, GreedySelector, TopPSampler
from economize.decoding.verifiers import RejectionVerifier

from specref.gate.cases import Case
from specref.logits import Preset

_NAME = f"economize {version('economize')}"
_VERIFIER = RejectionVerifier(DecodeConfig(verifier="rejection"))

name = f"{_NAME}, RejectionVerifier.verify_batch"
rules = ["token"]

parameters = ("temperature", "top_p")
preset = Preset(
    "economize",
    ("temperature", "top_p"),
    top_p_ties="lowest",
    top_p_zero="refused",
    source="economize 0.3.2, decoding/selectors.py",
)


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify n rows in one call."""
    return _chains(case, n, seed, with_law=True)


def law(logits: Any, params: dict[str, Any]) -> Any:
    """Return what the sampler draws from; the library has another one for temperature 0."""
    temperature = params.get("temperature", 1.0)
    greedy = temperature == 0
    sampler = GreedySelector() if greedy else TopPSampler(temperature, params.get("top_p", 1.0))
    return sampler.distributions(torch.from_numpy(logits))


class OneHot:
    """The verifier on chains of tokens that come without a law."""

    name = f"{_NAME}, RejectionVerifier.verify_batch without q"
    rules = ("one_hot",)

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Verify n rows in one call."""
        return _chains(case, n, seed, with_law=False)


class Tree:
    """The verifier on trees; those for `target_only` come without a law, as Medusa's do."""

    name = f"{_NAME}, RejectionVerifier.verify_tree"
    rules = ("rrs_with", "rrs_without", "target_only")

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Verify n rows in one call."""
        p, q, tokens, parents = case.logits(n)
        sampler = TopPSampler(seed=seed)
        laws = None
        if case.rule != "target_only":
            laws = _drawn_from(sampler.distributions(q[0]), case)[None].expand(n, -1, -1)
        lengths = [len(case.tokens)] * n
        draft = Draft(tokens[:, 1:], lengths, parents=parents[:, 1:] - 1, probs=laws)
        paths, following = _VERIFIER.verify_tree(p, draft, sampler)
        out = torch.full((n, case.gamma + 1), -1)
        for row, (path, last) in enumerate(zip(paths, following, strict=True)):
            emitted = [*(case.tokens[node] for node in path), last]
            out[row, : len(emitted)] = torch.tensor(emitted)
        return out


one_hot, tree = OneHot(), Tree()


def _chains(case: Case, n: int, seed: int, with_law: bool) -> Any:
    p, q, x = case.logits(n)
    sampler = TopPSampler(seed=seed)
    draft = Draft(x, [case.gamma] * n, probs=sampler.distributions(q) if with_law else None)
    accepted, following = _VERIFIER.verify_batch(p, draft, sampler, x, [0] * n)
    out = torch.where(torch.arange(case.gamma) < accepted[:, None], x, -1)
    out = torch.cat([out, torch.full((n, 1), -1)], 1)
    return out.scatter(1, accepted[:, None], following[:, None])


def _drawn_from(q: Any, case: Case) -> Any:
    """Return the law that each node was drawn from, given its earlier siblings [nodes - 1, V]."""
    laws = [q[parent].clone() for parent in case.parents]
    if case.rule == "rrs_without":
        for node, (law, parent) in enumerate(zip(laws, case.parents, strict=True)):
            for earlier in range(node):
                if case.parents[earlier] == parent:
                    law[case.tokens[earlier]] = 0.0
            law /= law.sum()
    return torch.stack(laws)
