"""The call: what is refused before it runs, and what a status says behind it."""

import pytest

torch = pytest.importorskip("torch")

from gpu_impl import (  # noqa: E402
    RULES,
    Decision,
    DraftLogits,
    DraftProbs,
    Lenience,
    OneHot,
    Parameters,
    Seeds,
    Status,
    Terminal,
    Thresholds,
    Uniforms,
    Workspace,
    verify,
)
from specref import verify as exact  # noqa: E402
from specref.logits import PRESETS  # noqa: E402

V = 4
INF, NAN = float("inf"), float("nan")
FLAT = [0.0] * V
NEED_Q = ("token", "block", "rrs_with", "rrs_without")


def _call(p, q, tokens, *, u=0.5, last=0.5, **more):
    """Verify one request."""
    rows = len(p)
    more = {"trace": True, "logprobs": True} | more
    coins = torch.full((rows,), float(u), dtype=torch.float64)
    if not isinstance(q, DraftProbs | OneHot | None):
        q = DraftLogits(torch.tensor(q))
    return verify(
        torch.tensor(p), torch.tensor([-1, *tokens]), torch.tensor([0, rows]), q,
        draws=Uniforms(coins, torch.tensor([float(last)], dtype=torch.float64)), **more,
    )  # fmt: skip


def _emitted(out, row=0):
    return out.tokens[row, : out.counts[row]].tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_placeholder_means_that_nothing_was_drafted_there(rule):
    out = _call([FLAT] * 3, [FLAT] * 3, [-1, 2], rule=rule, last=0.3)
    if rule in ("match", "greedy"):  # the draw at the node is the coin of its first child
        assert _emitted(out) == ([2] if rule == "match" else [0])
    else:
        assert _emitted(out) == [1]
        assert out.terminal[0] == Terminal.TARGET
    assert out.status[0] == 0
    assert out.trace.tests.tolist() == [Decision.UNTESTED] * 3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("token", [V, V + 3, -2, 2**31 - 1])
def test_a_token_outside_the_vocabulary_is_not_drafted_and_flagged(rule, token):
    out = _call([FLAT] * 2, [FLAT] * 2, [token], rule=rule, last=0.3)
    assert out.status[0] == Status.BAD_TOKEN
    assert out.counts[0] == 1
    assert 0 <= _emitted(out)[0] < V


@pytest.mark.parametrize("rule", NEED_Q)
@pytest.mark.parametrize(
    ("row", "flag"),
    [
        ([0.0, NAN, 0.0, 0.0], Status.BAD_DRAFT),
        ([0.0, INF, 0.0, 0.0], Status.BAD_DRAFT),
        ([-INF] * V, Status.BAD_DRAFT),
        ([0.0, -INF, 0.0, 0.0], Status.ZERO_DRAFT),
    ],
    ids=["NaN", "inf", "nothing", "zero"],
)
def test_a_draft_that_cannot_come_from_its_row_leaves_the_target(rule, row, flag):
    """Whatever the coin, the token is drawn from p itself."""
    for u in (0.0, 0.5, 1 - 2.0**-53):
        for last in (0.1, 0.4, 0.6, 0.9):
            out = _call([FLAT] * 2, [row, FLAT], [1], u=u, last=last, rule=rule)
            assert _emitted(out) == [int(last * V)]
            assert out.status[0] == flag
            assert out.terminal[0] == Terminal.TARGET


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("row", "token"),
    [([0.0, NAN, 3.0, -INF], 2), ([1.0, INF, 0.0, 0.0], 0), ([-INF] * V, 3), ([NAN] * V, 3)],
    ids=["NaN", "inf", "nothing", "all NaN"],
)
def test_a_target_row_that_is_no_law_ends_with_its_likeliest_entry(rule, row, token):
    out = _call([row, FLAT], [FLAT] * 2, [1], rule=rule, fallback=3)
    assert _emitted(out) == [token]
    assert out.status[0] == Status.BAD_TARGET
    assert out.terminal[0] == Terminal.FALLBACK
    assert out.logprobs[0].isnan().all()


@pytest.mark.parametrize("rule", RULES)
def test_a_bad_row_that_is_not_reached_is_not_looked_at(rule):
    """The first token is refused; the row behind it is never needed."""
    p = [[0.0, -INF, -INF, -INF], [NAN] * V, [NAN] * V]
    for lazy in (True, False):
        out = _call(p, [FLAT] * 3, [1, 1], rule=rule, lazy=lazy)
        assert _emitted(out) == [0]
        assert out.status[0] == 0


def test_equal_siblings_drawn_without_replacement_are_flagged():
    p = [[0.0, -5.0, 0.0, 0.0]] + [FLAT] * 3
    out = _call(p, [FLAT] * 4, [1, 1, 2], parents=torch.tensor([-1, 0, 0, 0]), rule="rrs_without")
    assert out.status[0] == Status.EQUAL_SIBLINGS
    assert out.trace.tests.tolist()[1:3] == [Decision.REFUSED, Decision.UNTESTED]


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": torch.tensor([NAN])},
        {"temperature": torch.tensor([-1.0])},
        {"temperature": torch.tensor([5.0]), "preset": "vllm"},
        {"top_p": torch.tensor([1.5])},
        {"top_p": torch.tensor([0.0]), "preset": "vllm"},
        {"top_k": torch.tensor([-3])},
        {"min_p": torch.tensor([NAN])},
    ],
    ids=str,
)
def test_parameters_that_only_the_device_sees_become_a_status(parameters):
    out = _call([[0.0, 2.0, 1.0, 0.0], FLAT], [FLAT] * 2, [0], parameters=Parameters(**parameters))
    assert out.status[0] == Status.BAD_PARAMETERS
    assert _emitted(out) == [1]


@pytest.mark.parametrize("preset", PRESETS)
def test_greedy_requests_mix_with_others(preset):
    """One batch, of which the odd requests have temperature 0."""
    n = 40
    numbers = torch.Generator().manual_seed(3)
    p, q = (torch.randn(2 * n, V, generator=numbers) for _ in range(2))
    tokens = torch.randint(V, (2 * n,), generator=numbers)
    temperature = (torch.arange(n) % 2 == 0).float()
    for rule in RULES:
        out = verify(
            p, tokens, torch.arange(n + 1) * 2, DraftLogits(q),
            draws=Seeds(torch.arange(n), torch.zeros(n).long()), rule=rule,
            parameters=Parameters(temperature=temperature, preset=preset),
        )  # fmt: skip
        best = p.argmax(1).reshape(n, 2)[1::2]
        drafted = tokens.reshape(n, 2)[1::2, 1]
        told = out.tokens[1::2]
        hit = drafted == best[:, 0]
        assert (told[:, 0] == best[:, 0]).all()
        assert (told[hit, 1] == best[hit, 1]).all()
        assert (told[~hit, 1] == -1).all()


def test_an_empty_batch_and_requests_without_drafts():
    whole = torch.zeros(0).long()
    out = verify(
        torch.zeros(0, V), whole, torch.tensor([0]), DraftLogits(torch.zeros(0, V)),
        draws=Seeds(whole, whole),
    )  # fmt: skip
    assert out.tokens.shape == (0, 1)
    three = torch.arange(3)
    for rule in RULES:
        out = verify(
            torch.zeros(3, V), three, torch.arange(4), DraftLogits(torch.zeros(0, V)),
            draws=Seeds(three, three), rule=rule,
        )  # fmt: skip
        assert out.counts.tolist() == [1, 1, 1]
        assert out.terminal.tolist() == [Terminal.BONUS] * 3


def test_certain_drafts_make_the_token_rules_one_hot():
    p = torch.randn(60, V, generator=torch.Generator().manual_seed(5))
    tokens, begin = torch.arange(60) % V, torch.arange(21) * 3
    draws = Seeds(torch.arange(20), torch.arange(20))
    told = [
        verify(p, tokens, begin, OneHot(), draws=draws, rule=rule).tokens
        for rule in ("one_hot", "token", "block")
    ]
    assert torch.equal(told[0], told[1])
    assert torch.equal(told[0], told[2])


def test_with_a_workspace_results_lie_where_they_lay():
    held = Workspace()
    first = _call([FLAT] * 2, [FLAT] * 2, [1], workspace=held)
    before = _emitted(first)
    second = _call([FLAT] * 2, [FLAT] * 2, [1], u=0.9, last=0.9, workspace=held)
    assert first.tokens.data_ptr() == second.tokens.data_ptr()
    assert _emitted(_call([FLAT] * 2, [FLAT] * 2, [1])) == before


def test_columns_behind_the_vocabulary_and_strides_change_nothing():
    numbers = torch.Generator().manual_seed(7)
    p, q = (torch.randn(12, V, generator=numbers) for _ in range(2))
    wide = torch.full((12, 2 * V), NAN)
    wide[:, :V] = p
    tokens, begin = torch.arange(12) % V, torch.tensor([0, 4, 8, 12])
    draws = Seeds(torch.arange(3), torch.arange(3))
    plain = verify(p, tokens, begin, DraftLogits(q), draws=draws)
    padded = verify(wide, tokens, begin, DraftLogits(q), draws=draws, vocab=V)
    assert torch.equal(plain.tokens, padded.tokens)


WHOLE = torch.tensor([0])
WRONG = {
    "rule": ({"rule": "tokens"}, "rule", KeyError),
    "backend": ({"backend": "cuda"}, "backend", KeyError),
    "type of logits": ({"target_logits": torch.zeros(3, V).double()}, "target_logits", ValueError),
    "rows": ({"target_logits": torch.zeros(2, V)}, "target_logits", ValueError),
    "columns": ({"target_logits": torch.zeros(V, 3).T[:3]}, "stride", ValueError),
    "vocab": ({"vocab": V + 1}, "vocab", ValueError),
    "tokens": ({"tokens": torch.zeros(3)}, "tokens", ValueError),
    "begin": ({"cu_nodes": torch.tensor([0, 2])}, "cu_nodes", ValueError),
    "falling": ({"cu_nodes": torch.tensor([0, 3, 3])}, "cu_nodes", ValueError),
    "parents after children": ({"parents": torch.tensor([-1, 2, 0])}, "parents", ValueError),
    "roots": ({"parents": torch.tensor([0, 0, 0])}, "roots", ValueError),
    "tree": ({"parents": torch.tensor([-1, 0, 0])}, "chains", ValueError),
    "depth": ({"max_depth": 1}, "max_depth", ValueError),
    "no draft": ({"draft": None}, "draft", ValueError),
    "certain": ({"draft": OneHot(), "rule": "rrs_with"}, "draft", ValueError),
    "draft rows": ({"draft": DraftLogits(torch.zeros(1, V))}, "draft.logits", ValueError),
    "draft columns": ({"draft": DraftLogits(torch.zeros(3, V - 1))}, "draft.logits", ValueError),
    "draft map": (
        {"draft": DraftLogits(torch.zeros(3, 2), tokens=torch.arange(3))}, "draft.tokens",
        ValueError,
    ),
    "seeds": ({"draws": Seeds(torch.zeros(2).long(), WHOLE)}, "draws.seed", ValueError),
    "uniforms": ({"draws": Uniforms(torch.zeros(3), torch.zeros(1))}, "draws.coins", ValueError),
    "fallback": ({"fallback": V}, "fallback", ValueError),
    "bias": ({"parameters": Parameters(bias=torch.zeros(3, V))}, "bias", ValueError),
    "allowed": ({"parameters": Parameters(allowed=torch.zeros(3, 9).int())}, "allowed", ValueError),
    "column": (
        {"parameters": Parameters(top_p=torch.ones(2))}, "parameters.top_p", ValueError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_before_anything_runs(case):
    change, word, kind = WRONG[case]
    given = {
        "target_logits": torch.zeros(3, V), "tokens": torch.tensor([-1, 0, 1]),
        "cu_nodes": torch.tensor([0, 3]), "draft": DraftLogits(torch.zeros(3, V)),
        "draws": Seeds(WHOLE, WHOLE),
    }  # fmt: skip
    with pytest.raises(kind, match=word):
        verify(**given | change)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": NAN}, "temperature"),
        ({"temperature": 5.0, "preset": "vllm"}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 2.5}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": 0, "preset": "vllm"}, "top_p"),
        ({"min_p": NAN}, "min_p"),
        ({"min_p": 0.1, "preset": "eagle"}, "min_p"),
        ({"bias": torch.zeros(1, V), "preset": "eagle"}, "bias"),
    ],
    ids=str,
)
def test_parameters_that_the_host_sees_are_refused(asked, word):
    with pytest.raises(ValueError, match=word):
        Parameters(**asked)


def test_presets_are_those_of_the_reference():
    for preset in PRESETS:
        assert Parameters(preset=preset).reading.groups
    with pytest.raises(ValueError, match="presets"):
        Parameters(preset="hugging_face")


@pytest.mark.parametrize("loosened", ["lenient", "threshold"])
def test_lossy_rules_are_those_of_the_reference_and_asked_for_by_name(loosened):
    lossy = {"lenient": Lenience(0.5), "threshold": Thresholds(0.75, 0.8)}[loosened]
    rule = {"lenient": "token", "threshold": "target_only"}[loosened]
    n, numbers = 60, torch.Generator().manual_seed(11)
    p, q = (torch.randn(3 * n, V, generator=numbers) for _ in range(2))
    tokens = torch.randint(V, (3 * n,), generator=numbers)
    given = {
        "target_logits": p, "tokens": tokens, "cu_nodes": torch.arange(n + 1) * 3,
        "draft": DraftLogits(q), "draws": Seeds(torch.arange(n), torch.arange(n)), "rule": rule,
    }  # fmt: skip
    out = verify(**given, lossy=lossy)
    laws = [torch.softmax(side.double(), 1).tolist() for side in (p, q)]
    for row in range(n):
        rows = slice(3 * row, 3 * row + 3)
        drafts = tokens[rows][1:].tolist()
        told = exact(loosened, laws[0][rows], laws[1][rows], drafts, seed=row, start=row)
        assert tuple(_emitted(out, row)) == told.emitted
    assert not torch.equal(out.tokens, verify(**given).tokens)
    with pytest.raises(ValueError, match="lossy"):
        verify(**given | {"rule": "match"}, lossy=lossy)
    with pytest.raises(ValueError, match="lenience"):
        Lenience(1.5)


@pytest.mark.parametrize("kind", [DraftProbs, lambda row: DraftLogits(row.log())], ids=["p", "x"])
def test_a_residual_of_a_hundred_millionth_is_not_lost(kind):
    """In single precision 1 - 1 / (1 + 2^-26) is 0; the second sibling would not be tried."""
    p = torch.tensor([[1.0, 0.0]] * 3).log()
    q = torch.tensor([[1.0, 2.0**-26]] * 3)
    for rule in ("rrs_with", "rrs_without"):
        out = verify(
            p, torch.tensor([-1, 1, 0]), torch.tensor([0, 3]), kind(q), rule=rule,
            parents=torch.tensor([-1, 0, 0]),
            draws=Uniforms(torch.tensor([0, 0.5, 0.5]).double(), torch.tensor([0.5]).double()),
        )  # fmt: skip
        assert _emitted(out) == [0, 0]
        assert out.status[0] == 0
