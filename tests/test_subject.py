"""What subjects may declare, and what they may do without ending the gate."""

import asyncio
import json
import os
import warnings
from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest

from specref.draft import Node, with_replacement
from specref.gate.cases import Case, fixtures
from specref.gate.errors import UsageError, rule_names
from specref.gate.loading import load, wrap
from specref.gate.opaque import measure_opaque
from specref.gate.report import Report
from specref.gate.seeds import states_kept
from specref.gate.session import Session
from specref.gate.subject import Problem, describe
from tests import reports

CASE = Case(((0.5, 0.5),) * 2, ((0.5, 0.5),) * 2, (0,), (0,))


def subject(**names):
    """Return a subject that emits token 0."""

    def sample(case, n, seed):
        out = np.full((n, case.gamma + 1), -1)
        out[:, 0] = 0
        return out

    return type("Mine", (), {"sample": staticmethod(sample), **names})()


@pytest.mark.parametrize("limit", ["60", None, float("nan"), -1, 0, True, [60]])
def test_a_time_limit_is_a_number_of_seconds(limit):
    with pytest.raises(
        UsageError, match=r"^it\.time_limit = .*; it is a number of seconds above 0"
    ):
        wrap(subject(time_limit=limit), "it")


@pytest.mark.parametrize(
    ("limit", "seconds"), [(5, 5.0), (0.5, 0.5), (np.float32(2), 2.0), (float("inf"), 86_400.0)]
)
def test_a_time_limit_may_be_any_number(limit, seconds):
    assert wrap(subject(time_limit=limit), "it").time_limit == seconds


@pytest.mark.parametrize("grid", [0, 1, 3, 1 << 54, 2.0**24, True, "2^24", None])
def test_a_grid_is_a_power_of_two(grid):
    with pytest.raises(UsageError, match=r"^it\.grid = .*; it is a power of two, 2 to 2\^53"):
        wrap(subject(grid=grid), "it")


@pytest.mark.parametrize("bits", [1, 24, 53])
def test_decide_is_given_draws_of_its_grid(bits):
    def decide(case, u):
        assert u.dtype == np.float64
        assert (u * (1 << bits) % 1 == 0).all()
        return np.column_stack([u[:, 0] == 0, np.full(len(u), -1)]).astype(int)

    mine = wrap(subject(decide=staticmethod(decide), grid=1 << bits), "it")
    got = measure_opaque(mine, CASE, 20_000, 0, 256, 256)
    assert got.law == {(1,): F(1, 1 << bits), (0,): 1 - F(1, 1 << bits)}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (5, r"^it\.rules = 5; it is a list of names such as \['token'\]"),
        ([5], "there is no rule 5; rules: token"),
        ([["token"]], r"there is no rule \['token'\]"),
        (["tokn"], r"there is no rule 'tokn' \(nearest: token"),
        (["token", "rrs_with"], "it declares rules for chains and for trees"),
    ],
)
def test_rules_are_names_of_rules(rules, words):
    with pytest.raises(UsageError, match=words):
        wrap(subject(rules=rules), "it")


def test_a_rule_counts_once():
    assert wrap(subject(rules=["token", "match", "token"]), "it").rules == ("token", "match")
    assert wrap(subject(rules="token"), "it").rules == ("token",)
    assert wrap(subject(rules=None), "it").rules == ()
    assert rule_names(iter(["token", "token"]), "rules") == ("token",)


@pytest.mark.parametrize("name", ["name", "rules", "drafts", "time_limit", "propose", "sample"])
def test_an_attribute_that_cannot_be_read_is_named(name):
    mine = subject(**{name: property(lambda self: 1 / 0)})
    with pytest.raises(UsageError, match=rf"Mine\.{name} cannot be read: ZeroDivisionError"):
        load(mine)


@pytest.mark.parametrize("drafts", [5, [], "likely", ("likeliest",)])
def test_drafts_are_a_name_or_a_drafter(drafts):
    with pytest.raises(UsageError, match=r"it\.drafts = .* is unknown.*; drafts: with_replacement"):
        wrap(subject(drafts=drafts), "it")


def leaf(index, *children):
    return Node((0.5, 0.5), (0.5, 0.5), children, index)


@pytest.mark.parametrize(
    ("drafter", "words"),
    [
        (lambda: None, "takes 0 positional arguments"),
        (lambda *_: None, "it returned None"),
        (lambda *_: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda *_: leaf(1), r"its nodes are numbered \[1\]"),
        (lambda *_: leaf(0, (7, leaf(1))), "it drafted 7, which is no token in 0 <= token < 2"),
        (lambda *_: leaf(0, ("0", leaf(1))), "it drafted '0', which is no token"),
        (lambda *_: leaf(0, (0, leaf(1, (0, leaf(2))))), "2 tokens in a row for shape 1"),
        (lambda *_: leaf(0, (0, leaf(1)), (1, leaf(2))), "siblings for a chain of depth 1"),
        (lambda p, q, shape, choose, context: choose((0.5, 0.6)), "choose needs weights >= 0"),
    ],
)
def test_a_drafter_that_does_not_draft_is_a_usage_error(drafter, words):
    mine = wrap(subject(drafts=staticmethod(drafter)), "it")
    session = Session(mine, None, Report("it", "it", "", "quick", 0), lambda text: None)
    with pytest.raises(UsageError, match=rf"^it\.drafts does not draft: .*{words}.*returns the ro"):
        session.cases(fixtures("chain", False)[0])


@pytest.mark.parametrize(
    ("half", "words"), [(F(1, 2), "not a function of its choices"), (0.5, "is not exact")]
)
def test_a_drafter_that_cannot_be_enumerated_is_a_usage_error(half, words):
    flips = iter(range(1000))

    def drafter(p, q, shape, choose, context):
        if isinstance(half, float) or next(flips) % 2:
            choose((half, 1 - half))
        return with_replacement(p, q, shape, choose, context)

    mine = wrap(subject(drafts=staticmethod(drafter)), "it")
    session = Session(mine, None, Report("it", "it", "", "quick", 0), lambda text: None)
    with pytest.raises(UsageError, match=rf"it\.drafts cannot be enumerated: .*{words}"):
        session.cases(fixtures("chain", False)[-1])


def test_a_drafter_of_ours_stays_itself():
    assert wrap(subject(drafts=staticmethod(with_replacement)), "it").drafter is with_replacement


class Odd(BaseException):
    """Nothing that `except Exception` would see."""


@pytest.mark.parametrize(
    "kind", [Odd, GeneratorExit, SystemExit, asyncio.CancelledError, MemoryError]
)
def test_whatever_is_raised_is_an_outcome(kind):
    def sample(case, n, seed):
        raise kind("bye")

    (found,) = wrap(subject(sample=staticmethod(sample), propose=sample), "it").sample(CASE, 1, 0)
    assert isinstance(found, Problem)
    assert found.text.startswith(f"{kind.__name__}: bye")


def test_an_interrupt_is_not():
    def sample(case, n, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wrap(subject(sample=staticmethod(sample)), "it").sample(CASE, 1, 0)


def test_an_exception_is_told_with_the_line_of_the_subject_not_of_its_tools(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import json, numpy\ndef a(): json.loads('{')\ndef b(): numpy.zeros(2)[5:].max()"
    )
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    for name, line in (("a", 2), ("b", 3)):
        with pytest.raises(ValueError, match=r"Expecting|zero-size") as caught:
            names[name]()
        # This test is code that was not installed, too; the subject's own line is the last.
        assert describe(caught.value).endswith(f"({path}:{line})")


def test_an_exception_without_a_text_that_can_be_read_is_told():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert describe(Mute()) == "Mute: its text cannot be read"


def test_a_file_is_found_again_from_any_directory(tmp_path, monkeypatch):
    place = tmp_path / "a:b"
    place.mkdir()
    text = "class Mine:\n    def sample(self, case, n, seed): pass\ndef sample(case, n, seed): pass"
    (place / "mine.py").write_text(text)
    monkeypatch.chdir(place)
    sources = [load(spec).source for spec in ("mine.py", "mine.py:Mine")]
    assert sources == [f"{place}{os.sep}mine.py", f"{place}{os.sep}mine.py:Mine"]
    monkeypatch.chdir(tmp_path)
    assert [load(source).source for source in sources] == sources
    assert load(subject()).source == ""


def test_what_becomes_of_warnings_is_left_as_it_was():
    before = list(warnings.filters)
    with states_kept():
        warnings.simplefilter("ignore")
    assert warnings.filters == before


def test_a_report_of_an_object_has_cases_but_no_commands(tmp_path):
    report = reports.report(replace(reports.FORBIDDEN, replay=""), source="")
    report.write(tmp_path)
    assert [finding.replay for finding in report.findings] == [""]
    (path,) = tmp_path.glob("01-*.json")
    assert json.loads(path.read_text())["subject"] is None


class Model:
    """A model that a subject brings."""

    name, vocab, prompt, max_tokens, eos = "mine", 3, (0,), 2, ()

    def __init__(self, **names):
        self.__dict__.update(names)

    def target(self, context):
        return [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"name": None}, "name = None; it is a text"),
        ({"vocab": "3"}, "vocab = '3'"),
        ({"prompt": (0, 3)}, "prompt has token 3; tokens are 0 <= token < 3"),
        ({"prompt": "ab"}, "prompt"),
        ({"target": 3}, "target = 3; it is a function"),
        ({"max_tokens": -1}, "max_tokens = -1"),
        ({"max_tokens": None}, "max_tokens = None"),
        ({"max_tokens": 40}, r"max_tokens = 40 makes up to 3\^40 texts"),
        ({"eos": "2"}, "eos = '2'"),
        ({"eos": (7,)}, "eos has token 7"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_model_that_is_none_is_a_usage_error(names, words):
    def generate(model, n, seed, max_tokens, eos):
        return None

    with pytest.raises(UsageError, match=rf"^it\.models\[0\]: .*{words}"):
        wrap(subject(generate=staticmethod(generate), models=[Model(**names)]), "it")


def test_models_have_names_of_their_own():
    assert len(wrap(subject(models=[Model(), Model(name="other")]), "it").models) == 2
    with pytest.raises(UsageError, match="two of one name"):
        wrap(subject(models=[Model(), Model()]), "it")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"seeded": 1}, r"^it\.seeded = 1; it is True or False"),
        ({"placeholders": "yes"}, r"^it\.placeholders = 'yes'; it is True or False"),
        ({"preset": "vlm"}, r"^it\.preset = 'vlm' is unknown.*vllm.*presets: transformers, "),
        ({"preset": None}, r"^it\.preset = None is unknown"),
        ({"parameters": "topk"}, r"^it\.parameters has 'topk'.*top_k.*parameters: temperature"),
        ({"parameters": 3}, r"^it\.parameters = 3; it is a list of names"),
        ({"models": object()}, r"^it\.models = .*; it is a list of models"),
        ({"models": [object()]}, r"^it\.models\[0\] has no name; see gate\.models\.ToyModel"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_declared_wrongly_is_a_usage_error(names, words):
    with pytest.raises(UsageError, match=words):
        wrap(subject(**names), "it")


def test_sampling_parameters_count_once_and_have_defaults():
    assert wrap(subject(), "it").parameters == ("temperature", "top_k", "top_p")
    assert wrap(subject(parameters=["min_p", "min_p"]), "it").parameters == ("min_p",)
    assert wrap(subject(preset="vllm"), "it").preset.name == "vllm"


def test_a_subject_may_have_no_rounds():
    class Laws:
        @staticmethod
        def law(logits, params):
            return logits

    loaded = wrap(Laws(), "it")
    assert loaded.call is None
    assert loaded.law is Laws.law


def test_what_a_module_imports_from_specref_is_not_its_own(tmp_path):
    path = tmp_path / "importing.py"
    path.write_text("from specref import law\n\n\ndef sample(case, n, seed):\n    return None\n")
    loaded = load(str(path))
    assert loaded.law is None
    assert loaded.call is not None
