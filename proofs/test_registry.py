"""Every rule has its page, and every lossless rule its proof."""

import re
from pathlib import Path

import pytest

from proofs.registry import COQ, SYMBOLIC
from specref.rules import RULES

HERE = Path(__file__).parent
PAGES = HERE / "pages"
LOSSLESS = [name for name, rule in RULES.items() if rule.lossless]
BOTH = ["token", "rrs_with", "rrs_without", "target_only", "block"]


def test_every_rule_has_its_page_and_no_page_is_left_over():
    assert {path.stem for path in PAGES.glob("*.md")} == {*RULES, "lemma", "rounding"}


@pytest.mark.parametrize("name", RULES)
def test_a_page_names_its_rule_and_numbers_its_statements(name):
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    numbers = [int(at) for at in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers
    assert ("Lossy" in text) == (not RULES[name].lossless)


@pytest.mark.parametrize("path", sorted([HERE / "README.md", *PAGES.glob("*.md")]), ids=str)
def test_links_of_pages_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+\.md)\)", text):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", LOSSLESS)
def test_every_lossless_rule_is_proved(name):
    assert name in SYMBOLIC or name in COQ
    if name in BOTH:
        assert name in SYMBOLIC
        assert name in COQ


def test_the_theorems_stand_in_the_coq_files():
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (HERE / "coq").glob("*.v"))
    stated = set(re.findall(r"^(?:Theorem|Corollary) (\w+)", texts, re.MULTILINE))
    assert set(COQ.values()) <= stated


@pytest.mark.parametrize("name", COQ)
def test_a_page_names_the_theorem_about_its_rule(name):
    assert f"`{COQ[name]}`" in (PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_the_theorems_that_pages_name_are_stated():
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (HERE / "coq").glob("*.v"))
    stated = set(re.findall(r"^(?:Theorem|Corollary|Lemma) (\w+)", texts, re.MULTILINE))
    pages = "\n".join(path.read_text(encoding="utf-8") for path in PAGES.glob("*.md"))
    named = set(re.findall(r"`([a-z]\w+_(?:\d+|\d_i+))`", pages))
    assert named <= stated
    assert len(named) > 20


def test_the_readme_lists_every_rule():
    text = (HERE / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert listed == list(RULES)
