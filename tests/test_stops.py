"""Where a text ends, told from the text alone."""

import dataclasses
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specref.dist import normalise
from specref.model import Table
from specref.stops import Stops, as_stops, finite

BOTH = Stops(max_tokens=6, eos=2, stop=[(0, 1), (1, 1, 0)], min_tokens=2)


@pytest.mark.parametrize(
    ("text", "kept", "reason"),
    [
        ((), (), None),
        ((0,), (0,), None),
        ((0, 0, 2, 1), (0, 0, 2), "eos"),
        ((0, 0, 0, 1, 1), (0, 0, 0, 1), "stop"),
        ((0, 1, 1, 0, 0), (0, 1, 1, 0), "stop"),
        ((0, 1, 0, 0, 0), (0, 1, 0, 0, 0), None),
        ((1, 1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1), "length"),
        ((2, 0, 0), (2,), "eos"),
        ((1, 1, 1, 1, 1, 2), (1, 1, 1, 1, 1, 2), "eos"),
        ((0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 1), "stop"),
    ],
)
def test_the_first_end_counts(text, kept, reason):
    assert BOTH.cut(text) == kept
    assert BOTH.reason(kept) == reason
    assert BOTH.over(kept) == (reason is not None)
    assert BOTH.left(kept) == (0 if reason else 6 - len(kept))


def test_the_end_token_is_named_before_a_sequence_and_that_before_the_limit():
    stops = Stops(max_tokens=2, eos=1, stop=[(0, 1), (0, 0)])
    assert stops.reason((0, 1)) == "eos"
    assert stops.reason((0, 0)) == "stop"
    assert stops.reason((2, 2)) == "length"


def test_of_two_sequences_the_one_that_ends_first_counts():
    assert Stops(9, stop=[(0, 1, 0, 1), (1, 0)]).cut((0, 1, 0, 1)) == (0, 1, 0)
    assert Stops(9, stop=[(0, 0, 0), (0,)]).cut((0, 0, 0)) == (0,)


def test_without_a_limit_as_many_may_come_as_like():
    stops = Stops(max_tokens=None, eos=0)
    assert stops.left((1,) * 1000) is None
    assert stops.left((1, 0)) == 0
    assert stops.cut((1,) * 1000) == (1,) * 1000


def test_a_limit_of_zero_is_over_before_it_begins():
    stops = Stops(max_tokens=0, eos=0)
    assert stops.over(())
    assert stops.reason(()) == "length"
    assert stops.cut((1, 2)) == ()
    assert stops.left(()) == 0


def test_a_text_that_overran_its_limit_is_over():
    stops = Stops(max_tokens=2, eos=0)
    assert stops.over((1, 1, 1))
    assert stops.reason((1, 1, 1)) == "length"
    assert stops.left((1, 1, 1)) == 0


@st.composite
def stops_and_text(draw):
    token = st.integers(0, 3)
    limit = draw(st.none() | st.integers(0, 8))
    eos = draw(st.frozensets(token, max_size=2))
    stop = draw(st.lists(st.lists(token, min_size=1, max_size=3), max_size=2))
    least = draw(st.integers(0, 4 if limit is None else limit)) if eos or stop else 0
    return Stops(limit, eos, stop, least), tuple(draw(st.lists(token, max_size=10)))


@given(stops_and_text())
def test_a_cut_is_the_first_finished_beginning(case):
    stops, text = case
    beginnings = [text[:n] for n in range(len(text) + 1)]
    first = next((begun for begun in beginnings if stops.over(begun)), text)
    assert stops.cut(text) == first
    assert stops.cut(first) == first
    unfinished = len(first) - 1 if stops.over(first) else len(text)
    for begun in range(unfinished + 1):
        assert stops.cut(text, begun) == first, "what is known to be unfinished is not read again"


@pytest.mark.parametrize(
    "eos", [2, [2], (2, 2), {2}, frozenset({2}), iter([2]), np.int64(2), np.array([2]), range(2, 3)]
)
def test_end_tokens_may_be_passed_one_or_several(eos):
    assert Stops(3, eos).eos == frozenset({2})
    assert type(next(iter(Stops(3, np.array([2])).eos))) is int


def test_stops_are_values():
    again = dataclasses.replace(BOTH, max_tokens=9)
    assert (again.max_tokens, again.eos, again.stop, again.min_tokens) == (9, {2}, BOTH.stop, 2)
    assert BOTH == Stops(6, [2], [[0, 1], np.array([1, 1, 0])], 2) != again
    assert hash(BOTH) == hash(dataclasses.replace(again, max_tokens=6))
    assert as_stops(BOTH) is BOTH
    assert as_stops(3) == Stops(max_tokens=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        BOTH.max_tokens = 3


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ({"max_tokens": -1}, "max_tokens = -1 is negative; pass a number of tokens >= 0"),
        ({"max_tokens": 2.0}, r"max_tokens = 2\.0 is not an integer; pass a number of tokens"),
        ({"max_tokens": "5"}, "max_tokens = '5' is not an integer"),
        ({"eos": -1}, "eos has token -1; tokens are >= 0"),
        ({"eos": [1, -2]}, "eos has token -2; tokens are >= 0"),
        ({"eos": 1.0}, r"eos = 1\.0 is no list"),
        ({"eos": [1.5]}, r"eos\[0\] = 1\.5 is not an integer"),
        ({"eos": "2"}, "eos = '2' is a str; write a list"),
        ({"eos": {2: "end"}}, "eos = {2: 'end'} is a dict; write a list"),
        ({"stop": (1, 2)}, r"stop\[0\] = 1 is no sequence; write lists of tokens, \[\[1, 2\]\]"),
        ({"stop": 1}, "stop = 1 is no list"),
        ({"stop": "ab"}, "stop = 'ab' is a str; write a list"),
        ({"stop": ["ab"]}, r"stop\[0\] = 'ab' is a str; write a list"),
        ({"stop": [[1], []]}, r"stop\[1\] is empty; a stop sequence has at least one token"),
        ({"stop": [[1, -1]]}, r"stop\[0\] has token -1; tokens are >= 0"),
        ({"min_tokens": -1, "eos": 0}, "min_tokens = -1 is negative; pass a number of tokens"),
        ({"min_tokens": 0.5, "eos": 0}, r"min_tokens = 0\.5 is not an integer"),
        (
            {"min_tokens": 6, "eos": 0},
            "min_tokens = 6 is above max_tokens = 5; pass 0 <= min_tokens <= 5",
        ),
        ({"min_tokens": 1}, "min_tokens = 1 holds back no end; name the ends by eos or stop"),
    ],
)
def test_stops_that_make_no_sense_are_named_with_the_cure(given_, complaint):
    with pytest.raises(ValueError, match=complaint):
        Stops(**{"max_tokens": 5} | given_)


def test_a_law_needs_a_limit():
    assert finite(4) == Stops(4)
    with pytest.raises(ValueError, match="max_tokens = None has no limit; the law of whole"):
        finite(Stops(None, eos=1))


ROWS = Table({(): [F(1, 2), F(1, 3), F(1, 6)], (0,): [0, F(1, 4), F(3, 4)], (2,): [0, 0, 1]}, 1)


def test_the_end_is_masked_until_enough_tokens_have_come():
    target = Stops(9, eos=(1, 0), min_tokens=2).asked(ROWS, context=(0,))
    assert target((0,)) == (0, 0, 1)
    assert target((0, 0)) == (0, 0, 1)
    assert target((0, 2, 0)) == (0, F(1, 4), F(3, 4)), "two have come after the context"
    one = Stops(9, eos=1, min_tokens=1).asked(ROWS)
    assert one(()) == (F(3, 4), 0, F(1, 4))
    assert one((0,)) == ROWS((0,))


def test_a_target_without_ends_is_left_as_it_is():
    assert Stops(9).asked(ROWS) is ROWS
    assert Stops(9, eos=1).asked(ROWS)(()) == ROWS(())


def test_a_target_with_nothing_but_the_end_cannot_wait():
    target = Stops(9, eos=2, min_tokens=3).asked(ROWS)
    with pytest.raises(
        ValueError,
        match=r"min_tokens = 3 masks eos = \[2\], and after 2 tokens the target has no other token",
    ):
        target((0, 2))


@pytest.mark.parametrize(
    ("stops", "complaint"),
    [
        (Stops(9, eos=3), "eos has token 3, but there are 3 tokens; pass tokens in 0 <= token < 3"),
        (Stops(9, eos=1, stop=[(0, 7)]), "stop has token 7, but there are 3 tokens"),
    ],
)
def test_ends_that_cannot_come_are_refused(stops, complaint):
    with pytest.raises(ValueError, match=complaint):
        stops.asked(ROWS)(())


def test_behind_an_end_a_model_is_not_asked_and_certain():
    asked = []

    def model(context):
        asked.append(context)
        return ROWS(context[-1:] if context[-1:] != (1,) else ())

    stops = Stops(4, eos=2, stop=[(1, 1)])
    ended = stops.ended(model, context=(2, 2), begun=1)
    assert ended((2, 2, 0)) == ROWS((0,))
    for text in ((0, 2), (0, 2, 1), (1, 1), (0, 1, 0, 1), (0, 0, 0, 0, 0)):
        assert ended((2, 2, *text)) == (1, 0, 0)
    assert asked == [(2, 2, 0)]


@pytest.mark.parametrize("kind", [F, float, int, np.float32])
def test_certainty_is_written_in_the_numbers_of_the_model(kind):
    row = tuple(kind(w) for w in (0, 1, 0))
    ended = Stops(4, eos=1).ended(lambda context: row)
    assert ended((1,)) == (1, 0, 0), "also before the model was asked anything else"
    half = ended((1,))[0] / 2
    assert half == F(1, 2)
    assert isinstance(
        half, float if kind is float else np.float32 if kind is np.float32 else object
    )
    assert type(half) is not float or kind is float, "integers would turn into floats"


def test_masked_floats_are_divided_by_their_sum():
    target = Stops(4, eos=0, min_tokens=1).asked(lambda context: (0.5, 0.25, 0.25))
    assert target(()) == (0, 0.5, 0.5)
    assert target(()) == normalise((0.0, 0.25, 0.25))
