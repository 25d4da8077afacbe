import importlib.util
import math
from collections import Counter
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specref.dist import is_exact
from specref.model import NGram, Table

HALVES = ["1/2", "1/2"]

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def test_a_table_reads_laws_by_the_whole_context():
    table = Table({(): HALVES, (1,): [0, 1], (1, 1): ["1/4", "3/4"]})
    assert table(()) == (F(1, 2), F(1, 2))
    assert table((1,)) == (0, 1)
    assert table((1, 1)) == (F(1, 4), F(3, 4))
    assert table.vocab == 2
    assert all(is_exact(w) for row in table.rows.values() for w in row)


@pytest.mark.parametrize(
    ("order", "context", "key"),
    [(0, (), ()), (0, (1, 0), ()), (1, (), ()), (1, (0,), (0,)), (1, (0, 1), (1,)),
     (2, (1,), (1,)), (2, (1, 0, 1), (0, 1)), (None, (0, 1), (0, 1))],
)  # fmt: skip
def test_a_table_of_some_order_looks_at_that_many_last_tokens(order, context, key):
    keys = [(), (0,), (1,), (0, 1)]
    table = Table({key: [F(at, 10), 1 - F(at, 10)] for at, key in enumerate(keys)}, order=order)
    assert table(context) == table.rows[key]
    assert table(list(context)) == table.rows[key]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_row_may_be_an_array(dtype):
    assert Table({(): np.array([0.25, 0.75], dtype)})(()) == (F(1, 4), F(3, 4))


@needs_torch
def test_a_row_or_a_text_may_be_a_tensor():
    import torch

    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        assert Table({(): torch.tensor([0.25, 0.75], dtype=dtype)})(()) == (F(1, 4), F(3, 4))
    assert NGram(torch.tensor([0, 1, 0]), order=1)((0,)) == (0, 1)


@pytest.mark.parametrize(
    ("rows", "order", "complaint"),
    [
        ({}, None, r"target has no rows; give at least the law of the empty context \(\)"),
        ({(): []}, None, r"target\[\(\)\] is empty; a law needs at least one token"),
        ({(): ["3/2", "-1/2"]}, None, r"target\[\(\)\]\[1\] = -1/2 is negative"),
        ({(): HALVES, (1,): ["1/2", "1/3"]}, 1, r"target\[\(1,\)\] sums to 5/6, not 1; .* norma"),
        ({(): HALVES, (0,): [1]}, 1, r"target has rows of \[1, 2\] tokens; all need the same numb"),
        ({(): [math.nan, 1]}, None, r"target\[\(\)\]: nan is not a finite number; write 3/10"),
        ({(): [math.inf, 1]}, None, r"target\[\(\)\]: inf is not a finite number; write 3/10"),
        ({(): ["x", 1]}, None, r"target\[\(\)\]: 'x' is not a finite number; write 3/10"),
        ({(): [0.1, 0.2, 0.7]}, None, r"sums to 1 -2\.78e-17, not 1; .* strings"),
        ({0: HALVES}, 0, r"target has context 0; write tuples of tokens, \(0,\)"),
        ([HALVES], 0, r"target has context \['1/2', '1/2'\]; write tuples"),
        ({(): HALVES}, -1, r"order = -1 is negative; 0 ignores the context"),
        ({(): HALVES}, 1.5, r"order = 1\.5 is not an integer; 0 ignores the context"),
        ({(): "10"}, None, r"target\[\(\)\] = '10' is a str; write a list"),
        ({(): {0: 1}}, None, r"target\[\(\)\] = \{0: 1\} is a dict; write a list"),
        ({(): {0, 1}}, None, r"target\[\(\)\] = \{0, 1\} is a set; write a list"),
        ({(): 1}, None, r"target\[\(\)\] = 1 is no list"),
        ({(): np.eye(2)}, None, r"target\[\(\)\]\[0\] is a row itself; pass one number per token"),
    ],
)  # fmt: skip
def test_a_bad_table_is_named_with_the_cure(rows, order, complaint):
    with pytest.raises(ValueError, match=complaint):
        Table(rows, order=order, name="target")


def test_a_missing_context_is_named_with_the_cure():
    table = Table({(): HALVES}, name="draft")
    with pytest.raises(LookupError, match=r"draft has no row for context \(0,\); add it, or pass"):
        table((0,))


def test_an_ngram_model_counts_what_followed():
    model = NGram([0, 1, 0, 1, 0, 2], order=1)
    assert model(()) == (F(1, 2), F(1, 3), F(1, 6))
    assert model((0,)) == (0, F(2, 3), F(1, 3))
    assert model((2, 1)) == (1, 0, 0)
    assert model.vocab == 3
    assert all(is_exact(w) for w in model((0,)))


def test_a_context_that_was_never_continued_backs_off_to_its_suffix():
    model = NGram([0, 1, 0, 1, 0, 2], order=2)
    assert model((0, 1)) == (1, 0, 0)
    assert model((1, 0)) == (0, F(1, 2), F(1, 2))
    assert model((2, 0)) == model((0,)) == (0, F(2, 3), F(1, 3))
    assert model((2,)) == model((0, 2)) == model(()), "token 2 ends the text"


def test_order_zero_ignores_the_context():
    model = NGram([1, 1, 0], order=0)
    assert model(()) == model((0,)) == model((1, 1, 1)) == (F(1, 3), F(2, 3))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(0, 3),
    st.lists(st.integers(0, 3), max_size=4),
)
def test_ngram_laws_are_those_of_the_longest_suffix_that_was_continued(text, order, context):
    expected = None
    for length in range(min(order, len(context)), -1, -1):
        suffix = context[len(context) - length :]
        followers = Counter(
            text[at + length]
            for at in range(len(text) - length)
            if text[at : at + length] == suffix
        )
        if followers:
            expected = tuple(F(followers[x], followers.total()) for x in range(4))
            break
    assert NGram(text, order, vocab=4)(tuple(context)) == expected


@pytest.mark.parametrize("text", [np.array([0, 1, 0]), (0, 1, 0)])
def test_a_text_may_be_an_array(text):
    assert NGram(text, order=1)((0,)) == (0, 1)


@pytest.mark.parametrize(
    ("text", "order", "vocab", "complaint"),
    [
        ([], 1, None, "text is empty; an n-gram model needs at least one token"),
        (np.array([], dtype=int), 1, None, "text is empty"),
        ([0, 1], -1, None, "order = -1 is negative; 0 ignores the context"),
        ([0, 3], 1, 3, "text has tokens outside 0 <= token < vocab = 3"),
        ([0, -1], 1, None, "text has tokens outside 0 <= token < vocab = 1"),
        ([-5], 1, None, "text has tokens outside 0 <= token < vocab = 1"),
        ([0, 1], 1.5, None, "order = 1.5 is not an integer; 0 ignores the context"),
        ([0, 1], 1, 2.5, "vocab = 2.5 is not an integer; pass the number of tokens"),
        ([0, 1], 1, 0, "vocab = 0 is below 1; pass the number of tokens"),
    ],
)
def test_a_bad_text_is_named_with_the_cure(text, order, vocab, complaint):
    with pytest.raises(ValueError, match=complaint):
        NGram(text, order, vocab)


@pytest.mark.parametrize("text", ["abc", [0.5, 1.0], [None]])
def test_tokens_are_integers(text):
    with pytest.raises(ValueError, match=r"text.* = .* is (not an integer|a str); "):
        NGram(text, order=1)
