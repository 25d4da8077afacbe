"""The judge: every decision of a batch, made again from its tensors alone.

The path that a call reports is followed, and at every step the judge says whether a decision is the
right one: each test from its coin, each draw from where it falls among the exact weights, each
status bit, kind of end, node and logprob. All is float64 with a bound, propagated to first order,
on what a backend's rounding (`gpu_laws`) may do to both sides of a comparison. Inside the bound a
decision counts as *in band* and is not judged; where the kept tokens hang on rounding, what follows
counts as one in band and is *open*. Behind either the judging goes on along the backend's path.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_impl import Decision, Status, Terminal, Verified
from tests.gpu_cases import Made
from tests.gpu_laws import U, levels

EPS = 2.0**-44
"""What float64 of the judge and of the backend may differ by, in sums of up to 2^9 terms."""


@dataclass
class Judged:
    """What was found.

    Attributes:
        decisions: that were looked at, those in band among them.
        in_band: bool [B], requests with a decision in band.
        band: decisions in band.
        wrong: a sentence on each wrong decision.
    """

    in_band: Any
    decisions: int = 0
    band: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(made: Made, out: Verified) -> Judged:
    """Judge a batch that was run with its trace and its logprobs."""
    return _Judge(made, out).run()


class _Judge:
    def __init__(self, made: Made, out: Verified) -> None:
        self.made, self.out = made, out
        self.found = Judged(np.zeros(made.requests, bool))
        self.tokens, self.counts, self.nodes, self.kind, self.status = (
            part.numpy().astype(np.int64)
            for part in (out.tokens, out.counts, out.nodes, out.terminal, out.status)
        )
        assert out.trace is not None
        self.tests, self.coins, self.last = (part.numpy() for part in out.trace)
        token = made.tokens.numpy().astype(np.int64)
        self.inside = (token >= 0) & (token < made.vocab) & (made.above >= 0)
        self.outside = ((token < -1) | (token >= made.vocab)) & (made.above >= 0)
        self.token = np.where(self.inside, token, 0)
        self.testable = self.inside.copy()
        self._drafted()
        self.path = self._path()
        self.open = np.zeros(made.requests, bool)
        self.must = np.zeros(made.requests, np.int64)
        self.may = np.zeros(made.requests, np.int64)

    def _drafted(self) -> None:
        """Say of each node whether it can have been drafted."""
        made = self.made
        up = np.maximum(made.above, 0)
        nodes = len(self.token)
        self.no_q = np.zeros(nodes, bool)
        self.zero, self.equal = self.no_q.copy(), self.no_q.copy()
        kids = made.kids[up]
        same = (kids >= 0) & self.inside[kids] & (self.token[kids] == self.token[:, None])
        before = np.arange(kids.shape[1]) < made.rank[:, None]
        again = self.inside & (same & before).any(1)
        if made.q is not None:
            self.no_q = (made.above >= 0) & (made.q.bad[up] | made.q.lawless[up])
            self.zero = self.inside & ~self.no_q & (made.q.p[up, self.token] == 0)
        if made.rule == "rrs_without":
            self.equal = again
        self.testable &= ~(self.no_q | self.zero | self.equal)
        if made.rule in ("target_only", "match", "greedy"):
            self.testable &= ~again

    def _path(self) -> Any:
        """Return the nodes that a request came through, as rows [B, depth + 1], -1 behind."""
        made, depth = self.made, self.nodes.shape[1]
        on = np.arange(depth) < (self.counts - 1)[:, None]
        self._check((self.counts >= 1) & (self.counts <= depth + 1), "counts out of range")
        self._check(((self.nodes >= 0) == on).all(1), "nodes are not padded behind counts")
        behind = np.arange(depth + 1) >= self.counts[:, None]
        self._check(((self.tokens == -1) == behind).all(1), "tokens are not padded behind counts")
        rows = np.where(on, made.starts[:, None] + self.nodes, -1)
        path = np.concatenate([made.starts[:, None], rows], 1)
        for d in range(depth):
            here = on[:, d]
            child = np.where(here, path[:, d + 1], 0)
            fine = (child < len(self.token)) & (child >= 0)
            child = np.where(fine, child, 0)
            fine &= (made.above[child] == path[:, d]) & (self.tokens[:, d] == self.token[child])
            self._check(~here | (fine & self.testable[child]), f"no path at depth {d}")
        return path

    def _check(self, holds: Any, text: str) -> None:
        holds = np.broadcast_to(holds, (self.made.requests,))
        for b in np.flatnonzero(~holds)[:3]:
            self.found.wrong.append(f"{self.made.rule}, request {b}: {text}")

    def run(self) -> Judged:
        """Judge everything."""
        if self.found.wrong:
            return self.found  # there is no path to follow
        made = self.made
        self._draws()
        walk = {"block": self._block, "match": self._match, "greedy": self._match}
        walk |= {"one_hot": self._certain, "target_only": self._certain}
        walk.get(made.rule, self._ratio)()
        self._bits()
        self._logprobs()
        return self.found

    # Decisions

    def _test(self, b: Any, value: Any, bound: Any, took: Any, text: str, off: Any) -> Any:
        """Judge tests of requests b: passed iff value < bound; return those in band.

        Args:
            off: how far their difference may be off.
        """
        near = np.abs(bound - value) <= off
        wrong = ~near & ((value < bound) != took)
        self._count(b, near)
        for at in np.flatnonzero(wrong)[:3]:
            self.found.wrong.append(
                f"{self.made.rule}, request {b[at]}: {text}: {value[at]!r} < {bound[at]!r} is "
                f"{not took[at]}, off by at most {off[at]:g}"
            )
        return near

    def _count(self, b: Any, near: Any) -> None:
        self.found.decisions += len(b)
        self.found.band += int(near.sum())
        self.found.in_band[b[near]] = True

    def _draw(self, b: Any, weights: Any, off: Any, u: Any, y: Any, text: str) -> None:
        """Judge draws: the token y lies where u falls among the weights [n, V]."""
        if not len(b):
            return
        at = np.arange(len(b))
        cumulative = np.cumsum(weights, 1)
        mass = cumulative[:, -1]
        spot, high = u * mass, cumulative[at, y]
        low = high - weights[at, y]
        err = 2 * off.sum(1) + EPS * mass
        last = mass - high <= EPS * mass
        near = (low > 0) & (np.abs(spot - low) <= err) | (np.abs(spot - high) <= err) & ~last
        none = weights[at, y] <= 0
        near |= none & (off[at, y] > 0) & (spot >= low - err) & (spot <= high + err)
        right = (low <= spot) & ((spot < high) | last) & ~none
        self._count(b, near)
        for i in np.flatnonzero(~near & ~right)[:3]:
            self.found.wrong.append(
                f"{self.made.rule}, request {b[i]}: {text}: token {y[i]} of weights "
                f"{low[i]!r} to {high[i]!r}, but u * mass = {spot[i]!r}, off by {err[i]:g}"
            )

    def _ends(self, b: Any, kind: Terminal, text: str) -> None:
        for i in b[self.kind[b] != int(kind)][:3]:
            self.found.wrong.append(
                f"{self.made.rule}, request {i}: {text} ends as {Terminal(int(self.kind[i])).name}"
            )

    def _seen(self, child: Any, taken: Any) -> None:
        """Judge the trace of a node's children [n, width], of which one was taken or none."""
        there = np.maximum(child, 0)
        can = (child >= 0) & self.testable[there]
        hit = child == taken[:, None]
        before = can & (np.cumsum(hit, 1) == 0)
        self._trace(child[can & hit], Decision.ACCEPTED)
        self._trace(child[before], Decision.REFUSED)
        self._trace(child[(child >= 0) & ~before & ~(can & hit)], Decision.UNTESTED)

    def _trace(self, rows: Any, test: Decision) -> None:
        rows = rows[self.tests[rows] != int(test)][:3]
        for row in rows:
            self.found.wrong.append(
                f"{self.made.rule}, node {row}: traced as {Decision(int(self.tests[row])).name}, "
                f"not {test.name}"
            )

    def _end(self, b: Any, node: Any, weights: Any, off: Any, kind: Any, out: str = "end") -> None:
        """Judge the last draws of requests that end at nodes, unless nothing of them is left."""
        made = self.made
        emptied = self.status[b] & int(Status.EMPTY_RESIDUAL) != 0
        could = weights.sum(1) <= off.sum(1) + EPS
        for i in b[emptied & ~could][:3]:
            self.found.wrong.append(f"{made.rule}, request {i}: EMPTY_RESIDUAL, but mass is left")
        for i in b[~emptied & (weights.max(1) + off.max(1) <= 0)][:3]:
            self.found.wrong.append(f"{made.rule}, request {i}: no mass is left, and no flag")
        # Certain emptiness, as of a law whose tokens are all drafted, is no matter of rounding.
        self._count(b, could & (off.sum(1) > EPS))
        self.may[b[emptied]] |= int(Status.EMPTY_RESIDUAL)
        y = self.tokens[b, self.counts[b] - 1]
        for part, law, error, ends in (
            (~emptied & ~could, weights, off, kind),
            (emptied, made.p.p[node], made.p.off[node], np.full(len(b), int(Terminal.TARGET))),
        ):
            some = np.flatnonzero(part)
            self._draw(b[some], law[some], error[some], self.last[b[some]], y[some], out)
            for i in some[self.kind[b[some]] != ends[some]][:3]:
                self.found.wrong.append(
                    f"{made.rule}, request {b[i]}: ends as {Terminal(int(self.kind[b[i]])).name}, "
                    f"not {Terminal(int(ends[i])).name}"
                )

    def _fallback(self, b: Any, node: Any) -> Any:
        """Judge those of requests whose row is none; return which have a law."""
        made = self.made
        none = made.p.bad[node] | made.p.lawless[node]
        ends, rows = b[none], node[none]
        bad = np.where(made.p.bad[rows], int(Status.BAD_TARGET), 0)
        bad |= np.where(made.p.lawless[rows], int(Status.BAD_PARAMETERS), 0)
        self.must[ends] |= bad
        self._ends(ends, Terminal.FALLBACK, "a row that is no law")
        best = np.where(made.p.best[rows] < 0, made.fallback, made.p.best[rows])
        stop = self.counts[ends] - 1
        wrong = (self.path[ends, np.minimum(stop, self.path.shape[1] - 1)] != rows) | (
            self.tokens[ends, stop] != best
        )
        for i in np.flatnonzero(wrong)[:3]:
            self.found.wrong.append(f"{made.rule}, request {ends[i]}: went on from no law")
        self.found.decisions += len(ends)
        return ~none

    def _opened(self, b: Any, open_: Any) -> Any:
        """Leave requests alone whose kept tokens hang on rounding; return which do not."""
        self._count(b[open_], np.ones(int(open_.sum()), bool))
        self.open[b[open_]] = True
        return ~open_

    def _flagged(self, b: Any, child: Any, sure: Any) -> None:
        """Note what is said of children that were met, for certain or perhaps."""
        there = child >= 0
        child = np.maximum(child, 0)
        flags = {
            Status.BAD_TOKEN: self.outside, Status.BAD_DRAFT: self.no_q,
            Status.ZERO_DRAFT: self.zero, Status.EQUAL_SIBLINGS: self.equal,
        }  # fmt: skip
        many = sum(known[child].astype(int) for known in flags.values())
        for flag, known in flags.items():
            hit = there & known[child]
            np.bitwise_or.at(self.may, b[hit], int(flag))
            hit &= (many == 1) & sure
            hit &= (flag != Status.BAD_DRAFT) | self.inside[child]
            np.bitwise_or.at(self.must, b[hit], int(flag))

    # Walks

    def _nodes(self) -> Any:
        """Yield, depth by depth: the requests that come to a node with a law, it, and the next."""
        made = self.made
        for d in range(self.path.shape[1]):
            b = np.flatnonzero((self.counts > d) & ~self.open)
            node = self.path[b, d]
            fine = self._fallback(b, node)
            b, node = b[fine], node[fine]
            open_ = made.p.open[node].copy()
            if made.q is not None:
                open_ |= made.q.open[node] & (made.kids[node] >= 0).any(1)
            fine = self._opened(b, open_)
            b, node = b[fine], node[fine]
            width = self.path.shape[1]
            yield b, node, self.path[b, d + 1] if d + 1 < width else np.full(len(b), -1)

    def _ratio(self) -> None:
        made = self.made
        assert made.q is not None
        without = made.rule == "rrs_without"
        for b, node, taken in self._nodes():
            p, p_off = made.p.p[node], made.p.off[node]
            q, q_off = made.q.p[node], made.q.off[node]
            n = len(b)
            c, dc, dm, drest = (np.zeros(n) for _ in range(4))
            mass, rest = np.ones(n), np.ones(n)
            done, refused = np.zeros(n, bool), np.zeros(n, bool)
            empty = self.status[b] & int(Status.EMPTY_RESIDUAL) != 0
            for j in range(made.kids.shape[1]):
                child = np.where(done, -1, made.kids[node, j])
                # Where nothing is left of the residual or of q, the rest may not be looked at.
                left = (mass > dm + EPS) & (rest > 4 * drest + EPS)
                self._flagged(b, child, left | ~refused)
                some = np.flatnonzero((child >= 0) & self.testable[np.maximum(child, 0)])
                if not len(some):
                    continue
                rows, x = child[some], self.token[child[some]]
                # A residual that rounding may have emptied ends the tests.
                ended = empty[some] & refused[some] & (taken[some] < 0)
                ended &= self.tests[rows] == int(Decision.UNTESTED)
                ended &= mass[some] <= dm[some] + EPS
                done[some[ended]] = True
                some, rows, x = some[~ended], rows[~ended], x[~ended]
                px, qx = p[some, x], q[some, x]
                step = mass[some] / rest[some]
                dstep = (dm[some] + step * drest[some]) / np.maximum(rest[some] - drest[some], EPS)
                u = self.coins[rows]
                off = p_off[some, x] + (c[some] + u * step) * q_off[some, x]
                off += qx * (dc[some] + u * dstep) + EPS * (px + (c[some] + u * step) * qx)
                off = np.where((px == 0), 0.0, off)
                took = taken[some] == rows
                self._test(
                    b[some], u * step * qx, np.where(px == 0, -1.0, px - c[some] * qx), took,
                    f"the test of node {j} among siblings", off,
                )  # fmt: skip
                done[some[took]] = True
                some, x, step, dstep = some[~took], x[~took], step[~took], dstep[~took]
                refused[some] = True
                c[some] += step
                dc[some] += dstep + EPS
                weights, errors = self._residual(p, q, p_off, q_off, c, dc, some)
                mass[some], dm[some] = weights.sum(1), errors.sum(1) + EPS
                if without:
                    rest[some] -= q[some, x]
                    drest[some] += q_off[some, x] + EPS
                    # What rounding leaves of q says nothing of the drafts that are left.
                    later = made.kids[node[some], j + 1 :]
                    more = ((later >= 0) & self.testable[np.maximum(later, 0)]).any(1)
                    fine = self._opened(b[some], more & (drest[some] * 4 > rest[some]))
                    done[some[~fine]] = True
            told = ~empty & ~self.open[b]
            self._seen(made.kids[node[told]], taken[told])
            last = np.flatnonzero((taken < 0) & ~self.open[b])
            weights, errors = self._residual(p, q, p_off, q_off, c, dc, last)
            self._end(b[last], node[last], weights, errors, self._kinds(node[last], refused[last]))

    @staticmethod
    def _residual(p: Any, q: Any, p_off: Any, q_off: Any, c: Any, dc: Any, some: Any) -> Any:
        """Return max(p - c q, 0) and how far it may be off."""
        factor = c[some, None]
        gap = p[some] - factor * q[some]
        off = p_off[some] + factor * q_off[some] + q[some] * dc[some, None]
        off += EPS * np.where(gap > -off, p[some], 0.0)
        off = np.where((p[some] > 0) & (gap > -off), off, 0.0)
        return np.maximum(gap, 0.0), off

    def _kinds(self, node: Any, refused: Any) -> Any:
        has = (self.made.kids[node] >= 0).any(1)
        kinds = np.where(refused, int(Terminal.RESIDUAL), int(Terminal.TARGET))
        return np.where(has, kinds, int(Terminal.BONUS))

    def _certain(self) -> None:
        made = self.made
        for b, node, taken in self._nodes():
            p, off = made.p.p[node].copy(), made.p.off[node].copy()
            kids = made.kids[node]
            u = self.coins[np.maximum(kids[:, 0], 0)]
            sums, error = np.zeros(len(b)), np.zeros(len(b))
            passed, tried = np.zeros(len(b), bool), np.zeros(len(b), bool)
            for j in range(kids.shape[1]):
                child = kids[:, j]
                self._flagged(b, child, ~passed)
                some = np.flatnonzero((child >= 0) & self.testable[np.maximum(child, 0)])
                x = self.token[child[some]]
                tried[some] = True
                sums[some] += p[some, x]
                error[some] += off[some, x]
                some = some[~passed[some]]
                if not len(some):
                    continue
                took = taken[some] == child[some]
                self._test(b[some], u[some], sums[some], took, f"the coin at sibling {j}",
                           error[some] + EPS * (error[some] > 0))  # fmt: skip
                passed[some[took]] = True
            self._seen(kids, taken)
            last = np.flatnonzero(taken < 0)
            for j in range(kids.shape[1]):
                child = kids[last, j]
                some = (child >= 0) & self.inside[np.maximum(child, 0)]
                x = self.token[child[some]]
                p[last[some], x] = 0.0
                off[last[some], x] = 0.0
            self._end(b[last], node[last], p[last], off[last],
                      self._kinds(node[last], tried[last]))  # fmt: skip

    def _match(self) -> None:
        made = self.made
        for b, node, taken in self._nodes():
            kids = made.kids[node]
            first = kids[:, 0]
            some = np.flatnonzero(first >= 0)
            depth = np.argmax(self.path[b] == node[:, None], 1)
            y = self.tokens[b, depth]
            p, off = made.p.p[node], made.p.off[node]
            self._draw(b[some], p[some], off[some], self.coins[first[some]], y[some], "the draw")
            there = np.maximum(kids, 0)
            hits = (kids >= 0) & self.testable[there] & (self.token[there] == y[:, None])
            child = np.where(hits.any(1), kids[np.arange(len(b)), hits.argmax(1)], -1)
            for i in some[child[some] != taken[some]][:3]:
                self.found.wrong.append(f"match, request {b[i]}: left the child that was drawn")
            for j in range(kids.shape[1]):
                self._flagged(b, kids[:, j], (kids[:, : j + 1] != taken[:, None]).all(1))
            self._seen(kids, taken)
            self._ends(b[some[taken[some] < 0]], Terminal.RESIDUAL, "a draw that is no draft")
            last = np.flatnonzero(first < 0)
            self._end(b[last], node[last], p[last], off[last], self._kinds(node[last], last < 0))

    def _block(self) -> None:
        made = self.made
        assert made.q is not None
        n, most = made.requests, self.path.shape[1]
        every = np.arange(n)
        weight, off = np.ones((n, most)), np.zeros((n, most))
        length, walking, cut = np.zeros(n, int), np.ones(n, bool), np.zeros(n, bool)
        unsure = np.zeros(n, bool)
        node = made.starts.copy()
        for d in range(most - 1):
            child = np.where(walking & ~(made.p.bad | made.p.lawless)[node], made.kids[node, 0], -1)
            has, there = child >= 0, np.maximum(child, 0)
            self._flagged(every, child, self.counts > d)
            fine = has & self.testable[there]
            unsure |= walking & (made.p.open[node] | (has & made.q.open[node]))
            cut |= has & ~fine
            x = self.token[there]
            px, qx = made.p.p[node, x], np.where(fine, made.q.p[node, x], 1.0)
            up = weight[:, d] * px / qx
            # Relative errors add; at 1 the weight is cut, but not surely so for the backend.
            error = off[:, d] * px / qx
            error += weight[:, d] * (made.p.off[node, x] + px / qx * made.q.off[node, x]) / qx
            error += EPS * up
            weight[:, d + 1] = np.where(fine, np.minimum(1.0, up), 0.0)
            off[:, d + 1] = np.where(fine & (up - error < 1), error, 0.0)
            length += fine
            walking = fine
            node = np.where(fine, there, node)
        unsure |= walking & made.p.open[node]
        self._opened(every, unsure)
        rows = made.starts[:, None] + np.minimum(np.arange(most), length[:, None])
        kept = self.counts - 1
        self._check((kept <= length) | self.open, "accepted what was not drafted")
        for d in range(most - 1, -1, -1):
            b = np.flatnonzero(~self.open & (length >= d) & (kept <= d) & (kept <= length))
            here = rows[b, d]
            whole = length[b] == d
            factor, error = weight[b, d], off[b, d]
            wanted = np.maximum(factor[:, None] * made.p.p[here] - made.q.p[here], 0.0)
            wrong = factor[:, None] * made.p.off[here] + made.p.p[here] * error[:, None]
            wrong += made.q.off[here] + EPS * made.p.p[here]
            gap = factor[:, None] * made.p.p[here] - made.q.p[here]
            wrong = np.where((made.p.p[here] > 0) & (gap > -wrong), wrong, 0.0)
            if d:
                spare, spare_off = wanted.sum(1), wrong.sum(1)
                under = spare + 1 - factor
                under_off = spare_off + error
                with np.errstate(invalid="ignore", divide="ignore"):
                    chance = np.where(factor == 1, 1.0, spare / under)
                    chance_off = (spare_off + chance * under_off) / (under - under_off)
                chance_off = np.where(under > 2 * under_off, chance_off, 1.0)
                chance_off = np.where((factor == 1) & (error == 0), 0.0, chance_off)
                chance = np.where(whole, factor, chance)
                chance_off = np.where(whole, error, chance_off) + EPS
                took = kept[b] == d
                self._test(b, self.coins[here], np.nan_to_num(chance, nan=1.0), took,
                           f"the coin of node {d} of the block", chance_off)  # fmt: skip
                self._trace(here[took], Decision.ACCEPTED)
                self._trace(here[~took], Decision.REFUSED)
            ends = np.flatnonzero(kept[b] == d)
            all_ = ends[whole[ends]]
            fine = self._fallback(b[all_], here[all_])
            all_ = all_[fine]
            kinds = np.where(cut[b], int(Terminal.TARGET), int(Terminal.BONUS))
            self._end(b[all_], here[all_], made.p.p[here[all_]], made.p.off[here[all_]],
                      kinds[all_])  # fmt: skip
            less = ends[~whole[ends]]
            self._end(b[less], here[less], wanted[less], wrong[less],
                      np.full(len(less), int(Terminal.RESIDUAL)))  # fmt: skip

    # What else is returned

    def _draws(self) -> None:
        made, draws = self.made, self.made.draws
        below = made.above >= 0
        if hasattr(draws, "coins"):
            same = (draws.coins.numpy() == self.coins)[below].all()
            if not (same and (draws.terminal.numpy() == self.last).all()):
                self.found.wrong.append(f"{made.rule}: the trace holds other draws than were given")

    def _bits(self) -> None:
        got = self.status[~self.open]
        must, may = self.must[~self.open], self.must[~self.open] | self.may[~self.open]
        wrong = ((got & must) != must) | ((got & ~may) != 0)
        for i in np.flatnonzero(wrong)[:3]:
            self.found.wrong.append(
                f"{self.made.rule}, request {np.flatnonzero(~self.open)[i]}: status "
                f"{Status(int(got[i]))!r}, not {Status(int(must[i]))!r} to {Status(int(may[i]))!r}"
            )

    def _logprobs(self) -> None:
        assert self.out.logprobs is not None
        made, given = self.made, self.out.logprobs.numpy()
        for d in range(self.path.shape[1]):
            b = np.flatnonzero((self.counts > d) & ~self.open)
            node, x, got = self.path[b, d], self.tokens[b, d], given[b, d]
            none = (self.kind[b] == int(Terminal.FALLBACK)) & (self.counts[b] == d + 1)
            p, off = made.p.p[node, x], made.p.off[node, x]
            with np.errstate(divide="ignore", invalid="ignore"):
                exact = np.log(p)
                reach = off / p + 4 * U * (1 + np.abs(exact)) + U * levels(made.vocab)
                wrong = ~(np.abs(got - exact) <= reach) & ~made.p.open[node]
            wrong = np.where(none, ~np.isnan(got), wrong)
            for i in np.flatnonzero(wrong)[:3]:
                self.found.wrong.append(
                    f"{made.rule}, request {b[i]}: logprob {got[i]!r} of token {d}, "
                    f"not {exact[i]!r}"
                )
