"""The real `generate` of transformers: its law of whole texts is that of plain decoding."""

from itertools import product

import pytest

pytest.importorskip("transformers")

from specref.decode import target_law
from specref.dist import tv
from specref.gate import sequences
from specref.gate.generated import Reader
from specref.gate.loading import load
from specref.gate.models import Request
from specref.subjects import transformers_generate as subject
from tests.related import session_of

MODELS = {model.name: model for model in subject.models}


def read(name, max_tokens, eos=()):
    """Return the measured law of short texts of one of the subject's models."""
    reader = Reader(session_of(subject), 1)
    reading = reader.read(Request(name, MODELS[name], max_tokens, eos), 0)
    assert reader.escapes == []
    assert reading.depth == "measured law"
    assert reading.audited == reader.session.profile.audit_calls
    return reading


def test_the_command_line_knows_it():
    found = load("transformers.generate")
    assert found.call is None
    assert found.generate is subject.generate
    assert len(found.models) == len(subject.models)


@pytest.mark.parametrize("name", ["draft model", "prompt lookup"])
def test_generate_has_the_law_of_plain_decoding(name):
    reading = read(name, 2)
    assert len(reading.wanted) == 16
    assert 0 < reading.tv < 1e-6
    assert not reading.impossible


@pytest.mark.parametrize("name", ["draft model", "prompt lookup"])
def test_generate_ends_at_eos_inside_a_block(name):
    reading = read(name, 3, (0, 2, 3))
    assert len(reading.wanted) == 10
    assert reading.tv < 1e-6
    assert not reading.impossible


def test_what_filters_remove_comes_back_with_a_coin_of_zero():
    reading = read("draft model with top_k", 2)
    (kind,) = reading.impossible
    assert kind == "a token that the target forbids"
    assert 0 < reading.impossible[kind] < 2**-23
    assert reading.tv < 1e-6


def test_filters_hold_where_the_prompt_is_looked_up():
    reading = read("prompt lookup with top_k", 3)
    assert not reading.impossible
    assert reading.tv < 1e-6


def test_the_gate_passes_prompt_lookup_and_names_the_relations_that_hold():
    request = Request("short", MODELS["prompt lookup"], 2)
    law, relations = sequences.judge(session_of(subject), [request])
    assert (law.verdict, law.severity) == ("pass", "numerics")
    assert relations.verdict == "pass"
    for name in ("fresh states", "history", "independent rows", "shorter", "cut at EOS"):
        assert name in relations.message


def test_the_models_have_laws_that_differ_behind_every_text():
    model = MODELS["draft model"]
    laws = [
        model.target((*model.prompt, *text))
        for length in range(3)
        for text in product(range(4), repeat=length)
    ]
    assert min(float(w) for law in laws for w in law) > 0.02
    assert all(
        tv(dict(enumerate(a)), dict(enumerate(b))) > 0.01
        for at, a in enumerate(laws)
        for b in laws[:at]
    )


def test_a_law_under_parameters_is_the_one_that_the_library_itself_samples_from():
    import torch
    from transformers import LogitsProcessorList

    for name in ("temperature", "top_k", "top_p", "all three"):
        model = MODELS[f"draft model with {name}"]
        config = subject._config(True, tuple(model.parameters.items()), 3, ())
        processors = subject.TARGET._get_logits_processor(
            config, input_ids_seq_length=3, logits_processor=LogitsProcessorList()
        )
        for text in ((), (1,), (0, 2)):
            context = (*model.prompt, *text)
            logits = torch.tensor([model.logits(context)], dtype=torch.float64)
            wanted = processors(torch.tensor([context]), logits).softmax(-1)[0].tolist()
            assert model.target(context) == pytest.approx(wanted, abs=1e-12)


def test_no_new_tokens_are_refused_by_the_library():
    with pytest.raises(ValueError, match="max_new_tokens"):
        subject.generate(MODELS["draft model"], 1, 0, 0, ())


def test_plain_decoding_ends_where_the_request_says():
    model = MODELS["draft model"]
    request = Request("short", model, 2, (0,))
    law = target_law(request.law, request.stops, model.prompt)
    assert (0,) in law
    assert all(len(text) == 2 or text == (0,) for text in law)
