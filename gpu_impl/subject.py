"""This sampler as the gate is shown it: chains, trees, its drafter and its sampling parameters.

`specref gate gpu_impl` is the subject for chains, `gpu_impl.trees` that for trees, both on the
torch backend; `gpu_impl.triton_subject` has them for the Triton backend. Cases are handed over as
a server would: raw logits, one row per node, all requests in one call.

- `sample`: draws by address. The seed makes the key, and request i starts its round at token i, so
  no two requests of a call share a draw.
- `decide`: given draws, through the same code.
- `propose`: the drafter; what it declares is the softmax of the rows that it drew from.
- `law`: `verify` is asked for every token in turn, as a draft that is certain. On a coin of 0 it is
  accepted just where it has mass, and the mass is then read off its logprob. So this is the law
  that decisions are made by, not a second way to compute it.
"""

import secrets
from collections.abc import Mapping
from typing import Any

import torch

from gpu_impl.call import verify
from gpu_impl.drafting import draft
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.laws import DraftLogits, OneHot
from gpu_impl.parameters import Parameters
from gpu_impl.torch_backend.sides import implementation
from specref.gate.cases import Case
from specref.logits import PRESETS, Preset

NUMBERS = ("temperature", "top_k", "top_p", "min_p")


class Sampler:
    """What both shapes share.

    Args:
        backend: as `verify` takes it.
        preset: whose reading of the sampling parameters `law` is asked for.
        device: where the call is made.
    """

    seeded = True
    grid = 1 << 53
    time_limit = 60.0

    def __init__(self, backend: str = "torch", preset: str = "vllm", device: str = "cpu") -> None:
        self.backend, self.device = backend, device
        if backend == "torch":  # what has to be compiled is, before a call's time is limited
            implementation(torch.device(device))
        self.preset: Preset = PRESETS[preset]
        known = (*NUMBERS, "bias", "allowed")
        self.parameters = tuple(name for name in known if name in self.preset.names)

    def sample(self, case: Case, n: int, seed: int | None) -> Any:
        """Verify n requests in one call."""
        return self.rounds(case, n, self.seeds(n, seed))

    def decide(self, case: Case, u: Any) -> Any:
        """Verify one request for each row of u: a coin per drafted node, then the terminal draw."""
        draws = torch.from_numpy(u).to(self.device)
        coins = torch.nn.functional.pad(draws[:, :-1], (1, 0))
        return self.rounds(case, len(u), Uniforms(coins.flatten(), draws[:, -1].contiguous()))

    def law(self, logits: Any, params: dict[str, Any]) -> Any:
        """Return the probabilities [n, V] of float32 logits [n, V] under sampling parameters."""
        return law_of(torch.from_numpy(logits), params, self.preset.name, self.backend, self.device)

    def rounds(self, case: Case, n: int, draws: Seeds | Uniforms) -> Any:
        """Return what n requests emit, [n, gamma + 1]."""
        raise NotImplementedError

    def seeds(self, n: int, seed: int | None) -> Seeds:
        """Return the addresses of n requests; without a seed, under one that nobody knows.

        The key goes through a generator of torch and leaves it as a number, so that the gate's tape
        knows at once that there is nothing for it to follow.
        """
        generator = torch.Generator()
        generator.manual_seed(secrets.randbits(63) if seed is None else seed)
        key = int(torch.randint(1 << 62, (), generator=generator).item())
        at = torch.arange(n, device=self.device)
        return Seeds(torch.full_like(at, key), at)


class Chains(Sampler):
    """The subject for chains; drafts may be padded with -1."""

    rules = ("token", "one_hot", "block", "match", "greedy")
    placeholders = True

    def __init__(self, backend: str = "torch", preset: str = "vllm", device: str = "cpu") -> None:
        super().__init__(backend, preset, device)
        self.name = f"gpu_impl, {backend} backend"

    def rounds(self, case: Case, n: int, draws: Seeds | Uniforms) -> Any:
        """Return what n chains emit, [n, gamma + 1]."""
        p, q, x = case.logits(n, device=self.device)
        rule = case.rule or "token"
        q = DraftLogits(q.flatten(0, 1)) if rule in ("token", "block") else OneHot()
        nodes = torch.nn.functional.pad(x, (1, 0), value=-1).flatten()
        begin = torch.arange(n + 1, device=self.device) * (case.gamma + 1)
        return verify(
            p.flatten(0, 1), nodes, begin, q, draws=draws, rule=rule, max_depth=case.gamma,
            max_width=1, backend=self.backend,
        ).tokens  # fmt: skip

    def propose(self, case: Case, n: int, seed: int | None) -> Any:
        """Draw n chains; the law of each token is that of its position."""
        q = case.logits(n, device=self.device)[1]
        seeds = self.seeds(n, seed)
        drawn = [
            draft(q[:, at].contiguous(), seeds, torch.full_like(seeds.start, at + 1)).tokens
            for at in range(case.gamma)
        ]
        tokens = torch.cat(drawn, 1) if drawn else torch.empty((n, 0), dtype=torch.int64)
        return tokens, q.double().softmax(-1)


class Trees(Sampler):
    """The subject for trees."""

    rules = ("rrs_with", "rrs_without", "target_only")

    def __init__(self, backend: str = "torch", preset: str = "vllm", device: str = "cpu") -> None:
        super().__init__(backend, preset, device)
        self.name = f"gpu_impl, {backend} backend, trees"

    def rounds(self, case: Case, n: int, draws: Seeds | Uniforms) -> Any:
        """Return what n trees emit, [n, gamma + 1]."""
        p, q, tokens, parents = case.logits(n, device=self.device)
        rule = case.rule or "rrs_with"
        laws = OneHot() if rule == "target_only" else DraftLogits(q.flatten(0, 1))
        nodes = len(case.tokens) + 1
        begin = torch.arange(n + 1, device=self.device) * nodes
        return verify(
            p.flatten(0, 1), tokens.flatten(), begin, laws, draws=draws, parents=parents.flatten(),
            rule=rule, max_depth=case.gamma, max_width=nodes - 1, backend=self.backend,
        ).tokens  # fmt: skip


def law_of(logits: Any, params: Mapping[str, Any], preset: str, backend: str, device: str) -> Any:
    """Return the law that `verify` decides by: float64 [n, V] of float32 logits [n, V].

    Args:
        logits: on a CPU.
        params: values by the names of `specref.logits.Parameters`.
        preset: how they are read.
        backend, device: where they are read.
    """
    n, vocab = logits.shape
    nodes = 2 * n * vocab
    asked: dict[str, Any] = {name: params[name] for name in NUMBERS if name in params}
    if params.get("bias"):
        bias = torch.zeros(n * vocab, vocab)
        for token, value in params["bias"].items():
            bias[:, token] = float(value)
        asked["bias"] = bias.to(device)
    if params.get("allowed") is not None:
        words = [0] * -(-vocab // 32)
        for token in set(params["allowed"]):
            words[token // 32] |= 1 << token % 32
        row = torch.tensor(words, dtype=torch.int64).to(torch.int32)
        asked["allowed"] = row.repeat(nodes, 1).to(device)
    tokens = torch.full((n, vocab, 2), -1)
    tokens[..., 1] = torch.arange(vocab)
    coins = torch.zeros(nodes, dtype=torch.float64, device=device)
    out = verify(
        logits.repeat_interleave(2 * vocab, 0).to(device),
        tokens.flatten().to(device),
        torch.arange(n * vocab + 1, device=device) * 2,
        OneHot(),
        draws=Uniforms(coins, coins[::2].contiguous()),
        rule="one_hot",
        parameters=Parameters(preset=preset, **asked),
        max_depth=1,
        max_width=1,
        lazy=True,
        backend=backend,
        logprobs=True,
    )
    masses = torch.where(out.counts == 2, out.logprobs[:, 0].double().exp(), 0.0)
    return masses.reshape(n, vocab).cpu()


chains, trees = Chains(), Trees()
