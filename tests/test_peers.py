"""Samplers from the package index, each called unmodified: what the gate finds in them.

They are installed by hand, if at all: the adapters say how. Where a package is missing, its tests
are skipped, and the summary tells the package and what installs it.
"""

from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specref.gate import check
from specref.gate.cases import Case, fixtures
from specref.gate.errors import UsageError
from specref.gate.loading import BUILT_IN, load
from specref.gate.models import DRAFT, TARGET, Request, ToyModel
from specref.stops import Stops
from specref.subjects.nets import DRAFTED, behind, decoded, predictions

ROUNDS = ("support", "acceptance", "residual", "bonus", "joint")

PAIRS = [f for f in fixtures("chain", False) if f.name in ("grid V=3 1/2 #22", "mixed")]
"""The smallest pair of models on which it matters which law is subtracted, and one with V = 4."""

PACKAGES = {
    "economize": "economize",
    "flashspec": "flashspec",
    "mini_infer": "mini_infer",
    "mlx": "mlx",
    "naive_speculate": "naive-speculate",
    "rotalabs": "rotalabs_accel",
    "seqspecdecod": "seqspecdecod",
    "specdec": "specdec",
    "speculative_decoding": "speculative_decoding",
}
"""What is missing, by adapter, if its package is not installed."""


def peer(name):
    """Return the module of an adapter; if a package is missing, skip and say what installs it."""
    try:
        load(name)
    except UsageError as error:
        if " needs " not in str(error):
            raise
        pytest.skip(str(error))
    return import_module(f"specref.subjects.{name}")


def gated(spec, chosen, monkeypatch):
    """Return the severities of what fails on a few pairs of models, by claim, and the report."""
    peer(spec.partition(":")[0])
    monkeypatch.setattr("specref.gate.exact.fixtures", lambda *_: chosen)
    report = check(f"specref.subjects.{spec}" if ":" in spec else spec)
    return {f.claim: f.severity for f in report.failures}, report


def measured(report):
    """Whether the claims on rounds were settled by measured law."""
    return {f.depth for f in report.findings if f.claim in ROUNDS} == {"measured law"}


@pytest.mark.parametrize(("name", "package"), PACKAGES.items())
def test_a_missing_package_is_named_with_what_installs_it(name, package, monkeypatch):
    def missing(_):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("specref.gate.loading.import_module", missing)
    with pytest.raises(UsageError) as caught:
        load(name)
    said, command = str(caught.value).split("; ")
    assert said == f"subject {name!r} needs {package}"
    assert command.startswith("pip install --no-deps ")
    assert command in Path(find_spec(BUILT_IN[name]).origin).read_text(encoding="utf-8")


# What networks and loops of adapters share


def test_logits_stand_behind_every_token_and_are_0_inside_the_prompt():
    rows = behind((2, 1), 3, lambda text: [float(len(text)), text[-1], -1.0])
    assert predictions(rows, (2, 1, 0)).tolist() == [[0, 0, 0], [2, 1, -1], [3, 0, -1]]


@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (Stops(5), [7, 7, 7, 7, 7]),
        (Stops(4), [7, 7, 7, 7]),
        (Stops(5, eos=7), [7, -1, -1, -1, -1]),
        (Stops(0), []),
    ],
    ids=["between rounds", "inside a round", "end token", "nothing"],
)
def test_a_text_is_cut_where_it_ends(stops, text):
    asked = []

    def step(text, drafted):
        asked.append((len(text), drafted))
        return [7] * (drafted + 1)

    assert decoded(step, 2, stops, (1,)).tolist() == [text] * 2
    assert all(1 <= drafted <= DRAFTED for _, drafted in asked)


# Verifiers


@pytest.mark.parametrize("spec", ["flashspec", "specdec", "economize", "economize:one_hot"])
def test_the_gate_finds_no_fault_in_the_law_of_a_round(spec, monkeypatch):
    failures, report = gated(spec, PAIRS, monkeypatch)
    assert measured(report)
    assert set(failures.values()) <= {"edge"}
    assert set(failures) == ({"acceptance", "parameters"} if spec == "economize" else set())


def test_the_sampler_of_economize_drops_the_tail_although_top_p_is_1():
    law = peer("economize").law
    logits = np.array([[0.0, np.log(2.0**-26)]], np.float32)
    assert law(logits, {}).tolist() == [[1.0, 0.0]], "2^-26 is lost"
    flat = np.random.default_rng(0).normal(0, 3, (1, 128_256)).astype(np.float32)
    dropped = law(flat, {})[0] == 0
    assert 1e-6 < torch.softmax(torch.from_numpy(flat[0]).double(), -1)[dropped].sum() < 1e-4


def test_naive_speculate_gives_every_token_a_billionth(monkeypatch):
    failures, report = gated("naive_speculate", PAIRS, monkeypatch)
    assert failures["support"] == "edge"
    assert set(failures.values()) == {"edge"}
    leak = next(f for f in report.failures if f.claim == "support")
    forbidden = [m for out, m in leak.measured.items() if not Fraction(leak.expected.get(out, 0))]
    assert forbidden
    assert all(0 < Fraction(mass) < Fraction(1, 10**8) for mass in forbidden)


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ("rotalabs", {"residual", "bonus", "joint", "rounds"}),
        ("rotalabs:rejection", {"residual", "joint", "rounds"}),
        ("rotalabs:eagle", {"residual", "bonus", "joint", "rounds"}),
    ],
)
def test_rotalabs_accel_subtracts_another_law_than_q(spec, wrong, monkeypatch):
    failures, report = gated(spec, PAIRS, monkeypatch)
    assert measured(report)
    assert {claim for claim, severity in failures.items() if severity == "law"} == wrong


# Loops


def sequences(spec, requests, monkeypatch):
    """Return what the gate finds on a few requests; all that it asks would take minutes."""
    peer(spec.partition(":")[0])
    monkeypatch.setattr("specref.gate.sequences.requests", lambda *_: requests)
    report = check(f"specref.subjects.{spec}" if ":" in spec else spec)
    return next(f for f in report.findings if f.claim == "sequences")


@pytest.mark.parametrize("spec", ["mini_infer", "seqspecdecod", "seqspecdecod:naive"])
def test_whole_sequences_follow_plain_decoding(spec, monkeypatch):
    asked = Request("two tokens", ToyModel("toy", TARGET, DRAFT, (0, 1)), 2)
    found = sequences(spec, [asked], monkeypatch)
    assert (found.verdict, found.depth) == ("pass", "measured law")
    assert found.tv < 1e-7


def test_capped_rounds_of_two_drafts_follow_another_law(monkeypatch):
    """A draft of one token is verified by the rule, so that two tokens would not show it."""
    rows = ((5, 2), (1, 4), (3, 1))
    asked = Request("three tokens", ToyModel("toy", rows, rows[::-1], (0, 1)), 3)
    found = sequences("seqspecdecod:capped", [asked], monkeypatch)
    assert (found.verdict, found.severity, found.depth) == ("fail", "law", "measured law")


def test_speculative_decoding_accepts_a_forbidden_token_on_the_coin_0(monkeypatch):
    """Drafts that are certain leave no race for the tape to follow, but the coin and the draw."""
    toy = ToyModel("certain drafts", ((0, 1),), ((1, 0),), (0, 1))
    found = sequences("speculative_decoding", [Request("one token", toy, 1)], monkeypatch)
    assert (found.verdict, found.severity) == ("fail", "edge")
    assert Fraction(found.measured["(0,)"]) == Fraction(1, 1 << 24)


@pytest.mark.parametrize("n", [1, 5])
def test_certain_models_of_speculative_decoding_give_one_text(n):
    """Whatever is refused, and however ragged the batch: the caches have to be cut right."""
    rows = ((0, 1, 0), (0, 0, 1), (1, 0, 0))
    toy = ToyModel("certain", rows, ((1, 1, 1),), (0, 1))
    text = []
    while len(text) < 6:
        text.append(toy.target((*toy.prompt, *text)).index(1.0))
    for seed in range(4):
        found = peer("speculative_decoding").generate(toy, n, seed, 6, ())
        assert found.tolist() == [text] * n


# mlx-lm


def test_a_round_of_mlx_accepts_the_drafts_that_its_sampler_draws():
    subject = peer("mlx").one_round
    certain = Case(((0.0, 1.0), (1.0, 0.0), (0.0, 1.0)), ((0.5, 0.5),) * 3, (1, 0), (0, 1), "match")
    other = Case(certain.p, certain.q, (1, 1), (0, 1), "match")
    assert subject.sample(certain, 2, 0).tolist() == [[1, 0, 1]] * 2
    assert subject.sample(other, 2, 0).tolist() == [[1, 0, -1]] * 2


def test_sequences_of_mlx_end_as_they_are_asked_to():
    toy, stops = ToyModel("toy", TARGET, DRAFT, (0, 1, 2)), Stops(3, eos=2)
    rows = peer("mlx").generate(toy, 200, 0, 3, (2,)).tolist()
    texts = {tuple(row[: row.index(-1)] if -1 in row else row) for row in rows}
    assert {stops.reason(text) for text in texts} == {"eos", "length"}
    assert all(stops.cut(text) == text for text in texts)


def test_speculation_in_mlx_hides_the_prompt_from_penalties():
    """Plain decoding shows processors the whole prompt, speculation its last token alone."""
    subject = peer("mlx")
    generate = import_module("mlx_lm.generate")
    mx = import_module("mlx.core")
    prompt = mx.array([0, 1, 2])
    toy = SimpleNamespace(rows=behind((0, 1, 2), 3, lambda _: [0.0, 0.0, 0.0]))
    seen = []

    def processor(tokens, logits):
        seen.append(tuple(tokens.tolist()))
        return logits

    network = subject._Model(toy.rows)
    next(generate.generate_step(prompt, network, max_tokens=1, logits_processors=[processor]))
    assert seen[0] == (0, 1, 2)
    seen.clear()
    loop = generate.speculative_generate_step(
        prompt, network, network, num_draft_tokens=1, max_tokens=2, logits_processors=[processor]
    )
    next(loop)
    loop.close()
    assert seen[0] == (2,)
