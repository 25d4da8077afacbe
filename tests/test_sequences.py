"""Whole sequences: the decoding loop with stops follows plain decoding, exactly.

The laws depend on the whole context, and no two of them are equal, so a loop that looks at another
context, ends elsewhere or draws once too often has another law.
"""

import itertools
import random
from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specref.choice import Seeded, Trace, law
from specref.decode import decode, one_round, rounds, sequence_law, target_law, within
from specref.dist import normalise, rational, top, tv
from specref.draft import depth, flat, likeliest, nodes, widths_of
from specref.drafters import confident, parallel_heads, prompt_lookup, stochastic_beam
from specref.model import NGram, Table
from specref.rules import RULES
from specref.sampler import verify
from specref.stops import Stops
from tests.fixtures import models

LOSSLESS = [name for name, rule in RULES.items() if rule.lossless]
every_rule = pytest.mark.parametrize("name", RULES)


def whole_context(name, vocab=3, least=1):
    """Return a model whose laws differ after every context; masses are 0 only if `least` is."""

    def laws(context):
        draw = random.Random(f"{name} {context}")
        row = [draw.randint(1, 999) for _ in range(vocab)]
        if least == 0:
            row[draw.randrange(vocab)] = 0
        return normalise([rational(w) for w in row])

    return laws


P, Q = whole_context("target"), whole_context("draft")
ZEROS = whole_context("target with zeros", least=0), whole_context("draft with zeros", least=0)


def sharp(context):
    """Return the target that is certain of one token, another one in every context."""
    (likeliest_token,) = top(P(context), 1)
    return tuple(rational(int(x == likeliest_token)) for x in range(3))


def target_of(name):
    return sharp if RULES[name].one_hot_target else P


def shape_of(name):
    return 2 if RULES[name].shape == "chain" else (2,)


STOPS = {
    "no end but the limit": Stops(5),
    "an end token": Stops(5, eos=2),
    "two end tokens": Stops(5, eos=(0, 2)),
    "stop sequences": Stops(5, stop=[(0, 1), (1, 1, 2)]),
    "both": Stops(5, eos=1, stop=[(0, 2), (2, 2, 0, 0)]),
    "a minimum": Stops(5, eos=2, stop=[(0, 1)], min_tokens=2),
    "the limit as minimum": Stops(5, eos=2, min_tokens=5),
}
ends = pytest.mark.parametrize("stops", STOPS.values(), ids=STOPS)


def test_no_two_contexts_have_one_law():
    contexts = [c for n in range(5) for c in itertools.product(range(3), repeat=n)]
    for model in (P, Q, *ZEROS):
        assert len({model(context) for context in contexts}) == len(contexts)


@ends
@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("name", ["token", "block", "match"])
def test_a_chain_rule_emits_the_law_of_plain_decoding(name, gamma, stops):
    for p, q in ((P, Q), ZEROS) if not stops.min_tokens else ((P, Q), (P, ZEROS[1])):
        wanted = target_law(p, stops)
        assert tv(sequence_law(name, p, q, gamma, stops), wanted) == 0
        assert sum(wanted.values()) == 1


@ends
@pytest.mark.parametrize("widths", [(2,), (2, 2)])
def test_a_tree_rule_emits_the_law_of_plain_decoding(widths, stops):
    short = replace(stops, max_tokens=3, min_tokens=min(3, stops.min_tokens))
    for p, q in ((P, Q), (P, ZEROS[1])):
        assert tv(sequence_law("rrs_without", p, q, widths, short), target_law(p, short)) == 0


@pytest.mark.parametrize("name", LOSSLESS)
def test_every_lossless_rule_emits_the_law_of_plain_decoding(name):
    p, shape = target_of(name), shape_of(name)
    for stops in (Stops(3, eos=2), Stops(3, eos=1, stop=[(0, 0), (2, 1)])):
        assert sequence_law(name, p, Q, shape, stops) == target_law(p, stops)
    if p is P:
        stops = Stops(3, eos=(0, 2), min_tokens=1)
        assert sequence_law(name, p, Q, shape, stops, (1, 0)) == target_law(p, stops, (1, 0))


@every_rule
def test_composing_rounds_gives_the_law_of_the_loop_as_one_program(name):
    """Two routes to one law: text by text, and one program with every choice of every round."""
    p, shape = target_of(name), 1 if RULES[name].shape == "chain" else (2,)
    for stops in (Stops(3, eos=2), Stops(3, stop=[(0, 1)])):
        composed = sequence_law(name, p, Q, shape, stops, (0,))
        program = law(lambda choose, s=stops: decode(name, p, Q, shape, s, choose, (0,)))
        assert composed == program
        other = sequence_law(name, p, Q, shape, stops, (0,), loop=lambda *given: decode(*given))
        assert other == program
        assert (program == target_law(p, stops, (0,))) == RULES[name].lossless


def test_both_routes_agree_on_deeper_chains_too():
    stops = Stops(4, eos=2, stop=[(1, 0)])
    for name in ("token", "block", "hierarchical"):
        program = law(lambda choose, name=name: decode(name, P, Q, 2, stops, choose))
        assert program == sequence_law(name, P, Q, 2, stops) == target_law(P, stops)


def test_a_lossy_pair_has_another_law():
    wrong = replace(RULES["token"], draft=likeliest)
    stops = Stops(4, eos=2)
    assert tv(sequence_law(wrong, P, Q, 2, stops), target_law(P, stops)) > rational(1, 20)


def test_plain_decoding_is_every_text_cut_at_its_first_end():
    for stops in STOPS.values():
        if stops.min_tokens:
            continue
        cut = {}
        for text in itertools.product(range(3), repeat=5):
            mass = 1
            for at, x in enumerate(text):
                mass *= P((1, *text[:at]))[x]
            cut[stops.cut(text)] = cut.get(stops.cut(text), 0) + mass
        assert target_law(P, stops, (1,)) == cut


def test_plain_decoding_under_a_minimum_draws_from_the_masked_law():
    stops = Stops(2, eos=2, min_tokens=1)
    root = P(())
    wanted = {}
    for x in (0, 1):
        for y in range(3):
            wanted[x, y] = root[x] / (root[0] + root[1]) * P((x,))[y]
    assert target_law(P, stops) == wanted == sequence_law("token", P, Q, 2, stops)


def test_a_text_that_cannot_wait_for_its_minimum_is_refused():
    only_end = Table({(): [F(1, 2), F(1, 2)], (0,): [0, 1], (1,): [1, 0]}, order=1)
    stops = Stops(4, eos=1, min_tokens=2)
    for call in (
        lambda: target_law(only_end, stops),
        lambda: sequence_law("token", only_end, only_end, 1, stops),
    ):
        with pytest.raises(ValueError, match=r"min_tokens = 2 masks eos = \[1\], and after 1 tok"):
            call()


SCHEDULES = {
    "by length": lambda text: (2, 0, 3, 1)[len(text) % 4],
    "by the last token": lambda text: text[-1] if text else 3,
    "never": lambda text: 0,
    "as widths": lambda text: (1,) * (len(text) % 3),
}


@pytest.mark.parametrize("name", ["token", "block", "match", "hierarchical", "one_shot"])
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_gamma_may_depend_on_the_text_so_far(name, schedule):
    stops = Stops(5, eos=2, stop=[(0, 0, 1)])
    assert sequence_law(name, P, Q, schedule, stops) == target_law(P, stops)


def test_widths_may_depend_on_the_text_so_far():
    def widths(text):
        return () if text == (1,) else (2, 1) if len(text) % 2 else (3,)

    for name in ("rrs_without", "traversal", "nested_transport"):
        stops = Stops(3, eos=2)
        assert sequence_law(name, P, Q, widths, stops) == target_law(P, stops)


def test_gamma_is_chosen_before_anything_is_drafted():
    """A length that looks at the draft itself gives its tokens a second chance; see drafters."""

    def withheld(p, q, shape, choose, context):
        root = RULES["token"].draft(p, q, shape, choose, context)
        tokens, _ = flat(root)
        return replace(root, children=()) if tokens[:1] == (0,) else root

    stops = Stops(3, eos=2)
    wrong = replace(RULES["token"], draft=withheld)
    assert tv(sequence_law(wrong, P, Q, 2, stops), target_law(P, stops)) > rational(1, 20)


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        ("token", prompt_lookup), ("one_hot", prompt_lookup), ("block", prompt_lookup),
        ("token", confident("1/2")), ("match", confident("1/2")), ("token", parallel_heads),
    ],
    ids=["lookup", "lookup, one_hot", "lookup, block", "confident", "confident, match", "heads"],
)  # fmt: skip
def test_drafts_may_be_of_any_length(name, draft):
    ragged = replace(RULES[name], draft=draft)
    lengths = {
        len(flat(draft(P, Q, 3, Seeded(7, len(text)), text))[0])
        for text in itertools.product(range(3), repeat=4)
    }
    assert len(lengths) > 1 or draft is parallel_heads
    stops = Stops(4, eos=2, stop=[(1, 0)])
    assert sequence_law(ragged, P, Q, 3, stops, (0, 1, 0)) == target_law(P, stops, (0, 1, 0))


def test_a_drafter_may_overrun_the_budget():
    """What it drafts too much lies behind the end: it is cut, and no model is asked there."""

    def eager(p, q, shape, choose, context):
        return RULES["token"].draft(p, q, 3, choose, context)

    for name in ("token", "block"):
        wild = replace(RULES[name], draft=eager)
        for stops in (Stops(2), Stops(3, eos=2)):
            assert sequence_law(wild, P, Q, 1, stops) == target_law(P, stops)


def test_trees_may_be_ragged():
    beam = replace(RULES["rrs_without"], draft=stochastic_beam(2))
    stops = Stops(3, eos=2)
    assert sequence_law(beam, P, Q, 2, stops) == target_law(P, stops)


@settings(max_examples=60)
@given(st.data())
def test_any_models_and_any_stops(data):
    name = data.draw(st.sampled_from(["token", "block", "match", "hierarchical", "rrs_without"]))
    p, q = data.draw(models(3)), data.draw(models(3))
    tree = RULES[name].shape == "tree"
    limit = data.draw(st.integers(0, 3 if tree else 4))
    stops = Stops(
        limit,
        data.draw(st.frozensets(st.integers(0, 2), max_size=2)),
        data.draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=2)),
    )
    shape = data.draw(st.sampled_from([(), (2,), (2, 2)] if tree else [0, 1, 2, 3, 7]))
    assert sequence_law(name, p, q, shape, stops) == target_law(p, stops)


def certain(*rows):
    """Return the model that says one token after another, whatever came, and then A."""

    def say(context):
        said = rows[len(context)] if len(context) < len(rows) else A
        return tuple(rational(int(x == said)) for x in range(4))

    return say


A, B, C, END = range(4)


@pytest.mark.parametrize(
    ("target", "draft", "text", "emitted"),
    [
        ((A, END, B, C), (A, END, B), (A, END), [(A, END, A, A)]),
        ((A, B, END, C), (A, B, END), (A, B, END), [(A, B, END, A)]),
        ((A, B, C, END), (A, B, C), (A, B, C, END), [(A, B, C, END)]),
        ((A, END, B, C), (A, B, C), (A, END), [(A, END)]),
        ((END, B, B, C), (END, B, C), (END,), [(END, A, A, A)]),
        ((A, B, A, B, END), (A, C, C, B), (A, B, A, B, END), [(A, B), (A,), (B, END)]),
    ],
    ids=["inside", "last draft", "bonus", "correction", "first draft", "third round"],
)
@pytest.mark.parametrize("name", ["token", "block", "match", "greedy", "one_hot"])
def test_an_eos_ends_the_sequence_wherever_it_comes_from(name, target, draft, text, emitted):
    p, q = certain(*target), certain(*draft)
    stops = Stops(9, eos=END)
    ran = list(rounds(name, p, q, 3, stops, Seeded(1)))
    assert decode(name, p, q, 3, stops, Seeded(1)) == ran[-1][2] == text
    assert [out for _, out, _ in ran] == emitted


def test_a_stop_sequence_may_straddle_two_rounds():
    p = certain(A, B, C, A, B, C)
    for gamma, text_by_round in ((1, [(A, B), (A, B, C)]), (2, [(A, B, C)])):
        stops = Stops(6, stop=[(B, C)])
        texts = [text for *_, text in rounds("match", p, p, gamma, stops, Seeded(1))]
        assert texts == text_by_round
    assert decode("match", p, p, 4, Stops(6, stop=[(B, C)]), Seeded(1)) == (A, B, C)


def test_a_stop_sequence_does_not_begin_in_the_prompt():
    p = certain(A, B, C, A, B, C)
    stops = Stops(6, stop=[(B, C)])
    assert decode("token", p, p, 2, stops, Seeded(1), context=(A, B)) == (C, A, B, C)
    assert stops.reason((C, A, B, C)) == "stop"


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5])
def test_no_more_is_drafted_than_can_be_emitted(limit):
    """gamma = 3: limits 0, 1, gamma, gamma + 1 and beyond."""
    p = certain(A, B, C, A, B, C)
    ran = list(rounds("token", p, p, 3, Stops(limit), Seeded(1)))
    drafted = [len(nodes(root)) - 1 for root, *_ in ran]
    assert drafted == {0: [], 1: [0], 2: [1], 3: [2], 4: [3], 5: [3, 0]}[limit]
    assert [len(text) for *_, text in ran] == {0: [], 5: [4, 5]}.get(limit, [limit])
    law_ = sequence_law("token", P, Q, 3, limit)
    assert {len(text) for text in law_} == {limit}
    assert law_ == target_law(P, limit)


def test_a_tree_is_capped_by_its_first_levels():
    assert within((3, 2, 2), 3) == (3, 2)
    assert within((3, 2), 1) == ()
    assert within((3, 2), 9) == within((3, 2), None) == (3, 2)
    assert within(4, 1) == 0
    assert within(10**12, 5) == 4
    assert within([2, 2], 2) == (2,)
    (root, _, _), *_ = rounds("rrs_without", P, Q, (2, 2), Stops(2), Seeded(5), context=(1,))
    assert len(nodes(root)) == 3


def test_a_round_without_drafts_is_one_draw_from_the_target():
    trace = Trace(Seeded(4))
    root, out = one_round(RULES["token"], P, None, 0, Stops(9), trace, (), (1,))
    ((kind, weights, outcome, at, _),) = trace.steps
    assert (kind, weights, (outcome,), at) == ("choose", P((1,)), out, None)
    assert root.children == ()


@every_rule
def test_no_model_is_asked_past_an_end(name):
    asked = {"p": set(), "q": set()}

    def heard(model, which):
        def ask(context):
            asked[which].add(context)
            return model(context)

        return ask

    p, q = heard(target_of(name), "p"), heard(Q, "q")
    least = 0 if RULES[name].one_hot_target else 2
    stops = Stops(3, eos=2, stop=[(0, 1)], min_tokens=least)
    sequence_law(name, p, q, 3 if RULES[name].shape == "chain" else (2,), stops, (2,))
    assert asked["p"]
    assert asked["q"]
    for context in asked["p"] | asked["q"]:
        text = context[1:]
        assert context[0] == 2
        assert stops.end(text) is None, f"{text} has an end"


def test_no_model_is_asked_for_nothing():
    def never(context):
        raise AssertionError("asked")

    for name, rule in RULES.items():
        shape = 2 if rule.shape == "chain" else (2,)
        assert decode(name, never, never, shape, 0, Seeded(1)) == ()
    assert target_law(never, 0) == sequence_law("token", never, never, 3, 0) == {(): 1}


def test_a_loop_of_ones_own_is_enumerated_whole():
    def deaf(rule, p, q, shape, stops, choose, context=()):
        """Look for the end behind every round, and not inside it."""
        text = ()
        while not stops.over(text):
            text += one_round(rule, p, q, shape, Stops(stops.max_tokens), choose, context, text)[1]
        return text

    stops = Stops(3, eos=2)
    got = sequence_law("token", P, Q, 2, stops, loop=deaf)
    assert any(2 in text[:-1] for text in got)
    assert tv(got, target_law(P, stops)) > rational(1, 10)
    deep = sequence_law("token", P, Q, 2, Stops(3), loop=deaf)
    assert deep == target_law(P, 3), "without ends it is right"


def replay(name, p, q, shape, length, seed):
    """Decode with `verify`, one round at a time, each from its own start."""
    rule, text = RULES[name], ()
    while len(text) < length:
        levels = min(depth(shape), length - len(text) - 1)
        root = rule.draft(p, q, widths_of(shape)[:levels], Seeded(seed, len(text)), text)
        order, (tokens, parents) = nodes(root), flat(root)
        done = verify(
            name, [n.p for n in order], [n.q for n in order], tokens, parents,
            seed=seed, start=len(text),
        )  # fmt: skip
        text += done.emitted
    return text


@pytest.mark.parametrize("name", [n for n, rule in RULES.items() if not rule.off_path])
def test_a_seeded_loop_starts_each_round_at_its_own_draws(name):
    p, shape = target_of(name), shape_of(name)
    for seed in range(5):
        text = decode(name, p, Q, shape, 9, Seeded(seed))
        assert text == replay(name, p, Q, shape, 9, seed)
        trace = Trace(Seeded(seed))
        assert text == decode(name, p, Q, shape, 9, trace)
        draws = [step.u for step in trace.steps]
        assert len(set(draws)) == len(draws), "no round meets the draws of another"


def test_a_seeded_loop_counts_its_context():
    rule = RULES["match"]
    whole = decode(rule, P, Q, 1, 5, Seeded(3), context=(0, 1))
    root = rule.draft(P, Q, 1, Seeded(3, 2), (0, 1))
    first = rule.verify(root, Seeded(3, 2))
    assert whole[: len(first)] == first
    assert whole == decode(rule, P, Q, 1, 5, Seeded(3), context=[0, 1])


def test_without_a_limit_a_loop_runs_until_an_end_comes():
    stops = Stops(max_tokens=None, eos=2)
    for seed in range(20):
        text = decode("token", P, Q, 3, stops, Seeded(seed))
        assert text.index(2) == len(text) - 1
        capped = decode("token", P, Q, 3, Stops(1000, eos=2), Seeded(seed))
        assert text == capped, "a limit that is far away changes nothing"


def test_an_ngram_target_and_its_drafter_speak_of_whole_sequences():
    text = [0, 1, 2, 0, 1, 1, 2, 2, 0, 2, 1, 0]
    p, q = NGram(text, order=2), NGram(text[:6], order=1, vocab=3)
    stops = Stops(5, eos=2, stop=[(0, 0)])
    assert sequence_law("block", p, q, 3, stops) == target_law(p, stops)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stops": -1}, "max_tokens = -1 is negative; pass a number of tokens >= 0"),
        ({"stops": 2.5}, r"max_tokens = 2\.5 is not an integer"),
        ({"stops": Stops(None, eos=1)}, "max_tokens = None has no limit"),
        (
            {"stops": Stops(3, eos=3)},
            "eos has token 3, but there are 3 tokens; pass tokens in 0 <=",
        ),
        ({"stops": Stops(3, stop=[(1, 4)])}, "stop has token 4, but there are 3 tokens"),
        ({"shape": -1}, "shape = -1 is negative; pass a depth >= 0"),
        ({"shape": (2,)}, r"shape = \(2,\) is a tree, but token verifies chains"),
        ({"shape": lambda text: -len(text) - 1}, "shape = -1 is negative; pass a depth >= 0"),
        ({"shape": lambda text: None}, "shape = None is not an integer; pass a depth >= 0"),
        ({"p": 0.5}, r"p = 0\.5 is no model; pass a callable from a context to a law"),
        ({"q": None}, "q = None is no model; pass a callable from a context to a law"),
    ],
)
def test_what_cannot_be_decoded_is_refused(changes, complaint):
    given_ = {"rule": "token", "p": P, "q": Q, "shape": 2, "stops": Stops(3)} | changes
    with pytest.raises(ValueError, match=complaint):
        sequence_law(**given_)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"p": None}, "p = None is no model; pass a callable from a context to a law"),
        ({"q": 0.5}, r"q = 0\.5 is no model; pass a callable from a context to a law"),
        ({"stops": None}, "max_tokens = None, and neither eos nor stop, is no end; pass one"),
        ({"context": None}, "context = None is no list"),
        ({"context": "01"}, "context = '01' is a str; write a list"),
    ],
)
def test_a_run_that_cannot_begin_or_end_is_refused(changes, complaint):
    given_ = {"rule": "token", "p": P, "q": Q, "shape": 2, "stops": Stops(3)} | changes
    with pytest.raises(ValueError, match=complaint):
        decode(**given_, choose=Seeded(1))


def test_the_target_alone_is_a_model_too():
    with pytest.raises(ValueError, match="p = None is no model"):
        target_law(None, 2)


def test_no_draft_model_is_missed_where_none_is_asked():
    assert len(decode("token", P, None, 0, Stops(3), Seeded(1))) == 3


def test_an_unknown_rule_is_answered_with_the_known_ones():
    for call in (
        lambda: sequence_law("tokens", P, Q, 1, 2),
        lambda: decode("tokens", P, Q, 1, 2, Seeded(1)),
    ):
        with pytest.raises(KeyError, match="there is no rule 'tokens'; rules are token, "):
            call()
