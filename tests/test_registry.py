"""A rule is one file and one line: whatever stands in the registry gets all of its tests."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FILE = '''"""Draftless decoding: the target draws, and drafts are thrown away."""


def draftless(root, choose):
    """Emit one draw from the target."""
    return (choose(root.{law}),)
'''

LINE = """
import specref.rules as rules
from specref.draft import with_replacement

rules.__path__.append({place!r})
from specref.rules.draftless import draftless

rules.RULES["draftless"] = rules.Rule(
    draftless, with_replacement, "chain", True, "nobody", any_draft=True
)
"""


def outcomes(tmp_path, law, tests="draftless"):
    """Run tests of the registry on one more rule; return pytest's exit code and its lines."""
    (tmp_path / "draftless.py").write_text(FILE.format(law=law))
    (tmp_path / "one_more.py").write_text(LINE.format(place=str(tmp_path)))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rA", "-n0", "-p", "one_more"),
            *("-p", "no:cacheprovider", "-k", tests, str(ROOT / "tests" / "test_rules.py")),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def count(lines, word):
    return sum(line.startswith(f"{word} ") for line in lines)


def test_a_new_rule_gets_all_tests_of_the_registry(tmp_path):
    code, lines = outcomes(tmp_path, "p")
    assert code == 0, lines
    assert count(lines, "PASSED") >= 20


def test_a_new_rule_that_is_wrong_fails_them(tmp_path):
    code, lines = outcomes(tmp_path, "q", "draftless and (grid or mass_zero)")
    assert code == 1, lines
    failed = " ".join(line for line in lines if line.startswith("FAILED "))
    assert "test_a_rule_is_lossless_on_every_pair_of_a_grid[draftless]" in failed
    assert "test_a_rule_never_emits_a_token_of_target_mass_zero[draftless]" in failed
