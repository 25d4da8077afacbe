"""One round of a batch: every request walks from its root to the token that ends it.

All rules are four walks, and all of their residuals are one family, max(a p - c q, 0):

- `_Ratio`, recursive rejection. Its j-th residual is norm((p - c_j q)+) with c_0 = 0 and
  c_{j+1} = c_j + M_j / Q_j, where M_j is the mass of (p - c_j q)+ and Q_j what is left of q after
  the refused siblings, if they were drawn without replacement (1 otherwise). A refused sibling has
  no mass in what follows, so none has to be remembered. `token` is the case of one child.
- `_Certain`, drafts of any origin: one coin per node, looked up among the siblings, or else p off
  the siblings. `one_hot` is the case of one child.
- `_Match`: the target draws, and the walk follows the child that it names. `greedy` is the case of
  targets at temperature 0.
- `_Block`, chains: weights down the chain, coins from its end up.

A request is done when it knows the law of its last token; these draws are made together.

On a CPU with a compiler, `round.cpp` does the same, request by request.
"""

from dataclasses import replace
from typing import Any

import torch

from gpu_impl.call import Batch
from gpu_impl.draws import Seeds, philox
from gpu_impl.laws import PLAIN, DraftLogits, DraftProbs, Laws, OneHot
from gpu_impl.lossy import Lenience, Thresholds
from gpu_impl.status import Decision, Status, Terminal
from gpu_impl.torch_backend.links import links
from gpu_impl.torch_backend.rows import Picked, Side, mass_at
from gpu_impl.torch_backend.sides import implementation, side_of
from gpu_impl.verified import Trace, Verified
from specref.philox import Domain


def verify(batch: Batch) -> Verified:
    """Verify a checked batch, see `gpu_impl.verify`."""
    walks = {"block": _Block, "one_hot": _Certain, "target_only": _Certain}
    walks |= {"match": _Match, "greedy": _Match}
    return walks.get(batch.rule, _Ratio)(batch).run()


class _Walk:
    """What is known of each request [B] and node [R] on the way.

    Attributes:
        at: int64 [B], the place of the node that a request has come to.
        depth: int64 [B], accepted nodes.
        done: bool [B], whether the law of the last token is known: max(a p - c q, 0) at `at`, off
            the node's drafts if `off`.
        emitted: int64 [B], the last token where it is known already, -1 where it is to be drawn.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch, self.rows = batch, implementation(batch.logits.device)
        forest, device = batch.forest, batch.logits.device
        requests, nodes = forest.requests, forest.nodes
        self.device, self.vocab = device, batch.logits.shape[1]
        self.looks = device.type == "cpu"  # elsewhere, looking which are done would wait for it
        self.links = links(forest, self.vocab)
        self.target = side_of(
            batch.logits, batch.parameters, requests, greedy=batch.rule == "greedy"
        )
        self.draft = None if isinstance(batch.draft, OneHot) else _draft_side(batch)
        self.known = _blank(nodes, device)
        self.draft_row = self._draft_rows()
        self.draft_known = self._draft_laws()
        self.coins, self.last = self._draws()
        self.at = self.links.root.clone()
        self.depth = torch.zeros(requests, dtype=torch.int64, device=device)
        self.done = torch.zeros(requests, dtype=torch.bool, device=device)
        self.a = torch.ones(requests, dtype=torch.float64, device=device)
        self.c = torch.zeros(requests, dtype=torch.float64, device=device)
        self.off = torch.zeros_like(self.done)
        self.emitted = torch.full_like(self.at, -1)
        self.kind = torch.full_like(self.at, int(Terminal.BONUS))
        self.status = torch.where(self.links.broken, int(Status.BAD_FOREST), 0).int()
        self.tests = torch.zeros(nodes, dtype=torch.uint8, device=device)
        self.path = torch.full((requests, forest.max_depth + 1), -1, device=device)

    def run(self) -> Verified:
        """Walk, draw the last tokens, and return what came out."""
        if not self.batch.lazy:
            self._visit(self._all())
            if self.draft is not None:
                self._visit_drafts(self.some((self.draft_row >= 0) & (self.links.child >= 0)))
        if self.batch.forest.requests:
            self.walk()
            self._end()
        return self._verified()

    def walk(self) -> None:
        """Go down until every request is done; `step` goes on by one node."""
        for _ in range(self.batch.forest.max_depth + 1):
            act = self.some(~self.done)
            if not len(act):
                return
            usable = self.enter(act)
            self.step(act, usable)

    def step(self, act: Any, usable: Any) -> None:
        """Decide at the nodes that some requests have come to."""
        raise NotImplementedError

    def enter(self, act: Any) -> Any:
        """Read the target rows of nodes, end where one is none; return where it is one."""
        node = self.at[act]
        self.path[act, self.depth[act]] = node
        if self.batch.lazy:
            self._visit(node)
        usable = ~(self.known.bad[node] | self.known.lawless[node] | self.done[act])
        self.fall_back(act, ~self.done[act] & ~usable)
        return usable

    def fall_back(self, act: Any, ends: Any) -> None:
        """End some requests with the likeliest entry of a target row that is no law."""
        node = self.at[act]
        self._flag(act, ends & self.known.bad[node], Status.BAD_TARGET)
        self._flag(act, ends & self.known.lawless[node], Status.BAD_PARAMETERS)
        best = self.known.best[node].long()
        best = torch.where(best < 0, self.batch.fallback, best)
        self.emitted[act] = torch.where(ends, best, self.emitted[act])
        self._finish(act, ends, Terminal.FALLBACK)

    def advance(self, act: Any, takes: Any, child: Any) -> None:
        """Go to children: those of the requests that take one."""
        self.at[act] = torch.where(takes, child, self.at[act])
        self.depth[act] += takes

    def drafted(self, child: Any, live: Any, act: Any) -> Any:
        """Return whether children have tokens that can have been drafted, and flag why not."""
        place = child.clamp(min=0)
        there = live & (child >= 0)
        token = self.links.token[place]
        self.status[act] |= torch.where(there, self.links.flags[place], 0)
        return there & (token >= 0), place, token

    def judge(self, place: Any, tested: Any, accepted: Any) -> None:
        """Write tests into the trace."""
        if self.batch.trace:
            result = torch.where(accepted, int(Decision.ACCEPTED), int(Decision.REFUSED)).byte()
            self.tests[place] = torch.where(tested, result, self.tests[place])

    def _finish(self, act: Any, ends: Any, kind: Any) -> None:
        kind = torch.as_tensor(kind, device=self.device)
        self.kind[act] = torch.where(ends, kind, self.kind[act])
        self.done[act] |= ends

    def _flag(self, act: Any, where: Any, status: Status) -> None:
        self.status[act] |= torch.where(where, int(status), 0).int()

    def _all(self) -> Any:
        return torch.arange(self.batch.forest.nodes, device=self.device)

    def some(self, where: Any) -> Any:
        """Return where something holds, to spare the rest its rows; on a device, everywhere."""
        if self.looks:
            return where.nonzero()[:, 0]
        return torch.arange(len(where), device=self.device)

    # Rows

    def targets(self, node: Any) -> tuple[Picked, Laws]:
        """Return the target rows of nodes."""
        return Picked(self.target, node, self.links.request[node], node), _take(self.known, node)

    def drafts(self, node: Any) -> tuple[Picked, Laws]:
        """Return the draft rows of nodes; any row for those that have none."""
        assert self.draft is not None
        row = self.draft_row[node].clamp(min=0)
        picked = Picked(self.draft, row, self.links.request[node], node)
        return picked, _take(self.draft_known, node)

    def masses(self, where: Any, node: Any, a: Any, c: Any) -> Any:
        """Return the mass of max(a p - c q, 0) at nodes: float64 [n], 0 where it is not asked."""
        some, found = self.some(where), torch.zeros_like(a)
        if not len(some):
            return found
        p, q = self.targets(node[some]), self.drafts(node[some])
        return found.scatter(0, some, self.rows.mass(*p, *q, a[some], c[some]))

    def _visit(self, node: Any) -> None:
        if len(node):
            picked = Picked(self.target, node, self.links.request[node], node)
            _put(self.known, node, self.rows.laws(picked))

    def _visit_drafts(self, node: Any) -> None:
        """Read the draft rows of nodes, unless the drafter has."""
        if len(node) and not self._drafter_knows():
            picked, _ = self.drafts(node)
            _put(self.draft_known, node, self.rows.laws(picked))

    def _drafter_knows(self) -> bool:
        return isinstance(self.batch.draft, DraftLogits) and self.batch.draft.laws is not None

    def _draft_laws(self) -> Laws:
        draft = self.batch.draft
        if isinstance(draft, DraftLogits) and draft.laws is not None and len(draft.logits):
            return _take(draft.laws, self.draft_row.clamp(min=0))
        return _blank(self.batch.forest.nodes, self.device)

    def _draft_rows(self) -> Any:
        """Return int64 [R], the draft row of each node, -1 where the batch has none."""
        batch, node = self.batch, self._all()
        if self.draft is None or isinstance(batch.draft, OneHot):
            return node
        draft = batch.draft
        rows = len(draft.probs if isinstance(draft, DraftProbs) else draft.logits)
        if draft.row is not None:
            return torch.where((draft.row < 0) | (draft.row >= rows), -1, draft.row)
        if rows == len(node):
            return node
        return torch.where(self.links.child >= 0, node - self.links.request, -1)

    def _draws(self) -> tuple[Any, Any]:
        draws, at = self.batch.draws, self.links
        if not isinstance(draws, Seeds):
            return draws.coins, draws.terminal
        seed, start = draws.seed[at.request], draws.start[at.request]
        return (
            philox(seed, start, at.local, Domain.COIN),
            philox(draws.seed, draws.start, torch.zeros_like(draws.seed), Domain.TERMINAL),
        )

    # The end

    def _end(self) -> None:
        """Draw the last tokens."""
        act = self.some(self.emitted < 0)
        if not len(act):
            return
        node, u = self.at[act], self.last[act]
        p, p_laws = self.targets(node)
        q, q_laws = self.drafts(node) if self.draft is not None else (None, None)
        out = self._excluded(node, self.off[act])
        token, found = self.rows.draw(p, p_laws, q, q_laws, self.a[act], self.c[act], out, u)
        empty = ~(found > 0)
        some = self.some(empty)
        if len(some):
            p, p_laws = self.targets(node[some])
            one = torch.ones_like(u[some])
            again, _ = self.rows.draw(p, p_laws, None, None, one, 0 * one, None, u[some])
            token = token.scatter(0, some, torch.where(empty[some], again, token[some]))
            unknown = empty & (self.emitted[act] < 0)
            self._flag(act, unknown, Status.EMPTY_RESIDUAL)
            self._finish(act, unknown, Terminal.TARGET)
        self.emitted[act] = torch.where(self.emitted[act] < 0, token.long(), self.emitted[act])

    def _excluded(self, node: Any, off: Any) -> Any:
        """Return the drafts of nodes: int32 [n, width]; None if no rule needs them."""
        if not isinstance(self, _Certain):
            return None
        columns, child = [], self.links.child[node]
        for _ in range(self.batch.forest.max_width):
            place = child.clamp(min=0)
            columns.append(torch.where(off & (child >= 0), self.links.token[place], -1))
            child = torch.where(child >= 0, self.links.sibling[place], -1)
        if not columns:
            return None
        return torch.stack(columns, 1).int()

    def _verified(self) -> Verified:
        forest, take = self.batch.forest, self._take
        width = forest.max_depth + 1
        step = torch.arange(width, device=self.device)
        accepted = step < self.depth[:, None]
        follows = torch.nn.functional.pad(self.path[:, 1:], (0, 1), value=-1)
        after = torch.where(accepted, follows, -1)
        tokens = torch.where(after >= 0, self.links.token[after.clamp(min=0)], -1)
        tokens = torch.where(step == self.depth[:, None], self.emitted[:, None], tokens)
        nodes = torch.where(after >= 0, self.links.local[after.clamp(min=0)], -1)
        return Verified(
            take("tokens", tokens, torch.int32),
            take("counts", self.depth + 1, torch.int32),
            take("nodes", nodes[:, : width - 1], torch.int32),
            take("terminal", self.kind, torch.int32),
            take("status", self.status, torch.int32),
            take("logprobs", self._logprobs(tokens), torch.float32)
            if self.batch.logprobs
            else None,
            Trace(
                take("tests", self.tests, torch.uint8),
                take("coins", self.coins, torch.float64),
                take("last", self.last, torch.float64),
            )
            if self.batch.trace
            else None,
        )

    def _logprobs(self, tokens: Any) -> Any:
        requests, width = tokens.shape
        node = self.path.clamp(min=0).flatten()
        picked, known = self.targets(node)
        found = mass_at(picked, known, tokens.flatten()).log().reshape(requests, width)
        step = torch.arange(width, device=self.device)
        no_law = (self.kind == Terminal.FALLBACK)[:, None] & (step == self.depth[:, None])
        behind = step > self.depth[:, None]
        return found.masked_fill(no_law | behind, torch.nan)

    def _take(self, name: str, value: Any, dtype: Any) -> Any:
        if self.batch.workspace is None:
            return value.to(dtype, copy=True)
        held = self.batch.workspace.take(name, tuple(value.shape), dtype, self.device)
        return held.copy_(value)


class _Ratio(_Walk):
    """token, rrs_with, rrs_without."""

    def step(self, act: Any, usable: Any) -> None:
        batch, without = self.batch, self.batch.rule == "rrs_without"
        node = self.at[act]
        child = torch.where(usable, self.links.child[node], -1)
        p, p_laws = self.targets(node)
        self._read_drafts(node, child >= 0)
        q, q_laws = self.drafts(node)
        no_law = (q_laws.bad | q_laws.lawless | (self.draft_row[node] < 0)) & (child >= 0)
        self._flag(act, no_law, Status.BAD_DRAFT)
        lossy = batch.lossy
        lenience = lossy.lenience if isinstance(lossy, Lenience) else 1.0
        c = torch.zeros_like(self.c[act])
        left, rest, live = c + 1, c + 1, child >= 0
        taken, refused, had = torch.full_like(child, -1), torch.zeros_like(live), child >= 0
        for _ in range(batch.forest.max_width):
            if self.looks and not bool(live.any()):
                break
            fine, place, token = self.drafted(child, live, act)
            fine = fine & ~no_law
            if without:
                equal = fine & self.links.equal[place]
                self._flag(act, equal, Status.EQUAL_SIBLINGS)
                fine = fine & ~equal
            share = mass_at(q, q_laws, token)
            self._flag(act, fine & ~(share > 0), Status.ZERO_DRAFT)
            fine = fine & (share > 0)
            wanted = mass_at(p, p_laws, token) - c * share
            step = left / rest
            accepts = fine & (self.coins[place] * step * share * lenience < wanted)
            self.judge(place, fine, accepts)
            taken = torch.where(accepts, place, taken)
            refuses = fine & ~accepts
            refused = refused | refuses
            c = torch.where(refuses, c + step, c)
            if without:
                rest = torch.where(refuses, rest - share, rest)
            following = torch.where(live & ~accepts, self.links.sibling[place], -1)
            goes_on = refuses & (following >= 0)
            left = torch.where(goes_on, self.masses(goes_on, node, torch.ones_like(c), c), left)
            empty = goes_on & ~(left > 0)
            # What is left of q is nothing, too, if all of its tokens were refused.
            child = torch.where(empty | ~(rest > 0), -1, following)
            live = child >= 0
        self.c[act] = torch.where(usable & (taken < 0), torch.where(refused, c, 0.0), self.c[act])
        ends = usable & (taken < 0)
        kind = torch.where(refused, int(Terminal.RESIDUAL), int(Terminal.TARGET))
        self._finish(act, ends, torch.where(had, kind, int(Terminal.BONUS)))
        self.advance(act, taken >= 0, taken)

    def _read_drafts(self, node: Any, has: Any) -> None:
        if self.batch.lazy:
            self._visit_drafts(node[self.some(has & (self.draft_row[node] >= 0))])


class _Certain(_Walk):
    """one_hot, target_only."""

    def step(self, act: Any, usable: Any) -> None:
        node = self.at[act]
        first = torch.where(usable, self.links.child[node], -1)
        p, p_laws = self.targets(node)
        u = self.coins[first.clamp(min=0)]
        child, sums, lossy = first, torch.zeros_like(u), self.batch.lossy
        taken, tried = torch.full_like(first, -1), torch.zeros_like(usable)
        for _ in range(self.batch.forest.max_width):
            fine, place, token = self.drafted(child, child >= 0, act)
            fine = fine & ~self.links.equal[place]
            tried = tried | fine
            share = mass_at(p, p_laws, token)
            sums = torch.where(fine, sums + share, sums)
            kept = u < sums
            if isinstance(lossy, Thresholds):
                kept = (share > 0) & ((u * lossy.acc < sums) | (share >= lossy.single))
            falls = fine & (taken < 0) & kept
            self.judge(place, fine & ((taken < 0) | falls), falls)
            taken = torch.where(falls, place, taken)
            child = torch.where(child >= 0, self.links.sibling[place], -1)
        ends = usable & (taken < 0)
        self.off[act] |= ends & tried
        kind = torch.where(tried, int(Terminal.RESIDUAL), int(Terminal.TARGET))
        self._finish(act, ends, torch.where(first >= 0, kind, int(Terminal.BONUS)))
        self.advance(act, taken >= 0, taken)


class _Match(_Walk):
    """match, greedy."""

    def step(self, act: Any, usable: Any) -> None:
        node = self.at[act]
        first = torch.where(usable, self.links.child[node], -1)
        leaf = usable & (first < 0)
        self._finish(act, leaf, Terminal.BONUS)
        drawn = self._draw(node, first)
        child, taken = first, torch.full_like(first, -1)
        for _ in range(self.batch.forest.max_width):
            fine, place, token = self.drafted(child, child >= 0, act)
            fine = fine & ~self.links.equal[place]
            hits = fine & (token == drawn)
            self.judge(place, fine & (taken < 0), hits)
            taken = torch.where(hits, place, taken)
            child = torch.where(child >= 0, self.links.sibling[place], -1)
        ends = (first >= 0) & (taken < 0)
        self.emitted[act] = torch.where(ends, drawn, self.emitted[act])
        self._finish(act, ends, Terminal.RESIDUAL)
        self.advance(act, taken >= 0, taken)

    def _draw(self, node: Any, first: Any) -> Any:
        """Draw from the target at nodes that have drafts."""
        some, drawn = self.some(first >= 0), torch.full_like(node, -1)
        if not len(some):
            return drawn
        p, p_laws = self.targets(node[some])
        one, u = torch.ones_like(self.coins[some]), self.coins[first[some].clamp(min=0)]
        token, _ = self.rows.draw(p, p_laws, None, None, one, 0 * one, None, u)
        return drawn.scatter(0, some, token.long())


class _Block(_Walk):
    """block."""

    def walk(self) -> None:
        """Go down the chains for their weights, and up again for their coins."""
        requests, most = self.batch.forest.requests, self.batch.forest.max_depth
        weight = torch.ones(requests, dtype=torch.float64, device=self.device)
        weights = weight[:, None].repeat(1, most + 1)
        nodes = self.links.root[:, None].repeat(1, most + 1)
        length = torch.zeros_like(self.depth)
        cut = torch.zeros_like(self.done)
        walking = torch.ones_like(self.done)
        node = self.links.root
        for step in range(most):
            self._read(node, walking)
            p, p_laws = self.targets(node)
            q, q_laws = self.drafts(node)
            no_p = p_laws.bad | p_laws.lawless
            child = torch.where(walking & ~no_p, self.links.child[node], -1)
            has = child >= 0
            no_q = (q_laws.bad | q_laws.lawless | (self.draft_row[node] < 0)) & has
            every = torch.arange(requests, device=self.device)
            self._flag(every, no_q, Status.BAD_DRAFT)
            fine, place, token = self.drafted(child, has, every)
            share = mass_at(q, q_laws, token)
            fine = fine & ~no_q
            self._flag(every, fine & ~(share > 0), Status.ZERO_DRAFT)
            fine = fine & (share > 0)
            cut = cut | (has & ~fine)
            ratio = mass_at(p, p_laws, token) / torch.where(fine, share, 1.0)
            weight = torch.where(fine, torch.clamp(weight * ratio, max=1.0), weight)
            length, node, walking = length + fine, torch.where(fine, place, node), fine
            weights[:, step + 1] = torch.where(fine, weight, weights[:, step + 1])
            nodes[:, step + 1] = torch.where(fine, place, nodes[:, step + 1])
        self._read(node, walking)
        self._ascend(weights, nodes, length, cut)

    def _read(self, node: Any, walking: Any) -> None:
        if self.batch.lazy:
            node = node[self.some(walking)]
            self._visit(node)
            has = (self.draft_row[node] >= 0) & (self.links.child[node] >= 0)
            self._visit_drafts(node[self.some(has)])

    def _ascend(self, weights: Any, nodes: Any, length: Any, cut: Any) -> None:
        every = torch.arange(len(length), device=self.device)
        for kept in range(self.batch.forest.max_depth, -1, -1):
            node = nodes[:, kept]
            weight = weights[:, kept]
            whole = length == kept
            asked = ~self.done & (length >= kept)
            spare = self.masses(asked & ~whole, node, weight, torch.ones_like(weight))
            chance = torch.where(weight == 1, 1.0, spare / (spare + (1 - weight)))
            chance = torch.where(whole, weight, chance)
            coin = self.coins[node]
            accepts = asked & ((coin < chance) | (kept == 0))
            if kept:
                self.judge(node, asked, accepts)
            self.depth = torch.where(accepts, kept, self.depth)
            self.at = torch.where(accepts, node, self.at)
            self.a = torch.where(accepts & ~whole, weight, self.a)
            self.c = torch.where(accepts & ~whole, 1.0, self.c)
            kind = torch.where(cut, int(Terminal.TARGET), int(Terminal.BONUS))
            self._finish(every, accepts, torch.where(whole, kind, int(Terminal.RESIDUAL)))
        step = torch.arange(nodes.shape[1], device=self.device)
        self.path = torch.where(step <= self.depth[:, None], nodes, -1)
        self.fall_back(every, self.known.bad[self.at] | self.known.lawless[self.at])


def _draft_side(batch: Batch) -> Side:
    draft: Any = batch.draft
    requests = batch.forest.requests
    probs = isinstance(draft, DraftProbs)
    x, parameters = (draft.probs, PLAIN) if probs else (draft.logits, draft.parameters)
    if not len(x):  # batches without drafts still name a row where there is none
        x = x.new_zeros(1, x.shape[1])
    side, place = side_of(x, parameters, requests, probs=probs), None
    if draft.tokens is not None:
        vocab, width = batch.logits.shape[1], len(draft.tokens)
        inside = (draft.tokens >= 0) & (draft.tokens < vocab)
        place = torch.full((vocab + 1,), -1, dtype=torch.int32, device=side.x.device)
        column = torch.arange(width, dtype=torch.int32, device=side.x.device)
        place = place.scatter(0, torch.where(inside, draft.tokens, vocab), column)[:-1]
    return replace(side, place=place)


def _blank(n: int, device: Any) -> Laws:
    single = torch.zeros(n, device=device)
    whole, yes = single.int(), single.bool()
    return Laws(single, single + 1, single.clone(), whole, whole.clone(), single.double() + 1,
                whole.clone(), yes, yes.clone())  # fmt: skip


def _take(laws: Laws, index: Any) -> Laws:
    return Laws(*(column[index] for column in laws))


def _put(laws: Laws, index: Any, found: Laws) -> None:
    for column, value in zip(laws, found, strict=True):
        column[index] = value
