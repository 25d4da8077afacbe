"""Every rule of the registry, held to what makes it lossless and to what its entry declares."""

import importlib
import itertools
import math
from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given, settings

from specref.choice import Trace, Uniforms, law
from specref.decode import deviation, round_law, target_law
from specref.dist import as_law, excess, normalise, rational, tv
from specref.draft import DRAFTS, Node, chain, flat, likeliest, nodes, tree, with_replacement
from specref.rules import RULES
from specref.sampler import verify
from tests.fixtures import (
    C4,
    GRID,
    P3,
    P4,
    Q3,
    Q4,
    SHARP3,
    SHARP4,
    TOY2,
    A,
    B,
    after,
    drafts,
    expected_accepted,
    grid,
    models,
    same,
)

TINY = rational(1, 10**30)
WALKS_TREES = [*(name for name, rule in RULES.items() if rule.shape == "tree"), "match", "greedy"]
FROM_ROWS = [name for name, rule in RULES.items() if not rule.off_path]

every_rule = pytest.mark.parametrize("name", RULES)


def rules_that(flag, among=RULES):
    """Parametrise over the rules whose entry declares `flag`."""
    return pytest.mark.parametrize("name", [name for name in among if getattr(RULES[name], flag)])


def rules_that_do_not(flag, among=RULES):
    """Parametrise over the rules whose entry does not declare `flag`."""
    names = [name for name in among if not getattr(RULES[name], flag)]
    return pytest.mark.parametrize("name", names)


def shape_of(name, chain_depth=1, widths=(2,)):
    """Return the shape that a rule is tried on: a chain for chain rules, else a tree."""
    width = RULES[name].width
    if RULES[name].shape == "chain":
        return chain_depth
    return widths if width is None else (width,) * len(widths)


THIRDS = grid(3, 3)
"""Fewer laws than in `GRID`, for what is tried in many ways."""


def one_hot(vocab):
    return [as_law([int(x == y) for x in range(vocab)]) for y in range(vocab)]


def targets(name, laws):
    """Return the laws that are in the domain of a rule."""
    return [p for p in laws if max(p) == 1] if RULES[name].one_hot_target else laws


POSITIVE = [law_ for law_ in grid(3, 6) if min(law_) > 0 and len(set(law_)) == 3]


def target_of(name, sharp, soft):
    return sharp if RULES[name].one_hot_target else soft


@every_rule
def test_a_rule_is_registered_under_the_name_of_its_function_and_file(name):
    rule = RULES[name]
    assert rule.name == name
    assert rule.verify.__module__ == f"specref.rules.{name}"
    assert rule.shape in ("chain", "tree")
    assert rule.draft in DRAFTS.values()
    assert rule.source
    assert rule.lossless or not rule.any_draft, "any_draft says for which drafts it is lossless"
    assert importlib.import_module(rule.verify.__module__).__doc__


@rules_that("lossless")
def test_a_rule_is_lossless_on_every_pair_of_a_grid(name, record_property):
    rule, shape = RULES[name], shape_of(name)
    cases = list(itertools.product(targets(name, GRID), GRID))
    for p, q in cases:
        assert deviation(rule, same(p), same(q), shape=shape, length=2) == 0, (p, q)
    laws = math.comb(4 + 2, 2)
    assert len(cases) == (3 if rule.one_hot_target else laws) * laws
    record_property("cases", len(cases))
    print(f"{name}: {len(cases)} pairs of laws, V = 3, multiples of 1/4, TV = 0 on each")


def test_a_rule_declared_lossy_is_lossy_somewhere_on_the_grid():
    for name in [name for name, rule in RULES.items() if not rule.lossless]:
        assert any(
            deviation(name, same(p), same(q), shape=shape_of(name), length=2) > 0
            for p, q in itertools.product(targets(name, GRID), GRID)
        ), name


# Examples by shape: bushy trees of sampled siblings cost a second each.
CHAINS = {1: 40, 2: 20, 3: 5}
TREES = {(2,): 20, (1, 2): 10, (2, 1): 10, (2, 2): 2}


@pytest.mark.parametrize(
    ("name", "shape", "examples"),
    [
        (name, shape, examples)
        for name, rule in RULES.items()
        if rule.lossless
        for shape, examples in (CHAINS if rule.shape == "chain" else TREES).items()
        if rule.width is None or max(shape) <= rule.width
    ],
    ids=str,
)
def test_a_rule_is_lossless_on_generated_models(name, shape, examples, record_property):
    rule, seen = RULES[name], []

    @settings(max_examples=examples)
    @given(models(4, sharp=rule.one_hot_target), models(4))
    def holds(p, q):
        depth = shape if isinstance(shape, int) else len(shape)
        assert deviation(rule, p, q, shape=shape, length=depth + 1) == 0
        seen.append((p, q))

    holds()
    record_property("cases", len(seen))
    print(f"{name}: {len(seen)} generated pairs of models, V = 4, shape {shape}, TV = 0 on each")


@pytest.mark.parametrize("rounds", [1, 3])
@rules_that("lossless")
def test_a_rule_is_lossless_over_several_rounds(name, rounds):
    rule, shape = RULES[name], shape_of(name, 2)
    for p, q in [(P3, Q3), (Q3, P3)] + [C4] * (rule.shape == "chain"):
        p = target_of(name, SHARP3 if p.vocab == 3 else SHARP4, p)
        assert deviation(rule, p, q, shape=shape, length=4, rounds=rounds) == 0


@pytest.mark.parametrize("name", FROM_ROWS)
def test_a_rule_emits_a_path_of_the_draft_and_one_more_token(name):
    rule = RULES[name]

    def program(choose):
        root = rule.draft(target_of(name, SHARP4, P4), Q4, shape_of(name, 3, (2, 1)), choose, ())
        *accepted, last = rule.verify(root, choose)
        node = root
        for x in accepted:
            below = [child for y, child in node.children if y == x]
            assert below, (flat(root), accepted)
            node = below[0]
        assert 0 <= last < 4
        return len(accepted)

    assert set(law(program)) <= {0, 1, 2, 3}


@rules_that("lossless")
def test_a_rule_never_emits_a_token_of_target_mass_zero(name, record_property):
    rule, seen = RULES[name], 0
    for p, q in itertools.product(targets(name, GRID), GRID):
        for root, _ in drafts(rule, same(p), same(q), shape_of(name)):
            seen += 1
            assert all(p[x] > 0 for text in after(rule, root) for x in text), (p, q, flat(root))
    record_property("drafts", seen)
    print(f"{name}: {seen} drafts")


@pytest.mark.parametrize("u", [0, TINY, 1 - TINY])
@rules_that("lossless", among=FROM_ROWS)
def test_extreme_draws_emit_no_token_of_target_mass_zero(name, u):
    rule = RULES[name]
    for p, q in itertools.product(targets(name, THIRDS), THIRDS):
        for root, _ in drafts(rule, same(p), same(q), shape_of(name)):
            emitted = rule.verify(root, Uniforms([u] * len(nodes(root))))
            assert all(p[x] > 0 for x in emitted), (p, q, flat(root))


def renamed(node, to):
    """Return a draft in which token x is called to[x]."""
    beyond = node.beyond and (lambda y: renamed(node.beyond(to.index(y)), to))
    return Node(
        *(None if row is None else tuple(row[to.index(y)] for y in range(len(row)))
          for row in (node.p, node.q)),
        tuple((to[x], renamed(child, to)) for x, child in node.children),
        node.index,
        beyond,
    )  # fmt: skip


def fixed_drafts(name):
    """Return drafts for a rule, given rather than drawn, with laws that have no ties.

    A rule that only its own drafter, or only models, can serve gets all that the drafter proposes.
    """
    p, q = target_of(name, SHARP3, P3), Q3
    if RULES[name].own_drafts or RULES[name].off_path:
        yield from (root for root, _ in drafts(RULES[name], p, q, shape_of(name, 2)))
        return
    flat_drafts = [((2, 0), (0, 1)), ((0, 1, 0), (0, 1, 2)), ((1,), (0,)), ((), ())]
    if name in WALKS_TREES:
        flat_drafts += [((2, 0, 1, 0), (0, 0, 1, 2)), ((0, 2, 1), (0, 0, 0))]
    if RULES[name].draft is with_replacement and name in WALKS_TREES:
        flat_drafts += [((2, 2, 1, 0), (0, 0, 1, 2))]
    for tokens, parents in flat_drafts:
        if max(map(parents.count, parents), default=0) > (RULES[name].width or 3):
            continue
        texts = [()]
        for x, parent in zip(tokens, parents, strict=True):
            texts.append((*texts[parent], x))
        yield tree([p(text) for text in texts], [q(text) for text in texts], tokens, parents)


@every_rule
def test_renaming_the_tokens_renames_the_law(name):
    rule = RULES[name]
    for root in fixed_drafts(name):
        out = after(rule, root)
        for to in itertools.permutations(range(3)):
            expected = {tuple(to[x] for x in text): mass for text, mass in out.items()}
            assert after(rule, renamed(root, to)) == expected


def integrate(rule, root):
    """Return the law of the sampler on a draft, by cutting the cube of its uniforms into cells.

    Where a step reads a draw for the first time, the draw's interval is cut at the chances of that
    step. Every cell is tried at its low end, which belongs to it, and just below its high end.
    """
    columns = len(nodes(root))
    mass, cells = {}, 0
    todo = [{}]
    while todo:
        box = todo.pop()
        emitted = set()
        for high in (False, True):
            row = [rational(0)] * columns
            for column, (lo, hi) in box.items():
                row[column] = hi - TINY if high else lo
            trace = Trace(Uniforms(row))
            emitted.add(rule.verify(root, trace))
            asked = [columns - 1 if s.at is None else s.at.index - 1 for s in trace.steps]
            assert len(set(asked)) == len(asked), "a draw decides one thing only"
            fresh = [(c, s) for c, s in zip(asked, trace.steps, strict=True) if c not in box]
            if fresh:
                break
        if fresh:
            column, step = fresh[0]
            weights = step.weights if step.kind == "choose" else (*step.weights, 1)
            cuts = [0, *itertools.accumulate(weights[:-1]), 1]
            todo += [{**box, column: (a, b)} for a, b in itertools.pairwise(cuts) if a < b]
            continue
        (text,) = emitted
        cells += 1
        mass[text] = mass.get(text, 0) + math.prod(hi - lo for lo, hi in box.values())
    return mass, cells


@pytest.mark.parametrize("name", FROM_ROWS)
def test_the_sampler_integrates_to_the_exact_law(name, record_property):
    total = 0
    for root in fixed_drafts(name):
        mass, cells = integrate(RULES[name], root)
        assert mass == after(RULES[name], root)
        total += cells
    record_property("cells", total)
    print(f"{name}: {total} cells of uniforms")


HALF_ULP = F(1, 2**53)


class Rounded:
    """A float and a bound on its distance from the exact result: running error analysis.

    Every operation rounds its result by at most half a unit in the last place, and passes on the
    errors of its operands. A comparison that these errors could turn around is an error.
    """

    def __init__(self, value, error=F(0)):
        self.value = value
        self.error = F(math.ceil(error * 2**200), 2**200)

    @staticmethod
    def of(number):
        if isinstance(number, Rounded):
            return number
        return Rounded(float(number), abs(F(float(number)) - F(number)))

    def _rounded(self, value, inherited):
        return Rounded(value, inherited + abs(F(value)) * HALF_ULP)

    def __add__(self, other):
        other = Rounded.of(other)
        return self._rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other):
        other = Rounded.of(other)
        return self._rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other):
        other = Rounded.of(other)
        inherited = abs(F(self.value)) * other.error + abs(F(other.value)) * self.error
        return self._rounded(self.value * other.value, inherited + self.error * other.error)

    def __truediv__(self, other):
        other = Rounded.of(other)
        value = self.value / other.value
        least = abs(F(other.value)) - other.error
        assert least > 0, "the divisor might be zero"
        quotient = abs(F(self.value) / F(other.value))
        return self._rounded(value, (self.error + quotient * other.error) / least)

    def __neg__(self):
        return Rounded(-self.value, self.error)

    def __radd__(self, other):
        return Rounded.of(other) + self

    def __rsub__(self, other):
        return Rounded.of(other) - self

    def __rmul__(self, other):
        return Rounded.of(other) * self

    def __rtruediv__(self, other):
        return Rounded.of(other) / self

    def _gap(self, other):
        """Return the sign of self - other, provided that the errors leave it certain."""
        other = Rounded.of(other)
        gap, error = F(self.value) - F(other.value), self.error + other.error
        assert error == 0 or abs(gap) > error, "rounding may turn this comparison around"
        return (gap > 0) - (gap < 0)

    def __lt__(self, other):
        return self._gap(other) < 0

    def __gt__(self, other):
        return self._gap(other) > 0

    def __eq__(self, other):
        return self._gap(other) == 0

    __hash__ = None


@rules_that_do_not("exact_numbers")
def test_the_float_law_is_within_its_rounding_errors_of_the_exact_law(name, record_property):
    rule, shape = RULES[name], shape_of(name, 2, (2, 1))
    p, q = target_of(name, SHARP3, P3), Q3
    laws = {}
    for number in (lambda w: w, float, Rounded.of):
        rows = [
            {c: tuple(map(number, row)) for c, row in table.rows.items()} for table in (p, q)
        ]  # fmt: skip
        p_of, q_of = ((lambda context, row=row: row[context[-1:]]) for row in rows)
        laws[number] = round_law(rule, p_of, q_of, shape)
    exact, floats, bounded = laws.values()
    assert exact.keys() == floats.keys() == bounded.keys()
    bounds = {text: Rounded.of(mass).error for text, mass in bounded.items()}
    for text, mass in floats.items():
        assert mass == Rounded.of(bounded[text]).value, "both went through the same operations"
        assert abs(F(mass) - F(exact[text])) <= bounds[text]
    assert max(bounds.values()) * 10**7 < min(exact.values()), "the bound says something"
    record_property("bound", float(max(bounds.values())))
    print(f"{name}: {len(bounds)} masses, each within {float(max(bounds.values())):.2g}")


@rules_that_do_not("exact_numbers")
def test_float_laws_that_sum_to_one_only_nearly_are_no_obstacle(name):
    """Drafts that cover the vocabulary leave a rest that is zero up to rounding."""
    rule, shape, leaves = RULES[name], shape_of(name, 1, (3,)), []

    def program(choose, row):
        leaves.append(row)
        return rule.verify(rule.draft(same(row), same(row[::-1]), shape, choose, ()), choose)

    for counts in itertools.product(range(1, 9), repeat=3):
        if sum(counts) == 10:
            row = tuple(count / 10 for count in counts)
            total = F(sum(law(lambda choose, row=row: program(choose, row)).values()))
            # At most three proposals, three coins and one more draw, of four weights at most: each
            # sums to one within 8 eps, or is refused; then one rounding for each product and sum.
            assert (
                abs(total - 1) <= (1 + F(8, 2**52)) ** 7 * (1 + HALF_ULP) ** (7 + len(leaves)) - 1
            )
            leaves.clear()


@rules_that("accepts_all_when_equal")
def test_equal_laws_accept_every_draft_where_that_is_declared(name):
    for p in targets(name, GRID):
        for root, _ in drafts(RULES[name], same(p), same(p), shape_of(name, 2)):
            deepest = 2 if RULES[name].shape == "chain" else 1
            assert {len(text) - 1 for text in after(RULES[name], root)} == {deepest}


@rules_that_do_not("accepts_all_when_equal")
def test_equal_laws_refuse_some_draft_where_nothing_is_declared(name):
    assert any(
        len(text) == 1
        for p in targets(name, GRID)
        for text in round_law(RULES[name], same(p), same(p), shape_of(name))
    )


@pytest.mark.parametrize("drafter", DRAFTS)
@rules_that("any_draft")
def test_a_rule_for_any_draft_is_lossless_with_every_drafter(name, drafter):
    rule = replace(RULES[name], draft=DRAFTS[drafter])
    for p, q in itertools.product(targets(name, THIRDS), THIRDS):
        for shape in (1, (2,)) if name in WALKS_TREES else (1,):
            assert deviation(rule, same(p), same(q), shape=shape, length=2) == 0, (p, q)
    p, q = target_of(name, SHARP3, P3), Q3
    shape = (2, 2) if name in WALKS_TREES else 3
    assert deviation(rule, p, q, shape=shape, length=3) == 0


@rules_that_do_not("any_draft", among=[name for name in RULES if not RULES[name].own_drafts])
def test_a_rule_for_its_own_drafter_is_lossy_with_some_other(name):
    rule = RULES[name]
    others = [draft for draft in reversed(DRAFTS.values()) if draft is not rule.draft]
    assert any(
        deviation(replace(rule, draft=draft), P3, Q3, shape=shape_of(name), length=2) > 0
        for draft in others
    )


@rules_that("own_drafts")
def test_a_rule_for_its_own_drafts_refuses_others(name):
    p, q, refused = P3(()), Q3(()), 0
    own = {flat(root) for root, _ in drafts(RULES[name], P3, Q3, (2,))}
    for tokens in itertools.product(range(3), repeat=2):
        if (tokens, (0, 0)) not in own:
            refused += 1
            with pytest.raises(ValueError, match=name):
                after(RULES[name], tree([p] * 3, [q] * 3, tokens, (0, 0)))
    assert refused


@rules_that("off_path")
def test_a_rule_that_calls_the_models_is_refused_rows_alone(name):
    with pytest.raises(ValueError, match=f"{name} calls the models"):
        verify(name, [P] * 2, [Q] * 2, [0], seed=0)


@rules_that("width")
def test_a_rule_for_a_number_of_siblings_is_refused_others(name):
    widths = (RULES[name].width + 1,)
    with pytest.raises(ValueError, match=f"{name} verifies {RULES[name].width} siblings"):
        deviation(name, P3, Q3, shape=widths, length=1)


@rules_that("any_draft", among=WALKS_TREES)
def test_of_equal_siblings_the_first_is_followed(name):
    zero, one, two = one_hot(3)
    root = tree([zero, one, two], [None] * 3, [0, 0], [0, 0])
    assert after(RULES[name], root) == {(0, 1): 1}


@pytest.mark.parametrize("name", [name for name in WALKS_TREES if not RULES[name].own_drafts])
def test_the_order_of_siblings_matters_where_that_is_declared(name):
    rule, moved = RULES[name], False
    pairs = itertools.product(targets(name, POSITIVE) or one_hot(3), POSITIVE)
    for p, q in pairs:
        for x, y in itertools.permutations(range(3), 2):
            there, back = (
                after(rule, tree([p] * 3, [q] * 3, order, [0, 0])) for order in ((x, y), (y, x))
            )
            moved = moved or there != back
    assert moved == rule.sibling_order_matters


@pytest.mark.parametrize("name", [name for name in FROM_ROWS if not RULES[name].own_drafts])
def test_the_draft_law_is_read_where_that_is_declared_and_nowhere_else(name):
    rule = RULES[name]
    p = target_of(name, one_hot(3)[1], P3(()))
    laws = [after(rule, chain([p] * 2, [q] * 2, [2])) for q in POSITIVE]
    assert any(law_ != laws[0] for law_ in laws) == rule.drafts_from_q
    if not rule.drafts_from_q:
        assert after(rule, chain([p] * 2, [None] * 2, [2])) == laws[0]


@rules_that("drafts_from_q", among=FROM_ROWS)
def test_a_draft_that_q_cannot_have_proposed_is_refused(name):
    with pytest.raises(ValueError, match=r"q_rows\[0\]\[2\] = 0, so drafts\[0\] = 2 cannot have"):
        verify(name, [["1/2", 0, "1/2"]] * 2, [["1/2", "1/2", 0]], [2], seed=0)


@rules_that_do_not("drafts_from_q", among=FROM_ROWS)
def test_a_draft_of_any_origin_is_welcome_where_q_is_not_read(name):
    done = verify(name, [[0, 0, 1]] * 2, [["1/2", "1/2", 0]], [2], seed=0)
    assert set(done.emitted) == {2}


@rules_that("one_hot_target")
def test_outside_its_domain_a_rule_is_lossy(name):
    assert deviation(name, P3, Q3, shape=1, length=2) > 0


P = as_law(["1/2", "3/10", "1/5"])
Q = as_law(["3/5", "1/10", "3/10"])


def test_the_first_token_is_accepted_with_one_minus_total_variation(record_property):
    for p, q in itertools.product(GRID, GRID):
        out = round_law(RULES["token"], same(p), same(q), 1)
        assert sum(mass for text, mass in out.items() if len(text) == 2) == 1 - tv(p, q)
    record_property("cases", len(GRID) ** 2)


def test_worked_example_accepted_mass_and_correction_make_up_the_target():
    def program(choose):
        root = with_replacement(same(P), same(Q), 1, choose, ())
        emitted = RULES["token"].verify(root, choose)
        return emitted[0], len(emitted) == 2

    out = law(program)
    accepted = [out.get((x, True), 0) for x in range(3)]
    corrected = [out.get((x, False), 0) for x in range(3)]
    assert accepted == [F(1, 2), F(1, 10), F(1, 5)]
    assert sum(accepted) == F(4, 5)
    assert excess(P, Q) == (0, 1, 0)
    assert corrected == [0, F(1, 5), 0]
    assert [a + c for a, c in zip(accepted, corrected, strict=True)] == list(P)


def steps(done):
    """Return what a round did: (kind, chances, outcome, index of the node or None)."""
    return [
        (step.kind, step.weights, step.outcome, None if step.at is None else step.at.index)
        for step in done.trace.steps
    ]


def test_worked_example_a_rejection_discards_the_drafts_behind_it():
    draws = [F(7, 10), F(9, 10), F(2, 10), F(2, 10)]
    done = verify("token", [P] * 4, [Q] * 3, [0, 2, 1], uniforms=draws)
    assert done.emitted == (0, 1), "the third draft is token 1 too, and is not it"
    assert done.accepted == 1
    assert steps(done) == [
        ("flip", (F(5, 6),), True, 1),
        ("flip", (F(2, 3),), False, 2),
        ("choose", (0, 1, 0), 1, None),
    ]


@pytest.mark.parametrize("u", [0, F(1, 2), 1 - TINY])
def test_worked_example_equal_laws_form_no_residual(u):
    done = verify("token", [P] * 4, [P] * 3, [0, 2, 1], uniforms=[u] * 4)
    assert done.emitted[:3] == (0, 2, 1)
    assert steps(done)[:3] == [("flip", (1,), True, at) for at in (1, 2, 3)]
    assert steps(done)[3][:2] == ("choose", P), "the bonus is the target's own"


def test_worked_example_after_three_acceptances_the_target_draws_the_bonus():
    row = as_law([0, 0, 1])
    draws = [F(7, 10), F(1, 10), F(99, 100), F(99, 100)]
    done = verify("token", [P, P, P, row], [Q] * 3, [0, 2, 1], uniforms=draws)
    assert done.emitted == (0, 2, 1, 2)
    assert done.accepted == 3
    assert steps(done)[2:] == [("flip", (1,), True, 3), ("choose", (0, 0, 1), 2, None)]


def coin_pair(tenths):
    """Return the pair p = Ber(1/4), q = Ber(tenths/10)."""
    return normalise([3, 1]), normalise([10 - tenths, tenths])


ACCEPTED = [
    # rule, pair, shape, E[tau]; Leviathan et al. 2023, Eq. 1
    ("token", A, 1, "2/3"), ("token", A, 2, "10/9"),
    ("token", A, 3, "38/27"), ("token", A, 4, "130/81"),
    ("token", B, 1, "3/5"), ("token", B, 2, "24/25"),
    ("token", B, 3, "147/125"), ("token", B, 4, "816/625"),
    # Sun et al. 2024, example of section 2
    ("token", TOY2, 1, "2/3"), ("token", TOY2, 2, "10/9"), ("token", TOY2, 3, "38/27"),
    # certain drafts: sum of the target's probabilities of the prefixes
    ("one_hot", B, 3, "31/125"),
    # sample-and-match: sum p q
    ("match", A, 1, "5/18"), ("match", B, 1, "7/25"),
    # several drafts at one position
    ("rrs_with", A, (2,), "13/18"), ("rrs_with", A, (3,), "83/108"),
    ("rrs_with", B, (2,), "19/25"), ("rrs_with", B, (3,), "207/250"),
    ("rrs_without", A, (2,), "7/9"), ("rrs_without", A, (3,), "1"),
    ("rrs_without", B, (2,), "9/10"), ("rrs_without", B, (3,), "1"),
    ("target_only", A, (2,), "1/2"), ("target_only", A, (3,), "1"),
    ("target_only", B, (2,), "7/10"), ("target_only", B, (3,), "1"),
    # two levels of two
    ("rrs_with", A, (2, 2), "403/324"), ("rrs_with", B, (2, 2), "836/625"),
    ("rrs_without", A, (2, 2), "112/81"), ("rrs_without", B, (2, 2), "171/100"),
    ("target_only", B, (2, 2), "119/100"),
    # SpecTr's Bernoulli setting
    ("rrs_with", coin_pair(1), (2,), "173/200"), ("rrs_with", coin_pair(3), (2,), "197/200"),
    ("rrs_with", coin_pair(5), (2,), "7/8"), ("rrs_with", coin_pair(7), (2,), "137/200"),
    ("rrs_with", coin_pair(9), (2,), "83/200"),
    *(("rrs_without", coin_pair(tenths), (2,), "1") for tenths in (1, 3, 5, 7, 9)),
    # Chen et al. 2024 (Sequoia), appendix F.3
    ("rrs_with", ((F(1), F(0)), (F(1, 2), F(1, 2))), (2,), "3/4"),
    ("rrs_without", ((F(1), F(0)), (F(1, 2), F(1, 2))), (2,), "1"),
    ("target_only", (normalise([3, 2]),) * 2, (1,), "3/5"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "pair", "shape", "accepted"), ACCEPTED)
def test_the_mean_number_of_accepted_tokens_is_the_known_one(rule, pair, shape, accepted):
    assert expected_accepted(rule, *pair, shape) == F(accepted)


def test_residuals_of_the_standard_pairs():
    assert excess(*A) == (1, 0, 0)
    assert excess(*B) == (F(3, 4), F(1, 4), 0)


def test_looking_up_the_targets_draw_among_independent_siblings_is_the_weaker_rule():
    lookup = replace(RULES["target_only"], draft=with_replacement)
    assert expected_accepted(lookup, *B, (2,)) == F(57, 125)
    for p, q in itertools.product(GRID, GRID):
        assert expected_accepted(lookup, p, q, (2,)) <= expected_accepted("rrs_with", p, q, (2,))


@pytest.mark.parametrize(
    ("rule", "shape", "loss"), [("token", 1, "2/15"), ("rrs_with", (2,), "3/10")]
)
def test_the_likeliest_drafts_with_a_soft_draft_law_are_lossy(rule, shape, loss):
    wrong = replace(RULES[rule], draft=likeliest)
    assert deviation(wrong, same(B[0]), same(B[1]), shape=shape, length=1) == F(loss)


@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_tokens_per_round_follow_the_geometric_formula(gamma):
    for p, q in (A, B, TOY2):
        rate = 1 - tv(p, q)
        emitted = 1 + expected_accepted("token", p, q, gamma)
        assert emitted == (1 - rate ** (gamma + 1)) / (1 - rate)


def test_the_target_alone_draws_its_own_law():
    assert target_law(P3, 2) == {
        (x, y): P3(())[x] * P3((x,))[y] for x in range(3) for y in range(3) if P3((x,))[y]
    }
