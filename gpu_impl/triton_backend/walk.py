"""Kernels: each request walks from its root to the token that ends it, in one launch."""

import triton
import triton.language as tl

from gpu_impl.triton_backend.arguments import Drafted, Forest
from gpu_impl.triton_backend.codes import (
    ACCEPTED,
    BAD_DRAFT,
    BAD_FOREST,
    BAD_PARAMETERS,
    BAD_TARGET,
    BONUS,
    EMPTY_RESIDUAL,
    FALLBACK,
    REFUSED,
    RESIDUAL,
    TARGET,
    ZERO_DRAFT,
)
from gpu_impl.triton_backend.draws import coin, last
from gpu_impl.triton_backend.laws import law_of, part, temperature_of
from gpu_impl.triton_backend.links import NODES, bounds, draft_row, following
from gpu_impl.triton_backend.residual import Place, draw, mass
from gpu_impl.triton_backend.steps import certain, match, ratio, said
from gpu_impl.triton_backend.tiles import blank, choose, mass_of, read, some

RATIO = tl.constexpr(0)
CERTAIN = tl.constexpr(1)
MATCH = tl.constexpr(2)
CHAIN = tl.constexpr(3)

COUNTS = ["nodes", "requests", "deepest", "draft_rows", "fallback", "halvings"]
"""Numbers that change from call to call: kernels are not compiled anew for special ones."""


@triton.jit(do_not_specialize=COUNTS)
def statistics(
    rows, asked, drafted_row, shift, begin, parts, nodes, requests, draft_rows, halvings,
    DRAFT: tl.constexpr, PROBS: tl.constexpr, GREEDY: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum up one block of the rows of ROWS nodes.

    Args:
        rows, asked: of the target, or of the draft if DRAFT.
        drafted_row, shift: see `Drafted`.
        begin: where requests begin.
        parts: is written.
        halvings: log2 of the requests, rounded up.
    """
    slot = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    block = tl.program_id(1)
    live = slot < nodes
    # The request of a node is the last one that begins at or before it.
    request, after = tl.zeros_like(slot), tl.zeros_like(slot) + requests
    for _ in range(halvings):
        middle = (request + after) // 2
        before = tl.load(begin + middle, mask=live, other=0).to(tl.int64) <= slot
        request = tl.where(before, middle, request)
        after = tl.where(before, after, middle)
    row = slot
    if DRAFT:
        zero = tl.zeros_like(slot).to(tl.int32)
        row = draft_row(Drafted(drafted_row, shift, draft_rows), slot, request, zero, live)
    if PROBS:
        scale = tl.full([ROWS], 1.0, tl.float32)
    else:
        _, scale = temperature_of(asked, request, live, GREEDY)
    wanted = live & (row >= 0)
    column = block * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = wanted[:, None] & (column < rows.width)
    x = read(rows, row[:, None], request[:, None], column, inside)
    found = part(x, column, inside, scale, PROBS)
    at = slot * tl.num_programs(1) + block
    tl.store(parts.top + at, found.top, mask=live)
    tl.store(parts.total + at, found.total, mask=live)
    tl.store(parts.best + at, found.best, mask=live)
    tl.store(parts.wrong + at, found.wrong, mask=live)


@triton.jit(do_not_specialize=COUNTS)
def place(tokens, column_of, columns, vocab, BLOCK: tl.constexpr):
    """Write the column of each target token of a smaller draft vocabulary; the rest is -1 already.

    Args:
        tokens: int64 [columns], the target's token of each column.
        column_of: int32 [vocab].
    """
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    token = tl.load(tokens + column, mask=inside, other=-1)
    tl.atomic_max(column_of + token, column, mask=inside & (token >= 0) & (token < vocab))


@triton.jit(do_not_specialize=COUNTS)
def walk(
    target, asked, parts, draft, draft_asked, held, draft_parts, drafted_row, shift, tokens, begin,
    parents, draws, lossy, out, nodes, requests, deepest, draft_rows, fallback,
    ENGINE: tl.constexpr, WITHOUT: tl.constexpr, PROBS: tl.constexpr, GREEDY: tl.constexpr,
    FILTERS: tl.constexpr, READING: tl.constexpr, DRAFT_FILTERS: tl.constexpr,
    DRAFT_READING: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Verify ROWS requests.

    Args:
        target, asked, parts: `Rows`, `Asked`, and `Parts` if `statistics` ran.
        draft, draft_asked, held, draft_parts: the same of the draft, and its `Laws` if known. Of
            rules that do not look at it, fields and bundles are None.
        drafted_row, shift, draft_rows: see `Drafted`.
        tokens, begin, parents, nodes, requests, deepest: see `Forest`.
        draws: `Draws`.
        lossy: what `ratio` or `certain` take, or None.
        out: `Out`.
        fallback: emitted where a row has no finite entry.
        ENGINE: RATIO, CERTAIN, MATCH or CHAIN.
        WITHOUT: whether siblings were drawn without replacement.
        PROBS: whether draft rows are probabilities.
        GREEDY: whether every request counts as one of temperature 0.
        FILTERS, READING: whether filters may act, and how; DRAFT_ the same of the draft.
    """
    forest = Forest(tokens, begin, parents, nodes, requests, deepest)
    drafted = Drafted(drafted_row, shift, draft_rows)
    request = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = request < requests
    base, size, broken = bounds(forest, request, live)
    status = tl.where(broken, BAD_FOREST, 0)
    final_u = last(draws, request, live)
    trace_draws(out, draws, base, size, request, live, final_u)

    zero = tl.zeros([ROWS], tl.int32)
    none = zero < 0
    node, depth, kind = zero, zero, zero + BONUS
    emitted, row = zero - 1, tl.zeros([ROWS], tl.int64) - 1
    first, final = zero - 1, zero - 1
    a, c = tl.full([ROWS], 1.0, tl.float64), tl.zeros([ROWS], tl.float64)
    off = none
    p, q = blank(ROWS), blank(ROWS)
    # What `block` keeps on its way down: the weight of the chain, and the last node that stops it.
    weight, kept, kept_p, kept_q = a, zero, p, q
    alive = live
    while some(alive):
        found = law_of(
            target, asked, None, parts, base + node, request, base + node, alive,
            False, GREEDY, FILTERS, READING, BLOCK,
        )  # fmt: skip
        p = choose(alive, found, p)
        lawless = alive & (p.flaw > 0)
        usable = alive & ~lawless
        child = following(forest, base, size, node, node, usable)
        deep = (child >= 0) & (depth >= deepest)
        status = status | tl.where(deep, BAD_FOREST, 0)
        child = tl.where(deep, -1, child)
        first = tl.where(alive, child, first)
        has = usable & (first >= 0)
        if draft.x is not None:
            found_row = draft_row(drafted, base, request, node, has)
            row = tl.where(alive, found_row, row)
            reads = has & (row >= 0)
            found = law_of(
                draft, draft_asked, held, draft_parts, row, request, base + node, reads,
                PROBS, False, DRAFT_FILTERS, DRAFT_READING, BLOCK,
            )  # fmt: skip
            q = choose(reads, found, q)
            no_draft = has & ((row < 0) | (q.flaw > 0))
            status = status | tl.where(no_draft, BAD_DRAFT, 0)
        at = Place(request, base, node, row, first, first)
        if ENGINE == CHAIN:
            token, fine, flags = said(forest, base, first, has, target.width)
            status = status | flags
            fine = fine & ~no_draft
            share = mass_of(draft, q, row, request, token, fine, PROBS)
            status = status | tl.where(fine & ~(share > 0.0), ZERO_DRAFT, 0)
            goes = fine & (share > 0.0)
            won = mass_of(target, p, base + node, request, token, goes, False)
            u = coin(draws, base, request, node, alive)
            spare = weight * 0.0
            lighter = goes & (weight < 1.0)
            if some(lighter):
                spare = mass(
                    target, p, draft, q, forest, at, weight, a, none, lighter,
                    PROBS, False, BLOCK,
                )  # fmt: skip
            ends = alive & ~goes
            chance = tl.where(
                lighter, spare / (spare + (1.0 - tl.where(lighter, weight, 0.0))), 1.0
            )
            chance = tl.where(ends, weight, chance)
            keeps = alive & ((depth == 0) | (u < chance))
            kept = tl.where(keeps, depth, kept)
            kept_p = choose(keeps, p, kept_p)
            kept_q = choose(keeps, q, kept_q)
            a = tl.where(keeps, tl.where(ends, 1.0, weight), a)
            c = tl.where(keeps, tl.where(ends, 0.0, 1.0), c)
            end = tl.where(lawless, FALLBACK, tl.where(has, TARGET, BONUS))
            kind = tl.where(keeps, tl.where(ends, end, RESIDUAL), kind)
            ratio_ = won / tl.where(goes, share, 1.0)
            weight = tl.where(goes, tl.minimum(weight * ratio_, 1.0), weight)
            taken = first
        else:
            if ENGINE == RATIO:
                step = ratio(
                    target, p, draft, q, forest, size, draws, out, at, no_draft, usable, lossy,
                    WITHOUT, PROBS, BLOCK,
                )  # fmt: skip
            elif ENGINE == CERTAIN:
                step = certain(target, p, forest, size, draws, out, at, usable, lossy)
            else:
                drawn = p.low
                several = usable & ((p.low != p.high) | (p.cut != p.top))
                if not GREEDY:
                    u = tl.where(has, coin(draws, base, request, first, has), final_u)
                    token = draw(
                        target, p, draft, q, forest, at, a, c, none, a, u, several,
                        False, False, BLOCK,
                    )  # fmt: skip
                    drawn = tl.where(several, token, drawn)
                step = match(target, p, forest, size, out, at, drawn, usable)
                emitted = tl.where(usable & (step.taken < 0), drawn, emitted)
            status = status | step.status
            taken, won = step.taken, step.won
            final = tl.where(alive, step.final, final)
            ends = usable & (taken < 0)
            goes = usable & (taken >= 0)
            end = tl.where(has, tl.where(step.tried, RESIDUAL, TARGET), BONUS)
            kind = tl.where(lawless, FALLBACK, tl.where(ends, end, kind))
            c = tl.where(ends, step.c, c)
            off = off | (ends & step.tried)
        write(out, forest, base, request, depth, taken, won, goes)
        depth += goes.to(tl.int32)
        node = tl.where(goes, taken, node)
        alive = goes

    if ENGINE == CHAIN:
        if out.tests is not None:
            trace_block(out, base, depth, kept)
        p, q, depth, node = kept_p, kept_q, kept, kept
        row = draft_row(drafted, base, request, kept, live)
    lawless = live & (kind == FALLBACK)
    status = status | tl.where(lawless & ((p.flaw & 1) > 0), BAD_TARGET, 0)
    status = status | tl.where(lawless & ((p.flaw & 2) > 0), BAD_PARAMETERS, 0)
    likeliest = tl.where(p.best < 0, fallback, p.best)
    emitted = tl.where(lawless, likeliest, emitted)
    asks = live & (emitted < 0)
    if ENGINE != MATCH:
        at = Place(request, base, node, row, first, final)
        partial = asks & ((c > 0.0) | off)
        whole = tl.full([ROWS], 1.0, tl.float64)
        if ENGINE == CHAIN:
            partial = asks & (kind == RESIDUAL)
        if some(partial):
            found_mass = mass(
                target, p, draft, q, forest, at, a, c, off, partial,
                PROBS, ENGINE == CERTAIN, BLOCK,
            )  # fmt: skip
            whole = tl.where(partial, found_mass, whole)
        empty = asks & ~(whole > 0.0)
        status = status | tl.where(empty, EMPTY_RESIDUAL, 0)
        kind = tl.where(empty, TARGET, kind)
        a, c = tl.where(empty, 1.0, a), tl.where(empty, 0.0, c)
        whole = tl.where(empty, 1.0, whole)
        off = off & ~empty
        single = (c == 0.0) & ~off & (p.low == p.high) & (p.cut == p.top)
        emitted = tl.where(asks & single, p.low, emitted)
        asks = asks & ~single
        token = draw(
            target, p, draft, q, forest, at, a, c, off, whole, final_u, asks,
            PROBS, ENGINE == CERTAIN, BLOCK,
        )  # fmt: skip
        emitted = tl.where(asks, tl.where(token < 0, likeliest, token), emitted)
    finish(out, target, p, base + node, request, depth, deepest, emitted, kind, status, live)


@triton.jit
def write(out, forest, base, request, depth, taken, won, goes):
    """Write an accepted node."""
    token = tl.load(forest.tokens + base + taken, mask=goes, other=-1).to(tl.int32)
    at = request * (forest.deepest + 1) + depth
    tl.store(out.tokens + at, token, mask=goes)
    tl.store(out.nodes + request * forest.deepest + depth, taken, mask=goes)
    if out.logprobs is not None:
        found = tl.log(tl.where(won > 0.0, won, 1.0))
        tl.store(out.logprobs + at, found.to(tl.float32), mask=goes & (won > 0.0))
        tl.store(out.logprobs + at, float("-inf"), mask=goes & ~(won > 0.0))


@triton.jit
def finish(out, target, p, row, request, depth, deepest, emitted, kind, status, live):
    """Write the last token, what is told of each request, and pads."""
    # Another thread may write a pad than wrote what it overwrites.
    tl.debug_barrier()
    tl.store(out.counts + request, depth + 1, mask=live)
    tl.store(out.terminal + request, kind, mask=live)
    tl.store(out.status + request, status, mask=live)
    known = live & (kind != FALLBACK)
    token = emitted.to(tl.int64)
    found = mass_of(target, p, row, request, token, known & (emitted >= 0), False)
    found = tl.log(tl.where(found > 0.0, found, 1.0))
    found = tl.where(known, found, float("nan")).to(tl.float32)
    wide = deepest + 1
    for start in range(0, wide, NODES):
        step = start + tl.arange(0, NODES)[None, :]
        after = live[:, None] & (step < wide) & (step >= depth[:, None])
        is_last = step == depth[:, None]
        at = request[:, None] * wide + step
        tl.store(out.tokens + at, tl.where(is_last, emitted[:, None], -1), mask=after)
        at_node = request[:, None] * deepest + step
        tl.store(
            out.nodes + at_node,
            tl.zeros_like(step) - 1 + depth[:, None] * 0,
            mask=after & (step < deepest),
        )
        if out.logprobs is not None:
            value = tl.where(is_last, found[:, None], float("nan"))
            tl.store(out.logprobs + at, value, mask=after)


@triton.jit
def trace_draws(out, draws, base, size, request, live, final_u):
    """Write the draws of all addresses of requests."""
    if out.last is not None:
        tl.store(out.last + request, final_u, mask=live)
        for start in range(0, tl.max(size, 0), NODES):
            node = start + tl.arange(0, NODES)[None, :]
            inside = live[:, None] & (node < size[:, None])
            u = coin(draws, base[:, None], request[:, None], node + size[:, None] * 0, inside)
            tl.store(out.coins + base[:, None] + node, u, mask=inside)


@triton.jit
def trace_block(out, base, depth, kept):
    """Write the tests of chains of `depth` drafts of which `kept` were kept."""
    for start in range(0, tl.max(depth, 0) + 1, NODES):
        node = start + tl.arange(0, NODES)[None, :]
        inside = (node > 0) & (node >= kept[:, None]) & (node <= depth[:, None])
        result = tl.where(node == kept[:, None], ACCEPTED, REFUSED).to(tl.uint8)
        tl.store(out.tests + base[:, None] + node, result, mask=inside)
