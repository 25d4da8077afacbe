"""Rules side by side, the cost of their laws, and the commands that show both."""

from fractions import Fraction as F

import pytest

from specref import cli, growth
from specref.compare import STANDARD, compare, constant, sharpened
from specref.decode import deviation
from specref.oracle import lengths
from specref.rules import RULES
from tests.fixtures import C4


def run(capsys, *words):
    """Run a command; return its exit code, the lines of stdout, and stderr."""
    with pytest.raises(SystemExit) as left:
        cli.main([*words])
    said = capsys.readouterr()
    return left.value.code, said.out.splitlines(), said.err


def test_rules_on_a_chain():
    token, block, match = compare(["token", "block", "match"], *STANDARD, 2)
    assert (token.acceptance, token.emitted, token.tv) == (F(3, 5), F(49, 25), 0)
    assert (block.acceptance, block.emitted, block.tv) == (F(3, 5), F(51, 25), 0)
    assert (match.acceptance, match.emitted, match.tv) == (F(7, 25), F(849, 625), 0)
    assert block.share == pytest.approx(1, abs=1e-9)
    assert token.share == pytest.approx(49 / 51, abs=1e-9)


def test_each_rule_is_held_to_the_optimum_of_its_own_drafts():
    drawn, certain = compare(["rrs_with", "target_only"], *STANDARD, (2,))
    assert drawn.optimum == pytest.approx(1 + 21 / 25, abs=1e-9)
    assert certain.optimum == pytest.approx(1 + 7 / 10, abs=1e-9)
    assert certain.share == pytest.approx(1, abs=1e-9)


def test_lossy_rules_show_what_they_cost():
    (ensemble,) = compare(["ensemble"], *C4, 2)
    assert ensemble.tv == deviation("ensemble", *C4, shape=2, length=3) > 0
    assert ensemble.share > 1


def test_what_redraws_tokens_has_no_acceptance():
    (redrawn,) = compare(["hierarchical"], *STANDARD, 2)
    assert redrawn.acceptance is None
    assert redrawn.emitted == F(63, 25)


def test_a_sharpened_model_is_certain_of_the_likeliest_token():
    assert sharpened(STANDARD[0])(()) == (1, 0, 0)
    assert sharpened(constant("2/5,1/5,2/5", "p"))(()) == (1, 0, 0), "ties go to the lowest id"


@pytest.mark.parametrize("vocab", [2, 3, 4, 8])
def test_the_models_of_growth_depend_on_the_whole_context(vocab):
    for model in growth.models(vocab):
        assert sum(model((1, 0))) == 1
        assert len({model((x, y)) for x in range(2) for y in range(2)}) > 1
    p, q = growth.models(vocab)
    assert p(()) != q(())


def test_both_oracles_are_measured_on_the_same_law():
    points = list(growth.measure("block", [2, 3], [1, 2]))
    assert [(p.vocab, p.gamma, p.oracle) for p in points] == [
        (vocab, gamma, oracle)
        for vocab in (2, 3)
        for gamma in (1, 2)
        for oracle in ("law", "closed")
    ]
    for by_law, by_formula in zip(points[::2], points[1::2], strict=True):
        assert by_law.outcomes == by_formula.outcomes > 0
        assert by_law.seconds > 0


def test_what_was_too_slow_is_not_tried_on_larger_sizes():
    points = list(growth.measure("token", [2], [1, 2], limit=0))
    assert [p.seconds is None for p in points] == [False, False, True, True]


def test_the_command_lists_what_rules_emit(capsys):
    code, lines, _ = run(capsys, "rules")
    assert code == 0
    assert [line.split()[0] for line in lines[1:]] == list(RULES)
    for line in lines[1:]:
        name = line.split()[0]
        shape = 2 if RULES[name].shape == "chain" else (2, 2)
        p = sharpened(STANDARD[0]) if RULES[name].one_hot_target else STANDARD[0]
        emitted = str(lengths(name, p, STANDARD[1], shape=shape).expected)
        assert f" {emitted} " in line or len(emitted) > 16, line


PAIR = ("--p", "1/2,3/10,1/5", "--q", "1/5,1/5,3/5")


def test_the_command_compares(capsys):
    code, lines, _ = run(capsys, "compare", *PAIR, "--rules", "token, block", "--gamma", "2")
    assert code == 0
    assert [line.split() for line in lines[1:]] == [
        "token 3/5 = 0.6000 49/25 = 1.9600 0.9608 0".split(),
        "block 3/5 = 0.6000 51/25 = 2.0400 1.0000 0".split(),
    ]


def test_left_out_rules_are_all_that_fit_the_shape(capsys):
    _, lines, _ = run(capsys, "compare", *PAIR, "--widths", "3")
    fits = [n for n, rule in RULES.items() if rule.shape == "tree" and rule.width is None]
    assert [line.split()[0] for line in lines[1:]] == fits


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (PAIR, "pass either --gamma N, for chains, or --widths 2,2, for trees"),
        ((*PAIR, "--gamma", "-1"), "--gamma -1 is negative"),
        ((*PAIR, "--widths", "2,0"), "--widths 2,0 is not a list of positive numbers"),
        ((*PAIR, "--gamma", "1", "--rules", "tokn"), "there is no rule 'tokn'"),
        ((*PAIR, "--widths", "2", "--rules", "token"), "is a tree, but token verifies chains"),
        ((*PAIR, "--widths", "3", "--rules", "spec_hub"), "spec_hub verifies 2 siblings"),
        (("--p", "1/2,1/2", "--q", "1", "--gamma", "1"), "--p has 2 tokens and --q 1"),
        (("--p", "1/2,x", "--q", "1,0", "--gamma", "1"), "--p: 'x' is not a finite number"),
        (("--p", "1/2,1/3", "--q", "1,0", "--gamma", "1"), "--p sums to 5/6, not 1"),
    ],
)
def test_bad_arguments_of_compare_are_named(capsys, words, says):
    code, _, error = run(capsys, "compare", *words)
    assert code == cli.USAGE
    assert says in error


def test_the_command_measures_growth_and_draws_it(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "growth.svg"
    words = ["growth", "rrs_with", "--vocab", "2", "--gamma", "1", "--out", str(picture)]
    code, lines, _ = run(capsys, *words)
    assert code == 0
    assert [line.split()[:7] for line in lines] == [
        ["V", "=", "2", "gamma", "=", "1", "law"],
        ["V", "=", "2", "gamma", "=", "1", "closed"],
    ]
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tokn",), "there is no rule 'tokn'"),
        (("--vocab", "1"), "--vocab 1 is not a list of numbers above 1"),
        (("--gamma", "0"), "--gamma, --width and --limit are positive"),
        (("--limit", "nan"), "--gamma, --width and --limit are positive"),
        (("--out", "growth.pdf"), "--out growth.pdf does not end in .svg or .png"),
        (("--out", "/nowhere/growth.svg"), "--out /nowhere/growth.svg cannot be written"),
        (("spec_hub", "--width", "3", "--gamma", "1"), "spec_hub verifies 2 siblings"),
    ],
)
def test_bad_arguments_of_growth_are_named(capsys, words, says):
    code, _, error = run(capsys, "growth", *words)
    assert code == cli.USAGE
    assert says in error
