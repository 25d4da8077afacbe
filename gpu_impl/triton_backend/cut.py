"""The smallest logit that filters keep, and which of the tokens that are equal to it.

No sort: the cut is the largest value at and above which enough tokens, or enough mass, lie. It is
sought between two values, with several trials in each pass over the row. Trials are numbers in the
order of the logits, so that a search ends after a known number of passes; counts are exact, and
masses are sums of one fixed order, so that what is found does not depend on the trials.
"""

import triton
import triton.language as tl

from gpu_impl.triton_backend.tiles import LAST, read, some

TRIALS = tl.constexpr(4)
LEAST = tl.constexpr(-3.4028234663852886e38)


MIN_P = tl.constexpr(0)
TOP_K = tl.constexpr(1)
TOP_P = tl.constexpr(2)
TOTAL = tl.constexpr(3)


@triton.constexpr_function
def says(reading, name):
    """Return an attribute of a reading."""
    return getattr(reading, name)


@triton.constexpr_function
def steps(reading):
    """Return how many filters a reading has; one more step sums up what they kept."""
    return sum(len(group) for group in reading.groups) + 1


@triton.constexpr_function
def kinds(reading):
    """Return the filters in their order, two bits each."""
    code = {"min_p": 0, "top_k": 1, "top_p": 2}
    names = [code[name] for group in reading.groups for name in group] + [3]
    return sum(name << (2 * at) for at, name in enumerate(names))


@triton.constexpr_function
def all_of(reading):
    """Return a bit for each filter: whether it keeps all tokens that are equal to its last."""
    return (int(reading.top_k_all) << 1) | (int(reading.top_p_all) << 2)


@triton.constexpr_function
def hots(reading):
    """Return a bit for each step: whether the temperature has acted before it."""
    pairs = zip(reading.groups, reading.hot, strict=False)
    bits = [hot for group, hot in pairs for _ in group] + [True]
    return sum(int(hot) << at for at, hot in enumerate(bits))


@triton.constexpr_function
def ends(reading):
    """Return a bit for each step: whether the next one looks at what it left."""
    bits = [at == len(group) - 1 for group in reading.groups for at in range(len(group))] + [True]
    return sum(int(bit) << at for at, bit in enumerate(bits))


@triton.jit
def order(x):
    """Return int32 keys in the order of float32 numbers; zeros are equal."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def number(key):
    """Return the float32 number of a key, which may be an int64."""
    bits = key.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def kept_by(x, column, cut, low, high):
    """Whether entries are kept."""
    ties = (column >= low[:, None]) & (column <= high[:, None])
    return (x > cut[:, None]) | ((x == cut[:, None]) & ties)


@triton.jit
def weights(x, column, inside, top, heat, cut, low, high):
    """Return what kept entries weigh: exp((x - top) * heat), float32."""
    kept = kept_by(x, column, cut, low, high)
    return tl.where(inside & kept, tl.exp((x - top[:, None]) * heat[:, None]), 0.0)


@triton.jit
def kept_mass(rows, row, request, live, top, heat, cut, low, high, BLOCK: tl.constexpr):
    """Return the sum of exp((x - top) * heat) over kept tokens, float64 [ROWS]."""
    total = tl.zeros_like(top).to(tl.float64)
    for start in range(0, rows.width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside = live[:, None] & (column < rows.width)
        x = read(rows, row[:, None], request[:, None], column, inside)
        weight = weights(x, column, inside, top, heat, cut, low, high)
        total += tl.sum(weight.to(tl.float64), 1)
    return total


@triton.jit
def search(
    rows, row, request, live, top, heat, cut, low, high, want, counts, exceeds,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the largest value at and above which kept tokens reach what is wanted.

    Args:
        want: float64, a mass; or a number of tokens, if `counts`.
        exceeds: whether they have to exceed it.

    Returns:
        The key of the value, int32 [ROWS], the smallest key if all together do not; and what
        lies above it, float64.
    """
    least = order(tl.maximum(cut, LEAST)).to(tl.int64)
    most = order(top).to(tl.int64)
    above = tl.zeros_like(want)
    trial = tl.arange(0, TRIALS)[None, :]
    passes = 0
    while some(live & (least < most)):
        seek = live & (least < most)
        from_, to = least[:, None], most[:, None]
        if passes == 0:
            # Masses fall off exponentially: steps of 1/4, 1, 4 and 16 of the temperature.
            step = (1 << (2 * trial)).to(tl.float32) * 0.25
            keys = order(tl.maximum(top[:, None] - step / heat[:, None], LEAST)).to(tl.int64)
        elif passes % 2 == 1:
            a, b = number(from_).to(tl.float64), number(to).to(tl.float64)
            middle = a + (b - a) * (trial + 1).to(tl.float64) / (TRIALS + 1)
            keys = order(middle.to(tl.float32)).to(tl.int64)
        else:
            keys = from_ + (to - from_) * (trial + 1) // (TRIALS + 1)
        keys = tl.minimum(tl.maximum(keys, from_ + 1), to)
        sums = tl.zeros_like(keys).to(tl.float64)
        nearest = most.to(tl.int32)
        farthest = least.to(tl.int32)
        bottom = tl.full(nearest.shape, LAST, tl.int32)
        ceiling = -bottom
        for start in range(0, rows.width, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            inside = seek[:, None] & (column < rows.width)
            x = read(rows, row[:, None], request[:, None], column, inside)
            weight = weights(x, column, inside, top, heat, cut, low, high)
            if counts:
                weight = tl.where(
                    inside & (x >= LEAST) & kept_by(x, column, cut, low, high), 1.0, 0.0
                )
            weight = weight.to(tl.float64)
            key = order(x)
            for i in range(TRIALS):
                here = tl.sum(tl.where(trial == i, keys, 0), 1).to(tl.int32)
                part = tl.sum(tl.where(key >= here[:, None], weight, 0.0), 1)
                sums = tl.where(trial == i, sums + part[:, None], sums)
            between = (weight > 0.0) & (key >= farthest[:, None]) & (key <= nearest[:, None])
            bottom = tl.minimum(bottom, tl.min(tl.where(between, key, LAST), 1))
            ceiling = tl.maximum(ceiling, tl.max(tl.where(between, key, -LAST), 1))
        enough = sums >= want[:, None]
        if exceeds:
            enough = sums > want[:, None]
        new_least = tl.max(tl.where(enough, keys, from_), 1)
        new_most = tl.min(tl.where(enough, to, keys - 1), 1)
        over = tl.max(tl.where(enough, 0.0, sums), 1)
        # The value is one that the row has. Of weights that underflow, none may be left to see.
        seen = bottom <= ceiling
        new_least = tl.where(seen, tl.maximum(new_least, bottom.to(tl.int64)), new_least)
        new_most = tl.where(seen, tl.minimum(new_most, ceiling.to(tl.int64)), new_most)
        above = tl.where(seek, tl.maximum(above, over), above)
        least = tl.where(seek, tl.minimum(new_least, new_most), least)
        most = tl.where(seek, new_most, most)
        passes += 1
    return least.to(tl.int32), above


@triton.jit
def tie(
    rows, row, request, live, value, low, high, count, HIGHEST: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the count-th token equal to a value, from low on upwards, or from high on downwards.

    The last of them if there are fewer.
    """
    seen = tl.zeros_like(low)
    found = tl.full(low.shape, -1, tl.int32)
    blocks = tl.cdiv(rows.width, BLOCK)
    done = 0
    while (done < blocks) & some(live & (found < 0)):
        start = (blocks - 1 - done) * BLOCK if HIGHEST else done * BLOCK
        column = start + tl.arange(0, BLOCK)[None, :]
        inside = live[:, None] & (column < rows.width)
        x = read(rows, row[:, None], request[:, None], column, inside)
        equal = inside & (x == value[:, None])
        equal = equal & (column >= low[:, None]) & (column <= high[:, None])
        ones = equal.to(tl.int32)
        here = tl.sum(ones, 1)
        rank = seen[:, None] + tl.cumsum(ones, 1)
        if HIGHEST:
            rank = 2 * seen[:, None] + here[:, None] - rank + ones
        hit = equal & (rank == count[:, None])
        found = tl.maximum(found, tl.max(tl.where(hit, column, -1), 1))
        seen += here
        done += 1
    end = low if HIGHEST else high
    return tl.where(found < 0, end, found)


@triton.jit
def tighter(key, low, high, key2, low2, high2):
    """Return the intersection of two beginnings of the order."""
    both_low, both_high = tl.maximum(low, low2), tl.minimum(high, high2)
    first, second = key > key2, key2 > key
    return (
        tl.maximum(key, key2),
        tl.where(first, low, tl.where(second, low2, both_low)),
        tl.where(first, high, tl.where(second, high2, both_high)),
    )


@triton.jit
def cuts(
    rows, row, request, live, top, scale, top_k, top_p, min_p,
    READING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the cut of filters, between which tokens those equal to it are kept, and their total.

    Args:
        top, scale: float32 [ROWS].
        top_k, top_p, min_p: float64, what is asked; a top_p of 1 is off, and so are others of 0.
    """
    # Where not live, a parameter may be NaN, which is no number of tokens.
    top_k, min_p = tl.where(live, top_k, 0.0), tl.where(live, min_p, 0.0)
    top_p = tl.where(live, top_p, 1.0)
    cut = tl.full(top.shape, LEAST, tl.float32)
    low = tl.zeros_like(top).to(tl.int32)
    high = low + rows.width - 1
    key, new_low, new_high = order(cut), low, high
    total = tl.zeros_like(top_p)
    # The steps are one loop, so that there is one search to compile.
    for step in range(steps(READING)):
        kind = (kinds(READING) >> (2 * step)) & 3
        heat = scale
        if ((hots(READING) >> step) & 1) == 0:
            heat = tl.full(scale.shape, 1.0, tl.float32)
        seeks = live
        if kind == TOP_K:
            seeks = live & (top_k > 0.0) & (top_k < rows.width)
        elif kind == TOP_P:
            seeks = live & (top_p < 1.0)
        elif kind == MIN_P:
            seeks = live & (min_p > 0.0)
            log = tl.log(tl.where(seeks, min_p, 1.0))
            bound = tl.maximum(top.to(tl.float64) + log / heat.to(tl.float64), LEAST)
            single = bound.to(tl.float32)
            least = order(single) + (single.to(tl.float64) < bound).to(tl.int32)
            key, new_low, new_high = tighter(
                key, new_low, new_high, tl.where(seeks, least, key), low * 0, low * 0 + LAST
            )
        want = top_k
        if kind >= TOP_P:
            if some(seeks):
                total = kept_mass(rows, row, request, seeks, top, heat, cut, low, high, BLOCK)
            want = top_p * total
        if ((kind == TOP_K) | (kind == TOP_P)) & some(seeks):
            exceeds = (kind == TOP_P) & says(READING, "exceeds")
            found, above = search(
                rows, row, request, seeks, top, heat, cut, low, high, want, kind == TOP_K,
                exceeds, BLOCK,
            )  # fmt: skip
            # How many of the tokens equal to the value are kept: what is left of the wanted,
            # in units of their weight.
            each = tl.full(want.shape, 1.0, tl.float64)
            if kind == TOP_P:
                value = tl.where(seeks, number(found), top)
                each = tl.exp((value - top) * heat).to(tl.float64)
            parts = tl.where(each > 0.0, (want - above) / tl.where(each > 0.0, each, 1.0), 1.0)
            left = tl.ceil(parts)
            if exceeds:
                left = tl.floor(parts) + 1.0
            left = tl.minimum(tl.maximum(left, 1.0), 1e9).to(tl.int32)
            same = found == order(cut)
            from_ = tl.where(same, low, 0)
            to = tl.where(same, high, rows.width - 1)
            if ((all_of(READING) >> kind) & 1) == 0:
                end = tie(
                    rows, row, request, seeks, number(found), from_, to, left,
                    says(READING, "highest"), BLOCK,
                )  # fmt: skip
                if says(READING, "highest"):
                    from_ = end
                else:
                    to = end
            key2, low2, high2 = tighter(key, new_low, new_high, found, from_, to)
            key = tl.where(seeks, key2, key)
            new_low = tl.where(seeks, low2, new_low)
            new_high = tl.where(seeks, high2, new_high)
        if ((ends(READING) >> step) & 1) == 1:
            cut, low, high = number(key), new_low, new_high
    return cut, low, high, total
