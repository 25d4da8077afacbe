"""The gate on laws under sampling parameters: honest ones pass, wrong ones fail and are named."""

import json
import math
import random
from importlib.util import find_spec

import numpy as np
import pytest

from specref.gate import UsageError, asks, check, requests
from specref.gate.answers import Caller
from specref.gate.asks import Ask, from_json, settings
from specref.gate.law_relations import RELATIONS
from specref.gate.loading import load
from specref.gate.report import Report
from specref.gate.session import Session
from specref.logits import PRESETS, Parameters, filtered
from tests import requested as r

if not find_spec("flint") and not find_spec("mpmath"):
    pytest.skip("python-flint or mpmath is not installed", allow_module_level=True)

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
THREE = ("temperature", "top_k", "top_p")


def session(subject):
    loaded = load(subject)
    report = Report(loaded.spec, loaded.name, loaded.source, "quick", 0)
    return Session(loaded, None, report, lambda _: None)


def judged(subject):
    return requests.judge(session(subject))


def failures(subject):
    return [finding for finding in judged(subject) if finding.verdict == "fail"]


def of_laws(subject):
    """Return what is found of a sampler's laws alone, without relations between them."""
    at = session(subject)
    return requests.judge_laws(at, Caller(at.subject))


def changed(base, **fields):
    """Return a sampler of the class with other attributes."""
    return type(base.__name__, (base,), fields)


# Honest samplers

TRIED = [
    (r.Vllm, r.Vllm.parameters),
    (r.FlashInfer, ("top_k", "top_p", "min_p")),
    (r.Joint, ("top_k", "top_p")),
    (r.LlamaCpp, ("temperature", "min_p", "top_n_sigma", *r.PENALTIES)),
    (r.Mlx, (*THREE, "repetition_penalty")),
    (r.Eagle, r.Eagle.parameters),
    (r.TrtLlm, (*THREE, "min_tokens", "allowed")),
    (r.LogDomain, THREE),
    pytest.param(r.Torch, THREE, marks=needs_torch),
]


def label(value):
    """Return the name of a class for the id of a test; parameters go without."""
    return value if isinstance(value, str) else getattr(value, "__name__", "")


@pytest.mark.parametrize(("sampler", "parameters"), TRIED, ids=label)
def test_an_honest_sampler_passes_as_the_preset_that_it_declares(sampler, parameters):
    found = judged(changed(sampler, parameters=parameters))
    assert [(f.claim, f.verdict) for f in found] == [
        ("parameters", "pass"),
        ("metamorphic", "pass"),
    ]
    law, relations = found
    assert law.severity == "numerics"
    assert law.tv < 1e-6
    assert f"as preset {sampler.preset!r} reads them" in law.message
    named = relations.message.rpartition(": ")[2].split(", ")
    assert set(named) == RELATIONS.keys() if sampler is r.Vllm else set(named) <= RELATIONS.keys()
    assert relations.message.startswith(f"{len(named)} relations between laws, on ")


@pytest.mark.skipif(not find_spec("transformers"), reason="transformers is not installed")
def test_the_processors_of_transformers_pass():
    from specref.subjects import transformers

    asked = ("typical_p", "eta", "min_tokens", "allowed")
    assert {*r.Transformers.parameters, *asked} < set(transformers.parameters)
    law = staticmethod(transformers.law)
    found = judged(changed(r.Honest, preset=transformers.preset, parameters=asked, law=law))
    assert [f.verdict for f in found] == ["pass", "pass"], [f.message for f in found]


def test_what_rounding_may_decide_is_counted_and_nothing_else_is_left_out():
    message = of_laws(changed(r.Vllm, parameters=r.CORE))[0].message
    assert "; 5 more meet a bound exactly" in message
    assert "; 55 are within rounding of a bound, and say nothing" in message
    near = [ask for ask in asks.asks(PRESETS["vllm"], r.CORE, False) if not ask.firm]
    assert len(near) == 60
    assert sum(asks.NEAR in ask.logits for ask in near) == 55
    alone = [ask for ask in near if len(ask.asked) == 1 and asks.NEAR not in ask.logits]
    assert all(ask.edge for ask in alone), "no parameter alone is hidden by rounding"


# Wrong samplers


def without(*names, base=r.Transformers):
    return r.leaving_out(base, *names)


PENALISED = ("temperature", *r.PENALTIES)
WRONG = [
    (without("temperature"), THREE, "temperature_ignored"),
    (without("temperature", "top_k", "top_p", "min_p"), THREE, "target_unfiltered"),
    (without("bias"), ("top_k", "bias"), "bias_ignored"),
    (without(*r.PENALTIES, base=r.Vllm), PENALISED, "penalties_ignored"),
    (without("presence_penalty", base=r.Vllm), PENALISED, "presence_penalty ignored"),
    (without("min_p"), ("top_k", "min_p"), "min_p ignored"),
    (without("allowed"), ("top_k", "bias", "allowed"), "allowed ignored"),
    (without("min_tokens", base=r.Vllm), ("top_k", "min_tokens"), "min_tokens ignored"),
    (r.NanAsZero, THREE, "masked_as_zero"),
    (r.Ascending, THREE, "filter_ascending"),
    (r.AlwaysGreedy, THREE, "sampled_greedily"),
    (r.ExactK, THREE, "top_k_cuts_ties"),
    (r.Exceeds, THREE, "nucleus_exceeds"),
    (r.TemperatureLast, THREE, "temperature_last"),
    (r.MinPOfLogits, ("top_k", "min_p"), "min_p_of_logits"),
    (r.Twice, THREE, "logits_softmaxed_twice"),
    (r.OutputOnly, ("repetition_penalty",), "prompt_unpenalised"),
    (r.DividesNegative, ("repetition_penalty",), "penalty_divides_negative"),
    (r.PromptToo, (*PENALISED, "min_p"), "prompt_penalised"),
    (r.CountedOnce, PENALISED, "frequency_counted_once"),
    (r.HalfSums, THREE, "cumulative_sum_rounded"),
]


@pytest.mark.parametrize(("sampler", "parameters", "name"), WRONG, ids=label)
def test_a_wrong_sampler_fails_and_is_named(sampler, parameters, name):
    finding = of_laws(changed(sampler, parameters=parameters))[0]
    assert (finding.claim, finding.severity) == ("parameters", "law")
    assert finding.nearest_fault["matches"][0] == name
    assert finding.nearest_fault["computed"]
    assert finding.measured != finding.expected


@pytest.mark.parametrize(
    ("sampler", "kind", "said"),
    [
        (r.NanWhenCold, "crash", "temperature 0 on logits (1, 0): NaN: law returned NaN"),
        (r.Overflows, "crash", "nothing asked on logits (100, 99, 97): NaN: law returned NaN"),
        (r.NotRenormalised, "law", "top_k 1 on logits (1, 0): the masses sum to 0.731"),
        (r.Leaks, "edge", "temperature 0 on logits (1, 0): token 1 has mass 1e-09, and preset"),
        (r.FirstRowMasked, "law", "allowed [0] on logits (0, 0): as row 1 of 3 in one call, token"),
        (r.RowsSwapped, "law", "nothing asked on logits (0, 0): as row 1 of 3 in one call, TV 0.2"),
    ],
)
def test_what_no_known_fault_makes_is_told_on_the_smallest_request(sampler, kind, said):
    finding = of_laws(changed(sampler, parameters=("temperature", "top_k", "allowed")))[0]
    assert (finding.claim, finding.severity) == ("parameters", kind)
    assert finding.message.startswith(said)
    assert finding.nearest_fault is None


@pytest.mark.parametrize(
    ("sampler", "declared", "asked"),
    [
        (r.Vllm, "flashinfer", THREE),
        (r.FlashInfer, "flashinfer_joint", THREE),
        (r.LlamaCpp, "mlx", THREE),
        (r.Mlx, "llama_cpp", THREE),
        (r.Eagle, "transformers", THREE),
        (r.TrtLlm, "vllm", THREE),
        (r.Transformers, "vllm_sort", r.CORE),
    ],
    ids=label,
)
def test_the_wrong_preset_fails_and_the_right_one_is_named(sampler, declared, asked):
    finding = of_laws(changed(sampler, preset=declared, parameters=asked))[0]
    named = [name for name in finding.nearest_fault["matches"] if name.startswith("preset ")]
    assert named == [f"preset {sampler.preset}"]
    said = f"this is what preset {sampler.preset!r} makes of the parameters"
    assert finding.nearest_fault["computed"].startswith(f"{said}; if that is meant, declare")


def test_two_presets_that_agree_on_what_is_asked_are_both_named():
    finding = of_laws(changed(r.Transformers, preset="trt_llm", parameters=THREE))[0]
    assert finding.nearest_fault["matches"] == ["preset transformers", "preset vllm_sort"]


def test_a_failure_says_how_many_fail_and_what_they_have_in_common():
    finding = of_laws(changed(without("min_p"), parameters=("top_k", "min_p")))[0]
    assert finding.message == (
        "min_p 0.4 on logits (1, 0): token 1 has mass 0.269, and preset 'transformers' rules it "
        "out; 34 of 160 requests fail, all of which ask for min_p"
    )
    assert finding.case == {
        "logits": [(1.0).hex(), (0.0).hex()],
        "parameters": {"min_p": 0.4},
        "preset": "transformers",
    }
    assert finding.expected == {"(0,)": "1"}
    assert list(finding.measured) == ["(0,)", "(1,)"]


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("top_k_one", without("temperature")),
        ("cold", without("temperature")),
        ("scaled", r.TemperatureLast),
        ("shifted", r.MinPOfLogits),
        ("padded", r.NanAsZero),
        ("relabelled", r.FavoursTheFirst),
        ("off", r.NeutralMisread),
        ("idempotent", r.Twice),
    ],
    ids=label,
)
def test_every_relation_fails_on_a_sampler_that_breaks_it(name, sampler):
    asked = ("temperature", "top_k", "min_p")
    found = failures(changed(sampler, parameters=asked))
    broken = {f.message.partition(":")[0]: f for f in found if f.claim == "metamorphic"}
    assert broken.keys() <= RELATIONS.keys()
    assert broken[name].message.startswith(f"{name}: {RELATIONS[name].says}; ")
    assert broken[name].case["relation"] == name
    assert broken[name].tv > 1e-3


def test_a_value_that_switches_off_is_seen_by_a_relation_alone():
    found = judged(changed(r.NeutralMisread, parameters=("top_k",)))
    assert [(f.claim, f.verdict) for f in found] == [
        ("parameters", "pass"),
        ("metamorphic", "fail"),
    ]


# Rounding


def test_a_bound_that_is_met_exactly_may_be_missed_now_and_then_but_not_always():
    edges = [ask for ask in asks.asks(PRESETS["vllm"], ("top_p",), False) if ask.edge]
    assert [str(ask) for ask in edges] == [
        "top_p 0.5 on logits (0, 0)",
        "top_p 0.5 on logits (0, 0, 0, 0)",
        "top_p 0.25 on logits (0, 0, 0, 0)",
        "top_p 0.5 on logits (0, -inf, 0, -inf, 0, 0)",
        "top_p 0.25 on logits (0, -inf, 0, -inf, 0, 0)",
    ]
    (sometimes,) = of_laws(changed(r.SometimesExceeds, parameters=("top_p",)))
    assert sometimes.verdict == "pass"
    (finding,) = of_laws(changed(r.Exceeds, parameters=("top_p",)))
    assert "top_p is met exactly, and the law is that of another bound" in finding.message


def test_at_an_exact_bound_other_ties_are_no_rounding():
    found = of_laws(changed(r.Vllm, ties="highest", parameters=("top_p",)))
    assert "top_p 0.5 on logits (0, 0): token 0 never comes, and preset" in found[0].message


PERTURBED = [
    ("transformers", ("typical_p", "eta", "epsilon")),
    ("llama_cpp", ("top_n_sigma", "typical_p")),
    ("vllm", r.CORE),
    ("mlx", r.CORE),
]


@pytest.mark.parametrize(("preset", "parameters"), PERTURBED, ids=[p for p, _ in PERTURBED])
def test_what_is_firm_stays_the_same_however_scores_are_rounded(preset, parameters):
    """Equal logits are moved alike, each by as much as a score may be off before the division."""
    draw = random.Random(1)
    tried = 0
    for ask in asks.asks(PRESETS[preset], parameters, False)[::2]:
        if not ask.firm or ask.vocab > 16:
            continue
        size = ask.noise * float(min(ask.parameters.temperature or 1, 1))
        moved = {origin: draw.choice((-size, size)) for origin in ask.origins}
        logits = [s + moved[o] for s, o in zip(ask.logits, ask.origins, strict=True)]
        row = filtered(logits, ask.parameters, ask.preset, **ask.context)
        assert row.scores.keys() == ask.row.scores.keys(), str(ask)
        tried += 1
    assert tried > 50


@pytest.mark.parametrize(
    ("logits", "given", "firm"),
    [
        ((1.0, 0.0), {"top_k": 1}, True),
        ((1.0, asks.NEAR, 0.0), {"top_k": 1}, False),
        ((1.0, asks.NEAR, 0.0), {"top_k": 3}, False),  # which are equal may be told otherwise
        ((1.0, asks.NEAR, 0.0), {"temperature": 0.0}, False),
        ((1.0, asks.NEAR, 0.0), {"temperature": 0.5}, True),
        ((1.0, 1.0, 0.0), {"top_k": 1}, True),
        ((1.0, 0.0), {"min_p": math.exp(-1)}, False),
        ((1.0, 0.0), {"min_p": math.exp(-1) - 1e-4}, True),
        ((1.0, 0.0), {"top_p": 1 / (1 + math.exp(-1))}, False),
        ((2.0, 1.0), {"top_k": 1, "presence_penalty": 1.0, "prompt": [], "output": [0]}, False),
    ],
)
def test_a_request_is_firm_where_no_rounding_changes_what_stays(logits, given, firm):
    assert Ask(logits, given, PRESETS["vllm"]).firm is firm


def test_in_long_rows_it_is_open_which_of_equal_logits_stay():
    logits = (1.0, *[0.0] * 20)
    ask = Ask(logits, {"top_p": 0.5}, PRESETS["vllm"])
    assert ask.firm

    class Shuffled(r.Vllm):
        def law(self, logits, params):
            order = [0, *range(len(logits[0]) - 1, 0, -1)]
            return super().law(logits[:, order], params)[:, np.argsort(order)]

    answer = Caller(load(Shuffled)).alone(ask)
    assert answer.got[1] == 0
    assert ask.law[1] > 0
    assert answer.fault == ("", "")


def test_a_parameter_of_which_nothing_could_be_said_is_inconclusive(monkeypatch):
    monkeypatch.setattr(asks, "ROWS", ((1.0, asks.NEAR, 0.0),))
    monkeypatch.setattr(asks, "WIDE", ())
    asks.asks.cache_clear()
    found = judged(changed(r.Vllm, parameters=("temperature", "top_k")))[0]
    asks.asks.cache_clear()
    assert found.verdict == "inconclusive"
    assert found.message.endswith("; nothing could be said of top_k")


# Whatever a subject does


def never(logits, params):
    while True:
        pass


def writes_logits(logits, params):
    logits += 1
    return r.Vllm().law(logits, params)


def writes_params(logits, params):
    params["top_k"] = 1
    return r.Vllm().law(logits, params)


def fails(logits, params):
    raise SystemExit("no")


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (fails, "exception: SystemExit: no"),
        (never, "time: law ran longer than 0.05 s"),
        (writes_logits, "inputs: law writes to what it is given; work on copies"),
        (writes_params, "inputs: law writes to what it is given; work on copies"),
        (lambda logits, params: None, "shape: law returned (); expected (1, 2), probabilities"),
        (lambda logits, params: logits[:, :-1], "shape: law returned (1, 1); expected (1, 2)"),
        (lambda logits, params: [["a", "b"]], "exception: ValueError: could not convert string"),
        (lambda logits, params: [[0.5], [0.5, 0.5]], "exception: ValueError: setting an array"),
        (lambda logits, params: -logits, "range: law returned -1 to -0, no probabilities"),
        (lambda logits, params: logits * np.float32("inf"), "NaN: law returned NaN"),
        (lambda logits, params: logits / 0.5, "the masses sum to 2"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_no_law_is_told(law, said):
    asked = ("temperature", "top_k")
    found = failures(changed(r.Honest, law=staticmethod(law), parameters=asked, time_limit=0.05))
    assert f"nothing asked on logits (1, 0): {said}" in found[0].message
    assert found[0].case["logits"] == [(1.0).hex(), (0.0).hex()]
    assert len(found) == 1 or found[0].severity == "law"


def test_a_parameter_that_the_preset_has_not_is_refused():
    subject = changed(r.Vllm, preset="eagle", parameters=("min_p",))
    with pytest.raises(UsageError, match="has 'min_p', which preset 'eagle' has not; leave it out"):
        judged(subject)


def test_tensors_and_lists_are_read():
    subject = changed(
        r.Vllm, parameters=("top_k",), law=lambda self, a, b: r.Vllm().law(a, b).tolist()
    )
    assert judged(subject)[0].verdict == "pass"


# The whole run, and one failure again


def test_a_subject_with_a_law_alone_is_gated():
    report = check(changed(r.Vllm, parameters=THREE))
    verdicts = {f.claim: f.verdict for f in report.findings}
    assert report.verdict == "pass"
    assert verdicts["parameters"] == verdicts["metamorphic"] == "pass"
    assert verdicts["joint"] == "not applicable"


def test_no_more_is_asked_than_a_subject_has():
    seen = set()

    class Curious(r.Vllm):
        parameters = ("top_k", "frequency_penalty")

        def law(self, logits, params):
            seen.update(params)
            return super().law(logits, params)

    judged(Curious)
    assert seen == {"top_k", "frequency_penalty", "prompt", "output"}
    assert settings(["top_k"], True)[-1] == {"top_k": 100}


@pytest.mark.parametrize(
    ("sampler", "claim"),
    [
        (without("bias"), "parameters"),
        (r.Exceeds, "parameters"),
        (r.FirstRowMasked, "parameters"),
        (r.RowsSwapped, "parameters"),
        (r.TemperatureLast, "metamorphic"),
        (r.NeutralMisread, "metamorphic"),
    ],
    ids=label,
)
def test_a_failure_is_repeated_from_its_data(sampler, claim):
    asked = ("temperature", "top_k", "top_p", "bias", "allowed")
    wrong, honest = (changed(base, parameters=asked) for base in (sampler, r.Transformers))
    first = next(f for f in failures(wrong) if f.claim == claim)
    data = json.loads(json.dumps(first.case, allow_nan=False))
    (again,) = requests.again(session(wrong), claim, data)
    assert (again.verdict, again.severity, again.case) == ("fail", first.severity, first.case)
    assert again.message.partition("; ")[0] == first.message.partition("; ")[0]
    assert [f.verdict for f in requests.again(session(honest), claim, data)] == ["pass"]


def test_a_request_survives_its_json_data():
    for ask in asks.asks(PRESETS["vllm"], r.Vllm.parameters, False)[::29]:
        data = json.loads(json.dumps(ask.to_json(), allow_nan=False))
        assert from_json(data, ask.preset) == ask


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"logits": None}, "case.logits is not a row of hexadecimal floats"),
        ({"logits": ["0x1p0", "one"]}, "case.logits is not a row of hexadecimal floats"),
        ({"logits": [1.0]}, "case.logits is not a row of hexadecimal floats"),
        ({"parameters": []}, "case.parameters is not a set of names with values"),
        ({"parameters": {"bias": {"x": 1}}}, "case.parameters.bias has entries"),
        ({"parameters": {"top_q": 1}}, "case is no request: .*top_q"),
        ({"parameters": {"top_p": 2}}, "case is no request: top_p = 2 is out of range"),
        ({"parameters": {"prompt": 3}}, "case is no request: "),
        ({"logits": ["0x1p300"]}, "case.logits is not a row of hexadecimal floats that float32"),
        ({"logits": ["nan", "0x0p0"]}, "case.logits is not a row"),
        ({"logits": ["inf", "0x0p0"]}, "case is no request: logits"),
        ({"relation": "shiftd"}, r"case.relation is 'shiftd' \(nearest: shifted\)"),
        ({}, "case.relation is 'None'"),
    ],
)
def test_damaged_data_is_refused(change, said):
    data = {"logits": ["0x1p0", "0x0p0"], "parameters": {}, "preset": "vllm", **change}
    with pytest.raises(ValueError, match=said):
        requests.again(session(r.Vllm), "metamorphic", data)


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        (3, "case.beside is not a list of rows"),
        ([["0x1p0", "0x0p0"]], "case.beside is not a list of rows"),
        ([["0x1p0"], ["0x1p0"]], "case.beside has rows that are not of V = 2"),
        ([3, ["0x1p0"]], "case.logits is not a row"),
    ],
)
def test_damaged_rows_of_a_call_are_refused(beside, said):
    data = {"logits": ["0x1p0", "0x0p0"], "parameters": {}, "beside": beside, "row": 1}
    with pytest.raises(ValueError, match=said):
        requests.again(session(r.Vllm), "parameters", data)


def test_parameters_are_those_that_the_exact_law_knows():
    assert set(asks.GRID) == set(Parameters(eos=(0,)).__dataclass_fields__) - {
        "eos", "penalty_window"
    }  # fmt: skip
