"""Wrong loops deviate as pinned, the honest loop not at all, and no input breaks one."""

from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction as F
from functools import reduce
from itertools import product

import pytest

from specref.choice import Seeded, Uniforms, law
from specref.decode import decode, sequence_law, target_law
from specref.dist import as_fraction, normalise, rational, tv
from specref.draft import Node, Shape, chain, nodes
from specref.faults import FAULTS, Fault, loops
from specref.faults.frame import unroll
from specref.faults.rounds import Round, Shared, draws, exchanging, kind
from specref.model import Context, Model
from specref.rules import RULES
from specref.stops import Stops, Text
from tests.fixtures import C4, P3, Q3, grid, model, same

LOOPS = {name: fault for name, fault in FAULTS.items() if fault.kind == "loop"}
ENDED = {name: fault for name, fault in LOOPS.items() if fault.family != "requests"}


def running(table: Model) -> Model:
    """Return a model that looks at every token of the text: its state runs over all of them."""
    rows = [table(()), *(table((x,)) for x in range(3))]
    return lambda context: rows[reduce(lambda state, x: (3 * state + x + 1) % 4, context, 0)]


P, Q = running(P3), running(Q3)
EOS = Stops(max_tokens=4, eos=2)
SHORT = Stops(max_tokens=3, eos=2)
ALL = Stops(max_tokens=4, eos=2, stop=[(0, 1)], min_tokens=1)

"""Three tokens; all of the text matters, and end, stop sequence, limit and minimum are in reach."""

PINNED: dict[str, tuple[Stops, str]] = {
    "ends_inside_blocks_ignored": (EOS, "7181/26880"),
    "token_behind_accepted_eos": (EOS, "25097/134400"),
    "accepted_eos_redrawn": (SHORT, "479/2450"),
    "limit_overrun": (SHORT, "21559/201600"),
    "limit_keeps_the_tail": (SHORT, "5600831/169344000"),
    "last_row_before_limit_missing": (EOS, "2501/69120"),
    "min_tokens_ignored": (ALL, "1/5"),
    "min_tokens_asked_once_per_round": (ALL, "47/280"),
    "stop_across_rounds_missed": (ALL, "593/1792"),
    "cache_not_rolled_back": (EOS, "8164753/28224000"),
    "cache_rolled_back_too_far": (EOS, "1220987/8064000"),
    "cache_emptied": (EOS, "221293/1612800"),
    "bonus_missing_in_cache": (EOS, "1105/96768"),
    "last_token_not_seen": (EOS, "6397/17920"),
    "tree_path_not_gathered": (EOS, "1339/30240"),
    "tree_rows_by_index": (EOS, "671/1680"),
    "draws_repeated": (EOS, "94653053/719712000"),
    "coins_repeated": (EOS, "17597/163200"),
    "draws_by_position": (EOS, "2063/40800"),
    "coins_as_proposals": (EOS, "1374451/4112640"),
    "correction_as_proposal": (EOS, "21/200"),
    "counter_carried_over": (EOS, "533/8960"),
    "first_token_dropped": (EOS, "265787/1693440"),
    "undrafted_token_from_draft_model": (EOS, "1779079/12096000"),
    "repeated_draft_dropped": (EOS, "23059/268800"),
    "draft_rows_of_first_round": (EOS, "17707/67200"),
    "drafted_without_last_token": (EOS, "6953/71680"),
}


def shape_of(fault: Fault) -> Shape:
    return 2 if RULES[fault.base].shape == "chain" else (2, 2)


@pytest.mark.parametrize("name", ENDED)
def test_every_wrong_loop_deviates_as_pinned(name: str) -> None:
    stops, exact = PINNED[name]
    fault = LOOPS[name]
    assert fault.sequence_deviation(P, Q, shape_of(fault), stops) == F(exact)


def certain(token: Callable[[Context], int], vocab: int = 3) -> Model:
    """Return the model that is certain of a token."""
    return lambda context: normalise([int(x == token(context) % vocab) for x in range(vocab)])


HALF = same(normalise([1, 1]))
COUNT, AHEAD = certain(len), certain(lambda context: len(context) + 1)
FIRST = model((3, 1), (1, 3), (1, 3))
MISLED = certain(lambda context: len(context) * (len(context) < 2))
ODD = certain(lambda context: 1 + sum(context), 2)
ALTERNATE = certain(lambda context: 1 + len(context), 2)
TILTED = same(normalise([3, 2]))

# By hand: the least that shows what the sentence says.
SMALLEST: dict[str, tuple[Model, Model, Shape, Stops, F | int]] = {
    # All drafts are accepted, so an EOS is seen in the last place only: 6 of 8 texts go on.
    "ends_inside_blocks_ignored": (HALF, HALF, 2, Stops(3, eos=1), F(3, 4)),
    # A drafted EOS, one in two, is followed by a bonus.
    "token_behind_accepted_eos": (HALF, HALF, 1, Stops(3, eos=1), F(1, 2)),
    # A drafted EOS, one in two, stays an EOS one time in two.
    "accepted_eos_redrawn": (HALF, HALF, 1, Stops(2, eos=1), F(1, 4)),
    "limit_overrun": (HALF, HALF, 2, Stops(1), 1),
    # (0, 1, 2) becomes (2,).
    "limit_keeps_the_tail": (COUNT, COUNT, 2, Stops(1), 1),
    # (0, 1) becomes (0, 0).
    "last_row_before_limit_missing": (COUNT, COUNT, 1, Stops(2), 1),
    "min_tokens_ignored": (HALF, HALF, 1, Stops(2, eos=1, min_tokens=1), F(1, 2)),
    # Only a draft 0, one in two, is accepted, and then the bonus cannot be EOS.
    "min_tokens_asked_once_per_round": (HALF, HALF, 1, Stops(2, eos=1, min_tokens=1), F(1, 4)),
    # (0, 1) comes in two rounds, so (0, 1, 2) goes on.
    "stop_across_rounds_missed": (COUNT, COUNT, 0, Stops(3, stop=[(0, 1)]), 1),
    # The refused draft counts: behind 0 the target is at 2.
    "cache_not_rolled_back": (COUNT, AHEAD, 1, Stops(2), 1),
    # The second refusal takes the first token away: behind (0, 1) the target is at 1.
    "cache_rolled_back_too_far": (COUNT, AHEAD, 1, Stops(3), 1),
    # Of (0, 1) the target sees 1, and goes on with 1.
    "cache_emptied": (COUNT, AHEAD, 1, Stops(3), 1),
    "bonus_missing_in_cache": (COUNT, COUNT, 1, Stops(3), 1),
    # Behind 0 comes another 0.
    "last_token_not_seen": (COUNT, COUNT, 0, Stops(2), 1),
    # Siblings 0 and 1; 1 is accepted, 0 stays, and the parity of the sum is another.
    "tree_path_not_gathered": (ODD, TILTED, (2,), Stops(3), 1),
    # The row of the second sibling sees two tokens, and says 1 instead of 0.
    "tree_rows_by_index": (ALTERNATE, TILTED, (2,), Stops(2), 1),
    # The second token repeats the first.
    "draws_repeated": (HALF, HALF, 0, Stops(2), F(1, 2)),
    # After a refused 0, one in two, the next 0 is refused for certain.
    "coins_repeated": (HALF, certain(lambda _: 0, 2), 1, Stops(3), F(1, 4)),
    # u < 1/4 drafts 0, which stays; 1/4 <= u < 2/3 drafts a 1 that stays: 0 has 7/12.
    "coins_as_proposals": (HALF, same(normalise([1, 3])), 1, Stops(2), F(1, 12)),
    # 3 is drafted by u >= 1/2, always refused, and the same u never corrects it to 1.
    "correction_as_proposal": (
        same(normalise([2, 1, 1, 0])), same(normalise([1, 0, 0, 1])), 1, Stops(2), F(1, 4)
    ),
    # Behind (0, 1) the wrong draft 0 is refused and kept.
    "counter_carried_over": (COUNT, MISLED, 1, Stops(4), 1),
    "first_token_dropped": (COUNT, COUNT, 1, Stops(2), 1),
    "undrafted_token_from_draft_model": (COUNT, AHEAD, 0, Stops(1), 1),
    # After one refusal in four: 0 is drafted with 1/4 and kept with 2/3, so has 1/6.
    "draft_rows_of_first_round": (HALF, FIRST, 1, Stops(3), F(1, 12)),
    # After one refusal in four: 0 is drafted with 3/4, or corrects one 1 in three, so has 5/6.
    "drafted_without_last_token": (HALF, FIRST, 1, Stops(3), F(1, 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_inputs_of_loops(name: str) -> None:
    p, q, shape, stops, exact = SMALLEST[name]
    assert FAULTS[name].sequence_deviation(p, q, shape, stops) == exact


def test_a_repeated_draft_is_withheld_and_drawn_again() -> None:
    """Behind 0 a drafted 0, one in two, is dropped, and comes back one time in two."""
    fault = FAULTS["repeated_draft_dropped"]
    assert fault.sequence_deviation(HALF, HALF, 1, Stops(2), context=(0,)) == F(1, 4)


HONEST = exchanging("submitted")(lambda now, root: root)


@pytest.mark.parametrize("stops", [EOS, SHORT, ALL], ids=["EOS", "short", "all"])
@pytest.mark.parametrize("rule", ["token", "block", "match", "target_only", "rrs_without"])
def test_the_loop_without_exchanged_parts_is_the_honest_one(rule: str, stops: Stops) -> None:
    shape: Shape = 2 if RULES[rule].shape == "chain" else (2, 1)
    found = sequence_law(rule, P, Q, shape, stops, (1,), loop=HONEST)
    assert found == sequence_law(rule, P, Q, shape, stops, (1,))
    assert found == target_law(P, stops, (1,))


def test_the_loop_without_exchanged_parts_draws_what_the_honest_one_draws() -> None:
    stops = Stops(max_tokens=7, eos=2, stop=[(0, 1)], min_tokens=2)
    for seed in range(40):
        runs = (loop("token", P, Q, 2, stops, Seeded(seed)) for loop in (decode, HONEST))
        assert len(set(runs)) == 1


def test_no_two_loops_have_the_same_law() -> None:
    found = defaultdict(list)
    for name, fault in ENDED.items():
        if shape_of(fault) == 2:
            text_law = sequence_law("token", P, Q, 2, ALL, loop=fault.loop)
            found[frozenset(text_law.items())].append(name)
    honest = frozenset(target_law(P, ALL).items())
    # By token's rule nothing that was looked at is drawn again.
    assert found.pop(honest) == ["draws_by_position"]
    assert all(len(names) == 1 for names in found.values()), found


@pytest.mark.parametrize("name", ["tree_path_not_gathered", "tree_rows_by_index"])
def test_a_linear_tree_hides_what_a_branching_one_shows(name: str) -> None:
    assert LOOPS[name].sequence_deviation(P, Q, (1, 1), EOS) == 0


@pytest.mark.parametrize(
    "name", ["cache_not_rolled_back", "cache_rolled_back_too_far", "cache_emptied"]
)
def test_models_of_the_last_token_hide_what_a_cache_lost_before_it(name: str) -> None:
    assert LOOPS[name].sequence_deviation(P3, Q3, 2, SHORT) == 0


# Loops that look wrong, and are not.


@exchanging("emitted")
def bonus_thrown_away(now: Round, root: Node, out: Text) -> Text:
    full = len(out) == len(nodes(root)) and len(out) > 1
    return out[:-1] if full else out


@exchanging("draft")
def drafted_from_stale_text(now: Round) -> Model:
    return loops.unseen(now)


@exchanging("submitted")
def draft_cut_behind_unlikely_token(now: Round, root: Node) -> Node:
    """Stop drafting behind the first token of draft mass below 1/2: it stays in the draft."""
    rows, tokens = unroll(root)
    sure = [row.q[x] >= F(1, 2) for row, x in zip(rows, tokens, strict=False)]
    kept = [*sure, False].index(False) + 1
    rows = rows[: kept + 1]
    return chain([row.p for row in rows], [row.q for row in rows], tokens[:kept])


@pytest.mark.parametrize(
    "loop", [bonus_thrown_away, drafted_from_stale_text, draft_cut_behind_unlikely_token]
)
def test_loops_that_only_cost_speed_have_the_right_law(loop: Callable[..., Text]) -> None:
    for stops in (EOS, SHORT, ALL):
        assert sequence_law("token", P, Q, 2, stops, loop=loop) == target_law(P, stops)
    differ = (
        loop("token", P, Q, 2, 9, Seeded(s)) != decode("token", P, Q, 2, 9, Seeded(s))
        for s in range(40)
    )
    assert any(differ)


# Draws that are one uniform.


def test_choices_of_one_name_read_one_uniform() -> None:
    """Against the average over a grid that all their pieces are multiples of."""
    grid_ = [F(tick, 60) for tick in range(60)]
    rows = [[rational(w, 60) for w in row] for row in ((7, 0, 33, 20), (60, 0), (13, 29, 18, 0))]

    def program(choose: Shared | Uniforms) -> tuple[int, ...]:
        return (*(choose(row) for row in rows), choose.flip(F(41, 60)))

    seen = Counter(program(Uniforms([u])) for u in grid_)
    found = law(lambda choose: program(Shared(choose, {}, lambda at, refused: "one")))
    assert found == {out: F(count, 60) for out, count in seen.items()}


def marginal(found: dict[Text, F], length: int) -> dict[Text, F]:
    out: defaultdict[Text, F] = defaultdict(F)
    for text, mass in found.items():
        out[text[:length]] += as_fraction(mass)
    return out


def test_draws_keyed_by_position_spoil_block_and_not_token() -> None:
    """On the first two tokens; where drafts alone are keyed so, it is .0109."""
    p, q = C4
    wrong = FAULTS["draws_by_position"].loop
    right = target_law(p, 2)
    found = sequence_law("block", p, q, 2, 4, loop=wrong)
    assert tv(marginal(found, 2), right) == F(2057, 150000)
    assert FAULTS["draws_by_position"].sequence_deviation(p, q, 2, 3) > 0
    assert sequence_law("token", p, q, 2, 3, loop=wrong) == target_law(p, 3)

    @exchanging("draws")
    def proposals_by_position(now: Round) -> Shared:
        start = len(now.here)

        def name(at: object, refused: int | None) -> object:
            index = getattr(at, "index", 0)
            return start + index if kind(at) == "proposal" else (start, kind(at), index)

        return Shared(draws(now), now.known, name)

    found = sequence_law("block", p, q, 2, 4, loop=proposals_by_position)
    assert round(float(tv(marginal(found, 2), right)), 4) == 0.0109


# All inputs.


@pytest.mark.parametrize("fault", LOOPS.values(), ids=LOOPS)
def test_runs_from_a_seed_stay_inside_the_law(fault: Fault) -> None:
    shape = shape_of(fault)
    assert fault.loop is not None
    possible = sequence_law(fault.base, P, Q, shape, SHORT, loop=fault.loop)
    for seed in range(12):
        assert fault.loop(fault.base, P, Q, shape, SHORT, Seeded(seed)) in possible


@pytest.mark.parametrize("fault", LOOPS.values(), ids=LOOPS)
def test_no_pair_of_small_laws_breaks_a_loop(fault: Fault) -> None:
    shape = shape_of(fault)
    for stops in (Stops(2, eos=1), Stops(3, stop=[(0, 0)])):
        for p, q in product(grid(2, 2), repeat=2):
            assert_sound(fault, same(p), same(q), shape, stops)
    for p, q in product(grid(3, 2), repeat=2):
        assert_sound(fault, same(p), same(q), shape, Stops(2, eos=1))


@pytest.mark.parametrize("fault", LOOPS.values(), ids=LOOPS)
def test_no_shape_and_no_limit_breaks_a_loop(fault: Fault) -> None:
    wide = shape_of(fault) != 2
    shapes = ((), (1,), (2, 1, 2)) if wide else (0, 1, 3, lambda text: len(text) % 2)
    limits = [Stops(0, eos=2), Stops(1, eos=[1, 2]), 2, Stops(2, stop=[(0,)], min_tokens=1)]
    for shape, stops in product(shapes, limits):
        assert_sound(fault, P3, Q3, shape, stops)
    assert fault.loop is not None
    # Where every round meets the same draws, a text without EOS repeats for ever.
    limit = 30 if fault.name == "draws_repeated" else None
    for seed in range(3):
        assert fault.loop(fault.base, P3, Q3, shapes[1], Stops(limit, eos=2), Seeded(seed))


def assert_sound(fault: Fault, p: Model, q: Model, shape: object, stops: Stops | int) -> None:
    emitted = sequence_law(fault.base, p, q, shape, stops, loop=fault.loop)
    assert sum(emitted.values()) == 1
    most = stops if isinstance(stops, int) else stops.max_tokens
    assert most is not None
    over = 3 if fault.name == "limit_overrun" and most else 0
    assert all(min(most, 1) <= len(text) <= most + over for text in emitted)


def test_floats_run_too() -> None:
    p, q = (lambda context, m=m: tuple(float(w) for w in m(context)) for m in (P3, Q3))
    for fault in LOOPS.values():
        found = sequence_law(fault.base, p, q, shape_of(fault), 2, loop=fault.loop)
        assert abs(sum(found.values()) - 1) < 1e-12


def test_a_rule_that_is_wrong_deviates_over_whole_texts() -> None:
    assert FAULTS["residual_is_target"].sequence_deviation(P, Q, 2, EOS) > 0
    bonus = FAULTS["filter_on_bonus_only"]
    assert bonus.sequence_deviation(*C4, 1, 2) == bonus.deviation(*C4, shape=1, length=2)


def test_deviations_that_a_fault_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="take sequence_deviation"):
        FAULTS["limit_overrun"].deviation(P, Q, shape=1, length=1)
    with pytest.raises(ValueError, match="take law_deviation"):
        FAULTS["bias_ignored"].deviation(P, Q, shape=1, length=1)
    with pytest.raises(ValueError, match="take law_deviation"):
        FAULTS["bias_ignored"].sequence_deviation(P, Q, 1, 1)
