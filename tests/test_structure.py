"""What may import what, and how cheap it is to import the package at all."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GATE = ROOT / "specref" / "gate" / "__init__.py"

# A module may import from its own group, without cycles, and from the groups above it.
GROUPS = [
    ("dist", "checker", "picture", "speed"),
    ("logits", "philox", "transport"),
    ("choice",),
    ("model",),
    ("draft",),
    ("drafters", "topology"),
    ("rules",),
    ("decode", "sampler", "stops"),
    ("closed", "lemma", "oracle"),
    ("compare", "growth"),
    ("faults", "explain"),
    ("gate",),
    ("subjects",),
    ("plugin", "cli"),
]
HEAVY = {"networkx", "numpy", "torch", "transformers", "triton", "scipy", "rich", "typer"}
HEAVY |= {"flint", "mpmath"}
LEVEL = {name: level for level, group in enumerate(GROUPS) for name in group}


def sources():
    """Return the modules of the package by dotted name."""
    found = {}
    for path in sorted((ROOT / "specref").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = sources()


def imports(name, path):
    """Yield the dotted names that a module imports, wherever the statement stands.

    Names under `if TYPE_CHECKING` are left out, and in the lazy front, specref/__init__.py, also
    imports inside functions.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    todo = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif isinstance(node, ast.FunctionDef) and name == "specref":
            continue
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            start = ".".join(filter(None, (base if node.level else "", node.module)))
            for alias in node.names:
                whole = f"{start}.{alias.name}"
                yield whole if whole in MODULES else start
        else:
            todo += ast.iter_child_nodes(node)


EDGES = {name: sorted(set(imports(name, path))) for name, path in MODULES.items()}


def group_of(module):
    """Return the part of a module's name that the list of groups knows: its first below specref."""
    return module.split(".")[1] if "." in module else module


def test_the_reader_of_imports_sees_every_form(tmp_path):
    text = """
import json, os.path
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import hidden
else:
    import shown
from . import dist
from .rules import token
from specref.rules import RULES
try:
    import tried
except ImportError:
    from fallen.back import thing
def lazy():
    import local
class Body:
    import inner
"""
    path = tmp_path / "choice.py"
    path.write_text(text)
    assert set(imports("specref.choice", path)) == {
        "json", "os.path", "typing", "shown", "specref.dist", "specref.rules.token",
        "specref.rules", "tried", "fallen.back", "local", "inner",
    }  # fmt: skip


def test_every_module_has_its_place_in_the_list():
    unplaced = {group_of(name) for name in MODULES if name != "specref"} - set(LEVEL)
    assert not unplaced, f"add {sorted(unplaced)} to GROUPS, where the data comes by"


@pytest.mark.parametrize("name", [name for name in MODULES if group_of(name) in LEVEL])
def test_a_module_imports_only_up_the_list(name):
    below = [
        target
        for target in EDGES[name]
        if target in MODULES and LEVEL.get(group_of(target), 0) > LEVEL[group_of(name)]
    ]
    assert not below, f"{name} imports {below}, which stand below it"


def test_the_front_imports_nothing_of_the_package_when_it_loads():
    assert not [target for target in EDGES["specref"] if target.startswith("specref")]
    # Modules may ask the front for its version only, never for what it hands through lazily.
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "specref" and not node.level:
                names = {alias.name for alias in node.names}
                submodules = {n for n in names if f"specref.{n}" in MODULES}
                assert names - submodules <= {"__version__"}, name


def test_no_module_imports_itself_in_a_circle():
    done, path = set(), []

    def walk(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done or name not in MODULES:
            return
        path.append(name)
        for target in EDGES[name]:
            if target != "specref":
                walk(target)
        done.add(path.pop())

    for name in MODULES:
        walk(name)


# Where tensors are the business: the tape with what it is made of, and adapters.
TENSORS = (
    *(
        f"specref.gate.{name}"
        for name in "tape taped taint race uniform scalar measure audit stream".split()
    ),
    "specref.subjects",
)


def uses_tensors(name):
    return any(name == module or name.startswith(f"{module}.") for module in TENSORS)


# What solves a flow or a linear program, or draws, is imported where that is asked for.
LAZY = {"flint", "matplotlib", "mpmath", "networkx", "scipy"}


def test_above_the_gate_nobody_imports_torch_even_lazily():
    for name in MODULES:
        if LEVEL.get(group_of(name), -1) < LEVEL["gate"]:
            assert not {target.split(".")[0] for target in EDGES[name]} & (HEAVY - LAZY), name


def loaded(statement, *flags):
    """Return what a fresh interpreter says after running a statement."""
    return subprocess.run(
        [sys.executable, *flags, "-c", statement],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip


def test_importing_the_package_loads_nothing_heavy():
    report = loaded("import specref", "-X", "importtime").stderr
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in report.splitlines()}
    assert "specref" in names
    assert not names & HEAVY


@pytest.mark.parametrize(
    "statement",
    [
        "import specref; specref.lossless",
        "import specref; specref.verify; specref.law; specref.RULES; specref.Table",
        "from specref import *",
        "import specref; specref.lossless('token', *[lambda c: (1,)] * 2, shape=1, length=2)",
    ],
)
def test_the_core_needs_neither_arrays_nor_tensors(statement):
    tell = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    names = set(loaded(f"{statement}; {tell}").stdout.split())
    assert "specref" in names
    assert not names & HEAVY


def test_without_torch_everything_loads_but_the_tape_and_the_adapters():
    names = [name for name in MODULES if not uses_tensors(name)]
    loaded(f"import sys; sys.modules['torch'] = None; import {', '.join(names)}")


def test_the_front_lists_what_it_hands_through():
    import specref

    assert sorted(specref.__all__) == sorted(specref._HOME)
    assert set(specref.__all__) <= set(dir(specref))
    for name, module in specref._HOME.items():
        assert getattr(specref, name) is getattr(sys.modules[f"specref.{module}"], name)
    with pytest.raises(AttributeError, match="module 'specref' has no attribute 'losless'"):
        specref.losless  # noqa: B018


def test_the_map_of_the_gate_names_every_module():
    words = set(re.findall(r"\w+", ast.get_docstring(ast.parse(GATE.read_text(encoding="utf-8")))))
    there = {path.stem for path in GATE.parent.glob("*.py")} - {"__init__"}
    assert there <= words, f"say in specref/gate/__init__.py what {sorted(there - words)} is"
