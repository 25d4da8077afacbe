"""Drafting in gpu_impl: the laws and the addresses of the reference."""

import pytest

torch = pytest.importorskip("torch")

from gpu_impl import DraftLogits, Parameters, Seeds, draft, verify  # noqa: E402
from gpu_impl.draws import philox  # noqa: E402
from gpu_impl.laws import Laws  # noqa: E402
from specref import philox as reference  # noqa: E402
from specref import verify as exact  # noqa: E402
from specref.choice import Seeded  # noqa: E402
from specref.dist import normalise, rational  # noqa: E402
from specref.draft import with_replacement, without_replacement  # noqa: E402
from specref.model import Table  # noqa: E402

V = 5


def _logits(rows, seed=0):
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed))


def test_draws_are_those_of_the_reference_at_every_address():
    numbers = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**63), 2**63 - 1, (60, 2), generator=numbers)
    nodes = torch.randint(0, 2**32, (60,), generator=numbers)
    for domain in reference.Domain:
        drawn = philox(words[:, 0], words[:, 1], nodes, domain)
        for row, u in enumerate(drawn.tolist()):
            seed, start = (int(word) % 2**64 for word in words[row])
            assert u == reference.uniform(seed, start, int(nodes[row]), domain)


@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
def test_siblings_are_those_that_the_reference_draws(replacement):
    rows, width = 200, 3
    logits = _logits(rows)
    seeds = Seeds(torch.arange(rows) * 977, torch.arange(rows) * 3)
    drawn = draft(logits, seeds, torch.ones(rows).long(), width=width, replacement=replacement)
    grow = with_replacement if replacement else without_replacement
    for row in range(rows):
        law = normalise([rational(x) for x in torch.softmax(logits[row].double(), 0).tolist()])
        model = Table({(): law}, order=0)
        root = grow(model, model, (width,), Seeded(row * 977, row * 3), ())
        assert drawn.tokens[row].tolist() == [x for x, _ in root.children], row


def test_a_round_drafted_and_verified_by_seeds_is_that_of_the_reference():
    """Two drafts under a temperature; every draw is addressed, none injected."""
    requests, gamma = 300, 2
    asked = Parameters(temperature=0.7, preset="transformers")
    p, q = _logits(requests * (gamma + 1), 1), _logits(requests * gamma, 2)
    seeds = Seeds(torch.arange(requests) + 5, torch.arange(requests) * 11)
    q = q.reshape(requests, gamma, V)
    drawn = [
        draft(q[:, at], seeds, torch.full((requests,), at + 1), parameters=asked)
        for at in range(gamma)
    ]
    tokens = torch.cat([torch.full((requests, 1), -1), *(one.tokens for one in drawn)], 1)
    given = DraftLogits(q.flatten(0, 1), asked, laws=Laws.of_chains([one.laws for one in drawn]))
    begin = torch.arange(requests + 1) * (gamma + 1)
    out = verify(p, tokens.flatten(), begin, given, draws=seeds, parameters=asked)
    fresh = verify(
        p, tokens.flatten(), begin, DraftLogits(q.flatten(0, 1), asked), draws=seeds,
        parameters=asked,
    )  # fmt: skip
    assert torch.equal(out.tokens, fresh.tokens)
    laws = [torch.softmax(side.double() / 0.7, -1).tolist() for side in (p, q.flatten(0, 1))]
    for row in range(requests):
        p_rows = laws[0][row * (gamma + 1) : (row + 1) * (gamma + 1)]
        q_rows = laws[1][row * gamma : (row + 1) * gamma]
        drafts = tokens[row, 1:].tolist()
        told = exact("token", p_rows, q_rows, drafts, seed=row + 5, start=row * 11)
        assert tuple(out.tokens[row, : out.counts[row]].tolist()) == told.emitted


def test_drafts_run_out_without_replacement_and_rows_that_are_no_laws_draft_nothing():
    logits = torch.tensor([[0.0, 1.0, -torch.inf], [torch.nan, 0.0, 0.0]])
    seeds = Seeds(torch.tensor([1, 2]), torch.tensor([0, 0]))
    drawn = draft(logits, seeds, torch.tensor([1, 1]), width=3, replacement=False)
    assert sorted(drawn.tokens[0].tolist()) == [-1, 0, 1]
    assert drawn.tokens[0, 2] == -1
    assert drawn.tokens[1].tolist() == [-1] * 3


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"width": 0}, "width"),
        ({"logits": torch.zeros(2)}, "logits"),
        ({"first": torch.zeros(2)}, "first"),
        ({"draws": Seeds(torch.zeros(2), torch.zeros(2).long())}, "draws.seed"),
    ],
    ids=["width", "logits", "first", "seed"],
)
def test_what_is_wrong_is_named(change, word):
    whole = torch.zeros(2).long()
    given = {"logits": torch.zeros(2, 3), "draws": Seeds(whole, whole), "first": whole} | change
    with pytest.raises(ValueError, match=word):
        draft(**given)
