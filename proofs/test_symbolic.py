"""The rules, run on symbols: every claim is proved, and what is wrong is refuted with a witness."""

import ast
import inspect
import re
from fractions import Fraction as F
from importlib import import_module

import pytest

from proofs.symbolic.__main__ import main
from proofs.symbolic.certificate import refuted
from proofs.symbolic.claims import Models, contract, lossless, lossless_on
from proofs.symbolic.reading import Raised, law
from proofs.symbolic.region import Outside, Region, Shared
from proofs.symbolic.search import prove
from proofs.symbolic.statements import STATEMENTS, Page
from proofs.symbolic.symbols import Symbols
from proofs.symbolic.theorems import LONG, LOSSY, QUICK
from specref.closed import round_law as closed_law
from specref.decode import deviation, round_law
from specref.dist import without
from specref.draft import Node, depth, without_replacement
from specref.faults import ROUND_FAULTS
from specref.rules import RULES

LOSSLESS = [name for name, rule in RULES.items() if rule.lossless]


def two_laws(vocab):
    symbols = Symbols()
    symbols.add_law("p", vocab)
    symbols.add_law("q", vocab)
    return symbols


def confirmed(claim, result, rule, shape):
    """Compute in fractions, with the rule itself, how wrong it is at a witness."""
    p, q = claim.models.tables(result.witness.values)
    return deviation(rule, p, q, shape=shape, length=claim.models.length + 1)


# The search


def test_an_identity_is_proved_on_the_regions_that_it_needs():
    def overlap(region):
        p, q = region.law("p"), region.law("q")
        met = sum(min(a, b) for a, b in zip(p, q, strict=True))
        apart = sum(abs(a - b) for a, b in zip(p, q, strict=True))
        return {"sum min(p, q) = 1 - TV": met - (1 - apart / 2)}

    result = prove(two_laws(3), overlap)
    assert result
    # The six ways in which p - q can have signs, the sum being zero, and the ties with each side.
    assert result.regions >= 6


def test_what_is_false_has_a_witness_in_fractions():
    def product(region):
        p, q = region.law("p"), region.law("q")
        return {"collision": sum(a * b for a, b in zip(p, q, strict=True)) - F(1, 2)}

    witness = prove(two_laws(2), product).witness
    p, q = witness.values["p"], witness.values["q"]
    assert sum(p) == sum(q) == 1
    assert witness.difference == sum(a * b for a, b in zip(p, q, strict=True)) - F(1, 2) != 0


def test_a_claim_that_fails_at_one_point_alone_is_refuted():
    def only_there(region):
        p = region.law("p")
        return {"p is not even": int(p[0] == F(1, 2))}

    symbols = Symbols()
    symbols.add_law("p", 2)
    assert prove(symbols, only_there).witness.values == {"p": (F(1, 2), F(1, 2))}


def test_equations_are_solved_where_their_slope_may_vanish():
    def product(region):
        a, b, c = map(region.number, "abc")
        # a b = c; where a = 0 this leaves c = 0, and b is free.
        return {"a b - c": a * b - c if a * b == c else 0, "c": c if a == 0 and a * b == c else 0}

    symbols = Symbols()
    for name in "abc":
        symbols.add_number(name)
    assert prove(symbols, product)


def test_a_certificate_is_a_combination_that_is_zero():
    symbols = two_laws(2)
    x, y = symbols.ring.gens()
    assert refuted([(x - y, True), (y - x, False)], [], {})
    assert not refuted([(x - y, False), (y - x, False)], [], {})
    assert refuted([(x * y - y, True), (1 - x, False), (y, False)], [], {})


def test_a_witness_lies_in_a_region_that_is_told():
    def larger(region):
        p = region.law("p")
        return {"p[0] is not above p[1]": int(p[0] > p[1])}

    witness = prove(two_laws(2), larger).witness
    assert witness.region == ("2*p[0] - 1 > 0",)
    assert witness.values["p"][0] > F(1, 2)


def test_ratios_cannot_go_in_a_circle():
    def circle(region):
        (a, b, c), (x, y, z) = region.law("p"), region.law("q")
        return {"circle": int(a * y < b * x and b * z < c * y and c * x < a * z)}

    assert prove(two_laws(3), circle)


def test_the_law_of_a_program_holds_its_errors():
    region = Region(Shared(two_laws(2)))
    (p, rest), _ = region.law("p"), region.law("q")

    def program(choose):
        if choose.flip(p):
            raise LookupError("none")
        return "fine"

    found = law(program, region)
    assert (found["fine"] - rest).is_zero()
    assert (found[Raised("LookupError: none")] - p).is_zero()


@pytest.mark.parametrize("weights", [(F(1, 2), F(1, 3)), (F(3, 2), F(-1, 2))])
def test_weights_that_are_no_law_are_errors(weights):
    region = Region(Shared(two_laws(2)))
    (outcome,) = law(lambda choose: choose(weights), region)
    assert outcome.error.startswith("ValueError: choose needs weights >= 0 that sum to 1")


def test_a_float_is_compared_as_it_is():
    def even(region):
        p = region.law("p")
        # Python's 1/2; that of nothing else is a float equal to a symbol.
        return {"p is not even": int(p[0] == 1 / 2), "nor here": int(p[0] * 2 != 1.0)}

    symbols = Symbols()
    symbols.add_law("p", 2)
    assert prove(symbols, even).witness
    region = Region(Shared(two_laws(2)))
    p, _ = region.law("p")
    assert p <= 1.0 < float("inf")
    with pytest.raises(TypeError):
        p + 0.5


def test_a_number_is_in_no_set():
    region = Region(Shared(two_laws(2)))
    with pytest.raises(TypeError, match="unhashable"):
        assert region.law("p")[0] in {F(1, 2)}


def test_where_a_hypothesis_never_holds_nothing_is_proved():
    def nowhere(region):
        raise Outside

    result = prove(two_laws(2), nowhere)
    assert not result
    assert not result.witness


@pytest.mark.parametrize("more", [(0,), (0, 1), (2,), ("end",)])
def test_texts_that_no_round_has_must_have_no_mass(more):
    def token_and_more(root, choose):
        return (*RULES["token"].verify(root, choose), *more)

    result = lossless(token_and_more, RULES["token"].draft, 2, 1).check()
    assert result.witness


@pytest.mark.parametrize("name", ["rrs_with", "spec_hub", "k_seq"])
def test_a_rule_that_looks_at_the_laws_of_the_root_is_refuted(name):
    rule = RULES[name]

    def of_root(node, root):
        children = tuple((x, of_root(child, root)) for x, child in node.children)
        return Node(node.p, root.q, children) if children else node

    def verify(root, choose):
        return rule.verify(of_root(root, root), choose, **({"rho": 2} if name == "k_seq" else {}))

    assert lossless(verify, rule.draft, 2, (1,)).check()
    assert lossless(verify, rule.draft, 2, (1, 2), certain=True).check().witness


# The command


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["none_such"], 2, "there is no claim about none_such; one of: token, block"),
        (["typical"], 2, "there is no claim about typical"),
        (["--lnog"], 2, "unrecognized arguments"),
        (["-h"], 0, "Without one, all of them"),
        (["greedy"], 0, "proved greedy, V = 3"),
    ],
)
def test_the_command_says_what_it_does_not_know(words, code, says, capsys):
    try:
        found = main(words)
    except SystemExit as left:
        found = left.code
    assert found == code
    assert says in re.sub(r"\s+", " ", "".join(capsys.readouterr()))


# The rules


def test_every_lossless_rule_has_claims_and_lossy_ones_have_others():
    assert sorted(QUICK) == sorted(LOSSLESS)
    assert not set(LOSSY) & set(QUICK)
    assert set(LONG) <= {*QUICK, *LOSSY} <= set(RULES)


@pytest.mark.parametrize("name", [*QUICK, *LOSSY])
def test_every_claim_is_proved(name, record_property):
    results = [(claim.says, claim.check()) for claim in (QUICK | LOSSY)[name]()]
    assert all(result for _, result in results), results
    regions = sum(result.regions for _, result in results)
    record_property("regions", f"{len(results)} claims on {regions} regions")


@pytest.mark.parametrize(
    ("name", "vocab", "shape"), [("token", 3, 1), ("block", 2, 2), ("traversal", 2, (2,))]
)
def test_on_every_region_the_law_is_that_of_the_exact_engine(name, vocab, shape):
    rule, compared = RULES[name], []
    models = Models(vocab, depth(shape))

    def differences(region):
        p, q = models.on(region)
        found = law(lambda c: rule.verify(rule.draft(p, q, shape, c, ()), c), region)
        for row in region.points[:1]:
            values = region.exactly([F(float(v)).limit_denominator(50) for v in row])
            if values is not None:
                exact = round_law(rule, *models.tables(models.symbols.point(values)), shape)
                assert {t: m.at(values) for t, m in found.items() if m.at(values)} == exact
                compared.append(values)
        return {}

    assert prove(models.symbols, differences).regions <= 2 * len(compared)


# Faults

WRONG = {
    "residual_is_target": (2, 1),
    "residual_without_rejected": (3, 1),
    "everything_accepted": (2, 1),
    "bonus_from_row_before": (2, 1),
    "one_shot_corrected_from_residual": (2, 1),
    "fresh_draw_after_coupled_mismatch": (2, 1),
    "coin_shared": (2, 2),
    "unlikely_draft_dropped": (2, 1),
    "siblings_share_p": (2, (2,)),
    "siblings_merged": (3, (2,)),
    "q_unchanged_without": (3, (2,)),
    "draft_models_swapped": (2, (2,)),
    "duplicates_counted_twice": (2, (2,)),
    "last_weight_uncapped": (2, 2),
    "weight_as_coin": (2, 2),
    "branch_weights_stale": (3, (2,)),
    "divisor_too_small": (2, (2,)),
    "selection_held_to_q": (2, (2,)),
    "drawn_sibling_held_to_whole_q": (2, (2,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_has_a_witness_that_the_exact_engine_confirms(name, record_property):
    rule, (vocab, shape) = ROUND_FAULTS[name].rule, WRONG[name]
    claim = lossless(rule.verify, rule.draft, vocab, shape)
    result = claim.check()
    assert result.witness
    assert confirmed(claim, result, rule, shape) > 0
    record_property("witness", result.show())


# One sign


SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
TURNED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
WORDS = {"min": "max", "max": "min"}


class Flip(ast.NodeTransformer):
    """Change one sign: + and -, * and /, < and >, == and !=, or min and max.

    It is the one of this number in a file. What refuses arguments is no part of a rule.
    """

    def __init__(self, at):
        self.at, self.seen, self.line = at, 0, None

    def is_it(self, node):
        self.seen += 1
        if self.seen - 1 == self.at:
            self.line = node.lineno
            return True
        return False

    def visit_If(self, node):
        return node if isinstance(node.body[0], ast.Raise) else self.generic_visit(node)

    def visit_Compare(self, node):
        self.generic_visit(node)
        if type(node.ops[0]) in TURNED and self.is_it(node):
            node.ops[0] = TURNED[type(node.ops[0])]()
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if type(node.op) in SWAPS and self.is_it(node):
            node.op = SWAPS[type(node.op)]()
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in WORDS and self.is_it(node):
            node.func.id = WORDS[node.func.id]
        return node


def with_one_sign_changed(name, at):
    """Return the names of a rule's module in a copy with one sign changed, and the line."""
    module = import_module(f"specref.rules.{name}")
    text = inspect.getsource(module)
    flip = Flip(at)
    tree = ast.fix_missing_locations(flip.visit(ast.parse(text)))
    if flip.line is None:
        return None
    space = {"__name__": f"{module.__name__}_changed"}
    exec(compile(tree, f"<{name}, a sign changed>", "exec"), space)
    return space, text.splitlines()[flip.line - 1].strip()


def signs(name):
    return next(at for at in range(99) if with_one_sign_changed(name, at) is None)


def as_registered(name, *sizes):
    rule = RULES[name]
    return lambda space: (lossless(space[name], rule.draft, *size) for size in sizes)


def at_any_weight(space):
    def verify(root, r, choose):
        return space["_visit"](root, r, choose, without) or None

    yield contract(verify, without_replacement, 2, 2)


def on_two_siblings(space):
    yield lossless_on(space["target_only"], 3, (0, 1), (0, 0))


# Claims of which one has to fail; small ones first, as most signs show in them.
SIGNS = {
    "token": as_registered("token", (2, 1)),
    "one_shot": as_registered("one_shot", (2, 1)),
    "coupled": as_registered("coupled", (2, 1), (3, 1)),
    "hierarchical": as_registered("hierarchical", (2, 1), (2, 2)),
    "block": as_registered("block", (2, 1), (2, 2)),
    "rrs_with": as_registered("rrs_with", (2, (2,))),
    "rrs_without": as_registered("rrs_without", (3, (2,))),
    "heterogeneous": as_registered("heterogeneous", (2, (2,))),
    "target_only": on_two_siblings,
    "traversal": at_any_weight,
    "spec_hub": as_registered("spec_hub", (2, (1,)), (3, (2,))),
    "greedy_multi": as_registered("greedy_multi", (3, (2,))),
}


@pytest.mark.parametrize(
    ("name", "at"), [(name, at) for name in SIGNS for at in range(signs(name))]
)
def test_a_rule_with_one_sign_changed_has_a_witness(name, at, record_property):
    space, line = with_one_sign_changed(name, at)
    results = (claim.check() for claim in SIGNS[name](space))
    result = next((result for result in results if result.witness), None)
    assert result is not None, line
    record_property("witness", f"{line} {result.show()}")


# Statements


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_proved_step_by_step(name):
    page = STATEMENTS[name]()
    lines = page.show().splitlines()
    assert lines[0] == page.statement
    assert len(lines) == 1 + len(page.steps) > 3


def test_a_wrong_step_is_refused():
    page = Page("nothing")
    page.let("a b")
    with pytest.raises(ArithmeticError):
        page.equal("too much", "(a + b)**2", "a**2 + b**2")
    with pytest.raises(ArithmeticError):
        page.at_least("of unknown sign", "a", "b", "a - b")
    assert page.steps == []


def test_the_closed_law_of_block_is_that_of_its_statement():
    p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    law_of = closed_law("block", lambda text: p, lambda text: q, 2)
    for x in range(3):
        least = min(F(1), p[x] / q[x])
        for y in range(3):
            # y is the correction behind x with mass (R p(y) - Q q(y))+, R = P Q, Q = q(x).
            assert law_of.get((x, y), 0) == max(least * q[x] * p[y] - q[x] * q[y], 0)
