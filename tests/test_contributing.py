"""CONTRIBUTING must be true: its examples are applied to a copy of the repository and run."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT.joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = {text.split("\n")[0]: text for text in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}
PLACED = re.compile(
    r'# (?P<file>\S+)(?:, (?P<side>behind|before) "(?P<line>[^\n]*)")?\n(?P<code>.*)', re.DOTALL
)


@pytest.fixture
def copy(tmp_path):
    """Copy what the examples change and run."""
    for name in ("specref", "tests"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def applied(section, place):
    """Apply the blocks of a section: whole files, and lines beside others."""
    for block in re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL):
        found = PLACED.fullmatch(block)
        assert found, f"{block.splitlines()[0]!r} does not say where the block belongs"
        path, code = place / found["file"], found["code"]
        if found["side"] is None:
            assert not path.exists()
            path.write_text(code, encoding="utf-8")
            continue
        before, line, after = path.read_text(encoding="utf-8").partition(f"{found['line']}\n")
        assert line, f"{found['file']} has no line {found['line']!r}"
        parts = (before, code, line) if found["side"] == "before" else (before, line, code)
        path.write_text("".join((*parts, after)), encoding="utf-8")


def run(section, place, *more):
    """Run the command of a section in a copy, with more words; return the exit code and output."""
    (command,) = re.findall(r"```sh\n(.*?)\n```", SECTIONS[section], re.DOTALL)
    program, *words = shlex.split(command)
    pytest_ = ["pytest", "-q", "-rA", "-n0", "-p", "no:cacheprovider"]
    module = {".venv/bin/pytest": pytest_, ".venv/bin/specref": ["specref.cli"]}[program]
    done = subprocess.run(
        [sys.executable, "-m", *module, *words, *more],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def linted(place):
    """Return what the style of the repository has against a copy."""
    command = [sys.executable, "-m", "ruff", "check", "-q", str(place / "specref")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_rule_gets_all_tests_of_the_registry(copy):
    applied("Add a rule", copy)
    assert linted(copy) == ""
    code, out = run("Add a rule", copy)
    assert code == 0, out
    assert len(re.findall(r"^PASSED ", out, re.MULTILINE)) >= 20


def test_a_rule_that_is_wrong_fails_them(copy):
    applied("Add a rule", copy)
    path = copy / "specref" / "rules" / "reluctant.py"
    path.write_text(path.read_text().replace("p - min(p, q) / 2", "p - min(p, q)"))
    code, out = run("Add a rule", copy, "-k", "reluctant and grid")
    assert code == 1, out
    assert "FAILED tests/test_rules.py::test_a_rule_is_lossless_on_every_pair_of_a_grid" in out


def test_a_fault_is_refuted_and_named(copy):
    applied("Add a fault", copy)
    assert linted(copy) == ""
    code, out = run("Add a fault", copy)
    assert code == 0, out
    assert "PASSED tests/test_power.py::test_every_fault_fails_and_is_named" in out


def test_a_subject_is_gated_by_its_name(copy):
    applied("Add a subject", copy)
    assert linted(copy) == ""
    code, out = run("Add a subject", copy)
    assert code == 0, out
    assert re.search(r"^PASS", out, re.MULTILINE), out
