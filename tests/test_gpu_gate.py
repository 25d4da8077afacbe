"""The gate on `gpu_impl`: measured laws on chosen cases, sampling parameters, large vocabularies.

A whole run of `specref gate gpu_impl` asks three million questions: here is one rule, and the
measured law of some drafts for the others.
"""

from collections import Counter
from math import log, sqrt

import numpy as np
import pytest
import torch

from gpu_impl import Parameters, Seeds, verify
from gpu_impl.draws import philox
from gpu_impl.subject import Chains, Trees, chains, trees
from specref.draft import DRAFTS
from specref.gate import check, requests
from specref.gate.asks import asked_of, settings
from specref.gate.cases import Case, fixtures
from specref.gate.checks import Reading, acceptance, band, bonus, residual, support
from specref.gate.chi_square import chi_square, folded
from specref.gate.loading import load, wrap
from specref.gate.opaque import measure_opaque
from specref.logits import PRESETS
from specref.philox import Domain
from specref.rules import RULES
from tests.related import session_of

NAMES = ("temperature", "top_k", "top_p", "min_p")
RISK = 1e-6


def test_the_gate_passes(record_property):
    """The quick profile, whole, on one rule; `specref gate gpu_impl` has all of them."""
    report = check("gpu_impl", rules=["one_hot"])
    assert report.verdict == "pass", [(f.claim, f.verdict, f.message) for f in report.findings]
    depth = {f.claim: f.depth for f in report.findings if f.claim != "metamorphic"}
    for claim in ("parameters", "support", "acceptance", "residual", "bonus", "joint"):
        assert depth[claim] == "measured law"
    record_property("cells", report.cells)


def cases(subject, rule, most=2):
    """Return the likeliest drafts of the fixture with V = 4, with their probabilities."""
    mixed = next(f for f in fixtures(subject.shape, False) if f.name == "mixed")
    mixed = mixed.greedy() if rule == "greedy" else mixed
    drafts = sorted(mixed.drafts(RULES[rule].draft).items(), key=lambda pair: -pair[1])
    return [(mixed.case(draft, rule), weight) for draft, weight in drafts[:most]]


def read(subject, rule):
    """Return the laws of some drafts, learned from `decide`."""
    found = []
    for case, weight in cases(subject, rule):
        got = measure_opaque(subject, case, 20_000, 0, 1 << 8, 1 << 8)
        assert got.complete
        assert got.escapes == []
        found.append(Reading(case, weight, got, drafter=RULES[rule].draft))
    return found


@pytest.mark.parametrize("rule", [*chains.rules, *trees.rules])
def test_the_measured_law_of_a_draft_is_that_of_its_rule(rule, record_property):
    subject = load("gpu_impl" if rule in chains.rules else "gpu_impl.trees")
    readings = read(subject, rule)
    assert support(readings) == []
    for test in (acceptance, residual, bonus):
        assert all(d.tv < band(4, 3, "float32") for d in test(readings)), test
    record_property("cells", sum(len(reading.measured.cells) for reading in readings))


def test_a_coin_that_is_off_by_a_ten_thousandth_is_measured():
    class Generous(Chains):
        def decide(self, case, u):
            coins = np.append(u[:, :-1] * (1 - 1e-4), u[:, -1:], 1)
            return super().decide(case, coins)

    readings = read(wrap(Generous(), "it"), "token")
    assert any(d.tv > band(4, 3, "float32") for d in acceptance(readings))


@pytest.mark.parametrize("subject", [chains, trees])
def test_a_subject_is_found_by_its_name(subject):
    name = "gpu_impl" if subject is chains else "gpu_impl.trees"
    found = load(name)
    assert (found.name, found.rules) == (subject.name, subject.rules)
    assert found.seeded
    assert found.grid == 1 << 53


@pytest.mark.parametrize("preset", PRESETS)
def test_laws_under_sampling_parameters_are_those_of_every_preset(preset, record_property):
    """Every setting of these parameters that the gate combines, at V = 4 and 8."""
    subject = Chains(preset=preset)
    session = session_of(subject)
    rows = ((2, 1, 1, 0), (0, 0, 0, 0), (1.5, -0.5, 0, 0.75, -2, 3, -1.25, 0.25))
    names = tuple(name for name in (*NAMES, "bias", "allowed") if name in PRESETS[preset].names)
    caller = requests.Caller(session.subject)
    firm = 0
    for row in rows:
        for given in settings(names, False):
            ask = asked_of(row, given, PRESETS[preset])
            if not ask.refused:
                found = caller.alone(ask)
                assert found.fault == ("", ""), f"{ask}: {found.fault}"
                firm += ask.firm
    record_property("cases", firm)
    assert firm > 60


def test_a_law_of_another_preset_is_told():
    """Of four equal tokens, preset vllm keeps the two of lowest id, and transformers all."""
    rows = np.zeros((1, 4), np.float32)
    kept = {
        preset: (Chains(preset=preset).law(rows, {"top_k": 2}) > 0).tolist()
        for preset in ("vllm", "transformers")
    }
    assert kept == {"vllm": [[True, True, False, False]], "transformers": [[True] * 4]}


# Large vocabularies, by samples.

CLASSES = 16
ROWS = 30_000


def samples(logits, parameters):
    """Return counts of tokens that were drawn by address, many rows of one law."""
    counts: Counter[int] = Counter()
    width = 2_000
    for first in range(0, ROWS, width):
        at = torch.arange(first, first + width)
        out = verify(
            logits[None].expand(width, -1), torch.full((width,), -1), torch.arange(width + 1),
            draws=Seeds(torch.full_like(at, 7), at), rule="match", parameters=parameters,
            max_depth=0, max_width=0, backend="torch",
        )  # fmt: skip
        counts.update(out.tokens[:, 0].tolist())
    return counts


@pytest.mark.parametrize("asked", [{}, {"temperature": 0.75, "top_k": 500, "top_p": 0.875}])
def test_a_vocabulary_of_32000_is_drawn_from_as_it_should_be(asked, record_property):
    """Folded into 16 classes of like mass: a chi-square test, and a certificate of their TV."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(32_000, generator=generator) * 2
    exact = float_law(logits.double().numpy(), **asked)
    law = {x: float(exact[x]) for x in np.flatnonzero(exact)}
    counts = samples(logits, Parameters(**asked))
    found = folded(law, counts, CLASSES)
    assert not any(isinstance(name, tuple) for name in found.counts), "a token of mass 0 came"
    test = chi_square(found.law, found.counts, tv=0.05)
    assert test.p_value > RISK
    assert test.power > 1 - RISK
    # Wrong with probability below the risk: `specref.gate.evidence` has the same bound.
    reach = sqrt((len(found.law) - 1) / ROWS) / 2 + sqrt(log(1 / RISK) / (2 * ROWS))
    apart = sum(abs(found.counts.get(c, 0) / ROWS - w) for c, w in found.law.items()) / 2
    assert apart + reach < 0.05
    record_property("drafts", ROWS)


def float_law(scores, temperature=1.0, top_k=0, top_p=1.0):
    """Return the law of preset vllm for logits without ties, in float64."""
    order = np.argsort(-scores)
    weights = np.exp((scores[order] - scores.max()) / temperature)
    if top_k:
        weights[top_k:] = 0
    sums = np.cumsum(weights) / weights.sum()
    weights[np.append(False, sums[:-1] >= top_p)] = 0
    law = np.zeros_like(scores)
    law[order] = weights / weights.sum()
    return law


# What a verdict rests on.


def test_decide_and_sample_are_one_code():
    """The draws that a seed addresses, handed over as given ones, decide the same rounds."""
    fixture = next(f for f in fixtures("chain", False) if f.name == "mixed")
    draft = max(fixture.drafts(DRAFTS["with_replacement"]).items(), key=lambda pair: pair[1])[0]
    case = fixture.case(draft, "token")
    seeds = chains.seeds(64, 5)
    columns = [
        philox(seeds.seed, seeds.start, torch.full_like(seeds.seed, node), domain)
        for node, domain in [(1, Domain.COIN), (2, Domain.COIN), (0, Domain.TERMINAL)]
    ]
    decided = chains.decide(case, torch.stack(columns, 1).numpy())
    assert torch.equal(chains.sample(case, 64, 5), decided)


def test_trees_and_chains_agree_where_a_tree_is_a_chain():
    fixture = next(f for f in fixtures("tree", False) if f.name == "turn, one sibling")
    draft = max(fixture.drafts(DRAFTS["with_replacement"]).items(), key=lambda pair: pair[1])[0]
    tree = fixture.case(draft, "rrs_with")
    chain = Case(tree.p, tree.q, tree.tokens, tree.parents, "token", "chain")
    u = np.random.default_rng(0).integers(1 << 53, size=(256, len(tree.tokens) + 1)) * 2.0**-53
    assert torch.equal(Trees().decide(tree, u), Chains().decide(chain, u))
