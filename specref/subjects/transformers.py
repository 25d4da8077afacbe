"""Hugging Face transformers: the verifier of assisted generation, and the law that it is given.

`sample` is `_speculative_sampling`, which takes logits and verifies one chain per call. `law` is
what `generate` makes of logits before it draws: the list of processors that the library itself
builds for what is asked, in its order, and a softmax. Both are private, and called as their library
calls them; nothing of it is replaced.
"""

from typing import Any

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig
from transformers.generation.utils import _speculative_sampling

from specref.gate.cases import Case

name = f"transformers {transformers.__version__}, _speculative_sampling"
rules = ["token"]
preset = "transformers"
parameters = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon", "eta", "repetition_penalty",
    "bias", "allowed", "min_tokens",
)  # fmt: skip


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify the case n times, one call each, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    p, q, x = case.logits(1)
    out = torch.full((n, case.gamma + 1), -1)
    for row in range(n):
        tokens, _ = _speculative_sampling(x, q, case.gamma, p)
        out[row, : tokens.shape[1]] = tokens[0]
    return out


class _Generation(GenerationMixin):  # type: ignore[misc]
    """What builds lists of processors, for a model that is none but a decoder."""

    config = PretrainedConfig()


_GENERATION = _Generation()


def law(logits: Any, params: dict[str, Any]) -> Any:
    """Return the probabilities [n, V] that `generate` would draw from; greedy takes the largest."""
    scores = torch.from_numpy(logits.copy())
    text = torch.tensor([*params.get("prompt", []), *params.get("output", [])], dtype=torch.long)
    scores = _processors(params)(text.expand(len(scores), -1), scores)
    if params.get("temperature") == 0:
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()
    return scores.softmax(-1)


def _processors(params: dict[str, Any]) -> Any:
    """Return the processors of a request; at temperature 0, `generate` does not sample."""
    asked = {
        "temperature": params.get("temperature", 1.0),
        "top_k": params.get("top_k", 0),
        "top_p": params.get("top_p", 1.0),
        "min_p": params.get("min_p"),
        "typical_p": params.get("typical_p", 1.0),
        "epsilon_cutoff": params.get("epsilon", 0.0),
        "eta_cutoff": params.get("eta", 0.0),
        "repetition_penalty": params.get("repetition_penalty", 1.0),
        "min_new_tokens": params.get("min_tokens"),
    }
    if asked["temperature"] == 0:
        asked = {name: asked[name] for name in ("repetition_penalty", "min_new_tokens")}
    sample = params.get("temperature") != 0
    config = GenerationConfig(do_sample=sample, num_beams=1, num_return_sequences=1, **asked)
    if params.get("bias"):
        config.sequence_bias = {(x,): float(b) for x, b in params["bias"].items()}
    if "eos" in params:  # as `generate` prepares it
        config._eos_token_tensor = torch.tensor(params["eos"])
    allowed = params.get("allowed")
    return _GENERATION._get_logits_processor(
        config,
        input_ids_seq_length=len(params.get("prompt", [])),
        prefix_allowed_tokens_fn=None if allowed is None else lambda batch, text: allowed,
        device="cpu",
    )
