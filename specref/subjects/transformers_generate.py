"""Hugging Face transformers: the whole of `generate`, assisted by a draft model or prompt lookup.

The models are tiny and real: Llama with one layer, attention, rotary positions and a KV cache, in
float64, with weights drawn from a fixed seed. Nothing of the library is replaced. What plain
decoding gives is read off the target's own forward passes, one for each text, without a cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from specref.logits import Enclosure, Parameters, law

name = f"transformers {transformers.__version__}, generate"
parameters = ("temperature", "top_k", "top_p")
preset = "transformers"

VOCAB = 4
PROMPT = (1, 3, 0)
"""No token twice: prompt lookup finds its first drafts behind the first token it emits."""


def _llama(seed: int) -> Any:
    """Return a model whose laws are far from uniform, and others after every text."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config).double().eval()
    weights = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                drawn = torch.randn(parameter.shape, generator=weights, dtype=torch.float64)
                parameter.copy_(0.3 * drawn)
    return model


TARGET, DRAFT = _llama(38), _llama(10)

# Rounds of two drafts, whatever came before. The assistant reads this from its own model.
DRAFT.generation_config.num_assistant_tokens = 2
DRAFT.generation_config.num_assistant_tokens_schedule = "constant"
DRAFT.generation_config.assistant_confidence_threshold = 0.0


@dataclass(frozen=True)
class Generation:
    """A way to call `generate`, and the law that it should have (see `gate.models.ToyModel`).

    Attributes:
        name: what reports call it.
        assisted: whether a draft model drafts, or what stands in the text already.
        parameters: the sampling parameters that are asked for.
        max_tokens, eos: where its sequences end.
        profile: "ci" if it is left out of quick runs.
    """

    name: str
    assisted: bool
    parameters: dict[str, Any] = field(default_factory=dict)
    max_tokens: int = 3
    eos: tuple[int, ...] = ()
    profile: str = ""
    vocab: int = VOCAB
    prompt: tuple[int, ...] = PROMPT
    dtype: str = "float32"  # generate converts logits to it, whatever the model computes in
    preset: str = preset

    def logits(self, context: tuple[int, ...]) -> list[float]:
        """Return the target's logits after a context: one forward pass over all of it."""
        return _forward(tuple(context))

    def target(self, context: tuple[int, ...]) -> list[float]:
        """Return the law of plain decoding after a context, under the parameters."""
        logits = self.logits(context)
        if not self.parameters:
            row: list[float] = torch.tensor(logits, dtype=torch.float64).softmax(-1).tolist()
            return row
        found = law(logits, Parameters(**self.parameters), self.preset)
        exact = found.inside() if isinstance(found, Enclosure) else found
        return [float(w) for w in exact]


@cache
def _forward(context: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        row: list[float] = TARGET(torch.tensor([context])).logits[0, -1].tolist()
    return row


def _ways() -> list[Generation]:
    """Return what is tried, smallest first."""
    ways = {"draft model": True, "prompt lookup": False}
    asked: dict[str, dict[str, Any]] = {
        "temperature": {"temperature": 0.5},
        "top_k": {"top_k": 2},
        "top_p": {"top_p": 0.75},
        "all three": {"temperature": 1.5, "top_k": 3, "top_p": 0.75},
    }
    found = [Generation(way, assisted) for way, assisted in ways.items()]
    for way, assisted in ways.items():
        for limit in (1, 2):
            label = f"{way} with limit {limit}"
            found.append(Generation(label, assisted, max_tokens=limit, profile="ci"))
        for eos in ((0,), (2, 3)):
            label = f"{way} with EOS {' or '.join(map(str, eos))}"
            found.append(Generation(label, assisted, eos=eos, profile="ci"))
        for what, parameters in asked.items():
            found.append(Generation(f"{way} with {what}", assisted, parameters, profile="ci"))
    return found


models = _ways()


def generate(model: Generation, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
    """Generate n sequences, one call each: assisted generation takes no batches."""
    torch.default_generator.manual_seed(seed)
    config = _config(model.assisted, tuple(model.parameters.items()), max_tokens, eos)
    assistance = {"assistant_model": DRAFT} if model.assisted else {}
    prompt = torch.tensor([model.prompt])
    # Left to itself, generate masks the tokens of a prompt that are equal to the padding.
    mask = torch.ones_like(prompt)
    out = torch.full((n, max_tokens), -1)
    with _quiet():
        for row in range(n):
            text = TARGET.generate(
                prompt, attention_mask=mask, generation_config=config, **assistance
            )
            made = text[0, len(model.prompt) :]
            out[row, : len(made)] = made
    return out


@cache
def _config(
    assisted: bool,
    parameters: tuple[tuple[str, Any], ...],
    max_tokens: int,
    eos: tuple[int, ...],
) -> GenerationConfig:
    asked = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **dict(parameters)}
    if not assisted:
        asked["prompt_lookup_num_tokens"] = 2
    return GenerationConfig(
        do_sample=True,
        max_new_tokens=max_tokens,
        eos_token_id=list(eos) or None,
        pad_token_id=0,
        **asked,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep generate from warning of how it calls itself."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
