"""The one call: verify a batch of drafts against raw target logits."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.errors import need
from gpu_impl.forest import Forest, forest
from gpu_impl.laws import PLAIN, DraftLogits, DraftProbs, OneHot
from gpu_impl.lossy import LOSSY, Lenience, Thresholds
from gpu_impl.parameters import FILTERS, Parameters
from gpu_impl.verified import Verified

FLOATS = (torch.float32, torch.bfloat16, torch.float16)

RULES = (
    "token", "one_hot", "block", "match", "greedy", "target_only", "rrs_with", "rrs_without",
)  # fmt: skip
"""Those of `specref.RULES` that are run here; the first three verify chains."""

CHAINS = ("token", "one_hot", "block")
NEED_Q = ("token", "block", "rrs_with", "rrs_without")

BACKENDS = {"torch": "gpu_impl.torch_backend", "triton": "gpu_impl.triton_backend"}


@dataclass(frozen=True)
class Batch:
    """A checked call, as a backend is given it.

    Attributes:
        logits: target logits [R, V], without padding; the last stride is 1.
        forest: the drafts.
        draft: their laws; `OneHot` for rules that do not look at them.
        parameters: of the target.
        rule: one of `RULES`.
        draws: where draws come from.
        fallback: emitted where a row has no finite entry.
        lazy: whether only rows on the path are read, one depth after the other.
        logprobs, trace: whether they are wanted.
        workspace: holds what is allocated, or None.
        lossy: a rule that does not keep the law, or None.
    """

    logits: Any
    forest: Forest
    draft: DraftLogits | DraftProbs | OneHot
    parameters: Parameters
    rule: str
    draws: Seeds | Uniforms
    fallback: int
    lazy: bool
    logprobs: bool
    trace: bool
    workspace: Any
    lossy: Lenience | Thresholds | None = None


def verify(
    target_logits: Any,
    tokens: Any,
    cu_nodes: Any,
    draft: DraftLogits | DraftProbs | OneHot | None = None,
    *,
    draws: Seeds | Uniforms,
    parents: Any = None,
    rule: str = "token",
    parameters: Parameters = PLAIN,
    vocab: int | None = None,
    max_depth: int | None = None,
    max_width: int | None = None,
    fallback: int = 0,
    lazy: bool | None = None,
    backend: str = "auto",
    workspace: Any = None,
    logprobs: bool = False,
    trace: bool = False,
    lossy: Lenience | Thresholds | None = None,
) -> Verified:
    """Verify one round of every request of a batch.

    Nothing of size V is written, the host never waits for the device, and what a request emits does
    not depend on the others, on its place among them, or on how often it is run.

    Args:
        target_logits: float32, bfloat16 or float16 [R, >= V]; the row of a node is the law of the
            token behind it, before temperature. Rows may lie apart; the last stride is 1.
        tokens, cu_nodes, parents: the drafts, see `Forest`; leave parents out for chains.
        draft: the laws that the drafts were drawn from; left out, or `OneHot()`, for rules that do
            not look at them.
        draws: `Seeds` or `Uniforms`.
        rule: one of `RULES`; "token" and "block" with `OneHot()` drafts are "one_hot".
        parameters: of the target; plain softmax if left out.
        vocab: V, if the rows are padded.
        max_depth, max_width: sizes of the largest draft, see `Forest`; give them on a device, where
            they cannot be looked up without waiting.
        fallback: the token emitted where a target row has no finite entry.
        lazy: read the rows on the accepted path only, one depth after the other; or all rows at
            once. Chosen by sizes if left out; the result does not depend on it.
        backend: "torch", "triton", or "auto": triton on a CUDA device if it is installed.
        workspace: a `Workspace`; results and scratch then lie in it, and the next call reuses them.
        logprobs, trace: return them too.
        lossy: a looser test of `rule`; what is emitted no longer follows the target.

    Raises:
        KeyError: an unknown rule, preset or backend.
        ValueError: any other argument, by name.

    >>> import torch
    >>> p = torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    >>> q = DraftLogits(torch.tensor([[0.0, 2.0, 1.0]]))
    >>> seeds = Seeds(torch.tensor([7]), torch.tensor([0]))
    >>> out = verify(p, torch.tensor([-1, 1]), torch.tensor([0, 2]), q, draws=seeds)
    >>> out.tokens, out.counts
    (tensor([[ 2, -1]], dtype=torch.int32), tensor([1], dtype=torch.int32))
    """
    if rule not in RULES:
        raise KeyError(f"rule = {rule!r} is unknown; pass one of {', '.join(RULES)}")
    drafts = forest(tokens, cu_nodes, parents, max_depth, max_width)
    logits = _rows(target_logits, "target_logits", drafts.nodes, tokens.device, vocab)
    need(parents is None or rule not in CHAINS, f"{rule} verifies chains; leave parents out")
    certain = draft is None or isinstance(draft, OneHot)
    if certain and rule in ("token", "block"):
        need(draft is not None, f"draft is missing; {rule} looks at the laws of the drafts")
        rule = "one_hot"
    need(not certain or rule not in NEED_Q, f"{rule} looks at the laws of the drafts; pass draft")
    if rule not in NEED_Q:
        draft = OneHot()
    if lossy is not None:
        rules = LOSSY.get(type(lossy), ())
        need(rule in rules, f"lossy = {lossy} goes with {' or '.join(rules)}, not with {rule}")
    assert draft is not None
    _draft(draft, drafts, logits.shape[1])
    _parameters(parameters, "parameters", drafts, logits)
    _draws(draws, drafts)
    need(0 <= fallback < logits.shape[1], f"fallback = {fallback} is no token")
    batch = Batch(
        logits, drafts, draft, parameters, rule, draws, fallback,
        _pays(drafts) if lazy is None else lazy, logprobs, trace, workspace, lossy,
    )  # fmt: skip
    return _backend(backend, logits.device)(batch)


def _pays(drafts: Forest) -> bool:
    """Return whether it pays to wait for each depth: many rows, of which most are not used."""
    return drafts.requests >= 32 or drafts.nodes > 8 * drafts.requests


def _rows(given: Any, name: str, rows: int | None, device: Any, vocab: int | None) -> Any:
    # The messages take longer than the checks, and every call is checked.
    fine = isinstance(given, torch.Tensor) and given.dim() == 2 and given.dtype in FLOATS
    if not (fine and given.device == device and rows in (None, given.shape[0])):
        _refuse_rows(given, name, rows, device)
    width = given.shape[1] if vocab is None else vocab
    need(1 <= width <= given.shape[1], f"vocab = {width}, but {name} has {given.shape[1]} columns")
    need(
        given.stride(1) == 1 or width == 1, f"{name} has a last stride of {given.stride(1)}, not 1"
    )
    return given if width == given.shape[1] else given[:, :width]


def _refuse_rows(given: Any, name: str, rows: int | None, device: Any) -> None:
    need(isinstance(given, torch.Tensor), f"{name} is a {type(given).__name__}; pass a tensor")
    need(given.dim() == 2, f"{name} has shape {list(given.shape)}; pass two dimensions")
    need(given.dtype in FLOATS, f"{name} is {given.dtype}; pass float32, bfloat16 or float16")
    need(given.device == device, f"{name} is on {given.device}, tokens are on {device}")
    need(
        rows is None or len(given) == rows,
        f"{name} has {len(given)} rows; pass one for each of the {rows} nodes",
    )


def _draft(draft: DraftLogits | DraftProbs | OneHot, drafts: Forest, vocab: int) -> None:
    if isinstance(draft, OneHot):
        return
    name = "draft.logits" if isinstance(draft, DraftLogits) else "draft.probs"
    given = draft.logits if isinstance(draft, DraftLogits) else draft.probs
    rows = _rows(given, name, None, drafts.tokens.device, None)
    if draft.row is None:
        have, nodes = rows.shape[0], drafts.nodes
        chains = drafts.parents is None
        need(
            have == nodes or (chains and have == nodes - drafts.requests),
            f"{name} has {have} rows for {nodes} nodes; pass one for each, or say by "
            "row= which node has which",
        )
    else:
        _vector(draft.row, "draft.row", drafts.nodes, (torch.int64,), drafts)
    if draft.tokens is None:
        need(rows.shape[1] == vocab, f"{name} has {rows.shape[1]} tokens, the target {vocab}")
    else:
        _vector(draft.tokens, "draft.tokens", rows.shape[1], (torch.int64,), drafts)
    if isinstance(draft, DraftLogits):
        need(
            draft.parameters.bias is None and draft.parameters.allowed is None,
            "draft.parameters has a bias or a mask; add them to draft.logits",
        )
        _parameters(draft.parameters, "draft.parameters", drafts, rows)
        if draft.laws is not None:
            for field, column in draft.laws._asdict().items():
                need(
                    isinstance(column, torch.Tensor) and column.shape == (len(rows),),
                    f"draft.laws.{field} is no tensor with an entry for each of {len(rows)} rows",
                )


def _parameters(given: Parameters, name: str, drafts: Forest, logits: Any) -> None:
    for field in ("temperature", *FILTERS):
        value = getattr(given, field)
        if isinstance(value, torch.Tensor):
            kinds = (torch.int32, torch.int64) if field == "top_k" else (torch.float32,)
            _vector(value, f"{name}.{field}", drafts.requests, kinds, drafts)
        elif field == "top_k" and not given.reading.whole_top_k:
            need(value < logits.shape[1], f"{name}.top_k = {value}; the preset takes top_k < V")
    words = -(-logits.shape[1] // 32)
    for field, shape, dtype in (
        ("bias", (drafts.requests, logits.shape[1]), torch.float32),
        ("allowed", (drafts.nodes, words), torch.int32),
    ):
        value = getattr(given, field)
        if value is not None:
            need(
                isinstance(value, torch.Tensor)
                and value.dtype == dtype
                and tuple(value.shape) == shape
                and value.device == logits.device
                and value.is_contiguous(),
                f"{name}.{field} is not a contiguous {dtype} {list(shape)} tensor on "
                f"{logits.device}; make it one",
            )


def _draws(draws: Seeds | Uniforms, drafts: Forest) -> None:
    if isinstance(draws, Seeds):
        _vector(draws.seed, "draws.seed", drafts.requests, (torch.int64,), drafts)
        _vector(draws.start, "draws.start", drafts.requests, (torch.int64,), drafts)
    else:
        need(isinstance(draws, Uniforms), "draws is neither Seeds nor Uniforms; pass one")
        _vector(draws.coins, "draws.coins", drafts.nodes, (torch.float64,), drafts)
        _vector(draws.terminal, "draws.terminal", drafts.requests, (torch.float64,), drafts)


def _vector(given: Any, name: str, size: int, dtypes: tuple[Any, ...], drafts: Forest) -> None:
    device = drafts.tokens.device
    fine = isinstance(given, torch.Tensor) and given.dtype in dtypes
    if fine and given.shape == (size,) and given.device == device:
        return
    need(isinstance(given, torch.Tensor), f"{name} is a {type(given).__name__}; pass a tensor")
    kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    need(given.dtype in dtypes, f"{name} is {given.dtype}; pass {kinds}")
    need(given.shape == (size,), f"{name} has shape {list(given.shape)}; pass [{size}]")
    need(given.device == device, f"{name} is on {given.device}, tokens are on {device}")


def _backend(name: str, device: Any) -> Callable[[Batch], Verified]:
    if name == "auto":
        name = "triton" if device.type == "cuda" and _installed() else "torch"
    if name not in BACKENDS:
        raise KeyError(f"backend = {name!r} is unknown; pass {', '.join(BACKENDS)} or auto")
    backend: Callable[[Batch], Verified] = import_module(BACKENDS[name]).verify
    return backend


def _installed() -> bool:
    try:
        import_module("triton")
    except ImportError:
        return False
    return True
