"""What libraries make of the same parameters: the order of the steps, ties, and boundaries."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from specref.dist import Number, rational, whole
from specref.logits.parameters import OFF, Parameters

Ties: TypeAlias = Literal["all", "lowest", "highest"]
"""Of equally likely tokens of which some are to be kept: all, or those of lowest or highest id."""

Nucleus: TypeAlias = Literal["reaches", "exceeds"]
"""The kept tokens are the fewest likeliest ones of which the mass reaches, or exceeds, top_p."""

Zero: TypeAlias = Literal["one", "off", "refused"]
"""What top_p = 0 does: it keeps one token, is off, or is refused."""

Counted: TypeAlias = Literal["all", "output"]
"""What presence and frequency count: the prompt too, or the output only."""

PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
STEPS = tuple(name for name in OFF)


@dataclass(frozen=True)
class Preset:
    """One reading of the sampling parameters. `dataclasses.replace` makes your own.

    Attributes:
        name: what errors call it.
        steps: parameters in the order in which they act; those in a tuple of their own all look at
            the same law, and a token stays if each of them keeps it.
        top_k_ties, top_p_ties, typical_ties: which of equally likely tokens stay.
        greedy_ties: which of the likeliest tokens is taken at temperature 0; with "all" they share.
        nucleus, typical: whether the kept mass reaches or exceeds top_p, and typical_p.
        top_k_off: the smallest top_k below 1 that means off; smaller ones are refused.
        whole_top_k: whether top_k >= V means off; else it is refused.
        top_p_zero: whether top_p = 0 keeps one token ("one"), means "off", or is "refused".
        coldest, hottest: the positive temperatures that it takes as they are.
        counted: whether presence and frequency count the prompt too ("all"), or the "output".
        window: how many last tokens penalties look at; None for all.
        source: where this was read.

    Raises:
        ValueError: steps that are unknown or twice there, no temperature, an unknown word, or
            numbers outside their range.
    """

    name: str
    steps: tuple[str | tuple[str, ...], ...]
    top_k_ties: Ties = "all"
    top_p_ties: Ties = "all"
    typical_ties: Ties = "all"
    greedy_ties: Ties = "lowest"
    nucleus: Nucleus = "reaches"
    typical: Nucleus = "reaches"
    top_k_off: float = -math.inf
    whole_top_k: bool = True
    top_p_zero: Zero = "one"
    coldest: Number = 0
    hottest: Number = math.inf
    counted: Counted = "all"
    window: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"steps = {self.steps} has a step twice; each acts once")
        for name in names:
            if name not in STEPS:
                raise ValueError(f"steps has {name!r}; the steps are {', '.join(STEPS)}")
        if "temperature" not in names:
            raise ValueError('steps has no "temperature"; say where it acts')
        words = [(at, Ties) for at in ("top_k_ties", "top_p_ties", "typical_ties", "greedy_ties")]
        words += [("nucleus", Nucleus), ("typical", Nucleus)]
        for at, kind in [*words, ("top_p_zero", Zero), ("counted", Counted)]:
            if getattr(self, at) not in get_args(kind):
                known = ", ".join(map(repr, get_args(kind)))
                raise ValueError(f"{at} = {getattr(self, at)!r} is unknown; pass one of {known}")
        if self.window is not None:
            whole(self.window, "window", "pass a number of tokens, or None", 0)
        if not 0 <= self.coldest <= self.hottest:
            raise ValueError(
                f"coldest = {self.coldest} and hottest = {self.hottest} leave no temperature; "
                "pass 0 <= coldest <= hottest"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The steps, without the tuples around those that act together."""
        return tuple(
            name for step in self.steps for name in ((step,) if isinstance(step, str) else step)
        )

    def read(self, parameters: Parameters, vocab: int) -> dict[str, bool]:
        """Say which steps act, or why this preset does not do what is asked.

        Args:
            parameters: what is asked.
            vocab: V.

        Raises:
            ValueError: the library has no such parameter, refuses the value, or would put another
                in its place.
        """
        asked = set(parameters.asked())
        k = parameters.top_k
        if k is not None and (k < 1 or k >= vocab):
            self._check_top_k(k, vocab)
            asked.discard("top_k")
        if parameters.top_p == 0 and self.top_p_zero != "one":
            if self.top_p_zero == "refused":
                raise ValueError(f"top_p = 0 is out of range; {self.name} takes 0 < top_p <= 1")
            asked.discard("top_p")
        temperature = parameters.temperature
        if temperature and not self.coldest <= temperature <= self.hottest:
            most = "" if self.hottest == math.inf else f" and <= {self.hottest}"
            raise ValueError(
                f"temperature = {temperature} is out of range; {self.name} takes 0, which is "
                f"greedy, and temperatures >= {self.coldest}{most}"
            )
        if parameters.penalty_window == 0:
            asked -= set(PENALTIES)
        for name in sorted(asked - set(self.names)):
            have = [preset.name for preset in PRESETS.values() if name in preset.names]
            raise ValueError(f"{self.name} has no {name}; presets that do: {', '.join(have)}")
        return {name: name in asked for name in self.names}

    def _check_top_k(self, k: int, vocab: int) -> None:
        if k < self.top_k_off and k < 1:
            off = "None" if self.top_k_off == 1 else f"None or {self.top_k_off} to 0"
            off = "None or 0" if self.top_k_off == 0 else off
            raise ValueError(f"top_k = {k} is out of range; {self.name} takes >= 1, or {off}: off")
        if k >= vocab and not self.whole_top_k:
            raise ValueError(f"top_k = {k} is out of range; {self.name} takes top_k < V = {vocab}")


def steps(names: str) -> tuple[str, ...]:
    """Return the names of steps that act one after the other, written with blanks between."""
    return tuple(names.split())


_MASKS = ("allowed", "bias", "min_tokens")

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "transformers",
            steps("bias repetition_penalty min_tokens allowed temperature")
            + steps("top_k top_p min_p typical_p epsilon eta"),
            top_p_ties="highest",  # it drops by a sort that rises; on a CPU the sort is stable
            top_k_off=0,
            source="transformers 5.24.0, generation/logits_process.py; run by the tests",
        ),
        Preset(
            "vllm",
            (*_MASKS, *PENALTIES, "temperature", "min_p", "top_k", "top_p"),
            top_k_ties="lowest",
            top_p_ties="lowest",
            top_k_off=-1,
            top_p_zero="refused",
            coldest=rational(1, 100),
            hottest=2,
            counted="output",
            source="vLLM 0.32.0, v1/sample/ops/topk_topp_triton.py; run in Triton's interpreter",
        ),
        Preset(
            "vllm_sort",
            (*_MASKS, *PENALTIES, "temperature", "min_p", "top_k", "top_p"),
            top_p_ties="highest",
            top_k_off=-1,
            top_p_zero="refused",
            coldest=rational(1, 100),
            hottest=2,
            counted="output",
            source="vLLM 0.32.0, v1/sample/ops/topk_topp_sampler.py, without Triton; run",
        ),
        Preset(
            "flashinfer",
            (*_MASKS, "temperature", "top_k", "top_p", "min_p"),
            top_k_off=1,
            top_p_zero="refused",
            source="FlashInfer 0.7.4, sampling.cuh, top_k_first; SGLang's verification; read",
        ),
        Preset(
            "flashinfer_joint",
            (*_MASKS, "temperature", ("top_k", "top_p"), "min_p"),
            top_k_off=1,
            top_p_zero="refused",
            source="FlashInfer 0.7.4, sampling.cuh, joint; read",
        ),
        Preset(
            "llama_cpp",
            steps("bias allowed repetition_penalty frequency_penalty presence_penalty")
            + steps("top_n_sigma top_k typical_p top_p min_p temperature"),
            top_k_ties="lowest",
            top_p_ties="lowest",
            typical_ties="lowest",
            typical="exceeds",
            window=64,
            source="llama.cpp, src/llama-sampling.cpp and the default chain; read",
        ),
        Preset(
            "mlx",
            steps("bias allowed repetition_penalty presence_penalty frequency_penalty")
            + steps("top_p min_p top_k temperature"),
            top_k_ties="lowest",
            whole_top_k=False,
            top_p_zero="off",
            window=20,
            source="mlx-lm 0.32.2, sample_utils.py; run on a CPU",
        ),
        Preset(
            "trt_llm",
            (*_MASKS, "temperature", "top_k", "top_p"),
            top_p_ties="lowest",
            top_p_zero="refused",
            coldest=rational(1, 10**4),
            source="TensorRT-LLM, the sorting path of its PyTorch sampler; read",
        ),
        Preset(
            "eagle",
            steps("temperature top_p top_k"),
            top_p_ties="highest",
            top_p_zero="off",
            coldest=rational(1, 10**5),
            source="EAGLE cb7e0844, eagle/model/utils.py: transformers' processors; read",
        ),
    )
}
"""Presets by name."""


def find(preset: str | Preset) -> Preset:
    """Return a preset by its name.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(preset, Preset):
        return preset
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ValueError(f"there is no preset {preset!r}; presets: {', '.join(PRESETS)}")
    return PRESETS[preset]
