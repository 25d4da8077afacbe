"""Filters: which tokens of a row stay. None of them rounds."""

from collections.abc import Callable, Sequence
from functools import cmp_to_key

from specref.dist import Number, rational
from specref.logits.presets import Nucleus, Preset, Ties
from specref.logits.row import Row, Sum, first, flat
from specref.logits.score import Score, logarithm


def greedy(row: Row, ties: Ties) -> list[int]:
    """Keep the likeliest token, the limit of ever lower temperatures; with "all" several share."""
    return _pick(row.order()[0], 1, ties)


def top_k(row: Row, k: int, ties: Ties) -> list[int]:
    """Keep the k likeliest tokens.

    Args:
        row: the weights.
        k: how many, at least 1.
        ties: which of those that are as likely as the k-th; "all" keeps more than k.
    """
    kept: list[int] = []
    for group in row.order():
        if len(kept) >= k:
            break
        kept += _pick(group, k - len(kept), ties)
    return kept


def top_p(row: Row, mass: Number, ties: Ties, nucleus: Nucleus) -> list[int]:
    """Keep the fewest likeliest tokens whose mass reaches, or exceeds, a share of the whole.

    Args:
        row: the weights.
        mass: the share; at least one token stays whatever it is.
        ties: in what order equally likely tokens count; "all" keeps or drops them together.
        nucleus: whether the mass has to reach or to exceed the share.
    """
    return flat(_prefix(row, _units(row.order(), ties), mass, nucleus, "top_p"))


def min_p(row: Row, share: Number) -> list[int]:
    """Keep tokens of at least a share of the largest weight."""
    groups = row.order()
    best = groups[0][0]

    def below(x: int) -> bool:
        return row.sign(row.sum([x]), row.sum([best]), share, "min_p", (x, best)) < 0

    return _until(groups, below)


def epsilon(row: Row, least: Number) -> list[int]:
    """Keep tokens of at least a mass, and the likeliest in any case (Hewitt et al. 2022)."""
    whole = row.sum(row.scores)

    def below(x: int) -> bool:
        return row.sign(row.sum([x]), whole, least, "epsilon", (x, x)) < 0

    return _until(row.order(), below)


def eta(row: Row, least: Number) -> list[int]:
    """Keep tokens of mass at least min(eta, sqrt(eta) exp(-H)) (Hewitt et al. 2022, eq. 5).

    With the mean score m, p(x) = exp(s - log Z) and H = log Z - m, so the second bound is
    `s - m >= log(eta) / 2`, which needs no logarithm of a sum.
    """
    whole, mean = row.sum(row.scores), Mean(row)
    shift = logarithm(rational(least))

    def below(x: int) -> bool:
        if row.sign(row.sum([x]), whole, least, "eta", (x, x)) >= 0:
            return False
        return mean.twice_against(row.scores[x].times(2) - shift, "eta", (x, x)) > 0

    return _until(row.order(), below)


def typical_p(row: Row, mass: Number, ties: Ties, nucleus: Nucleus) -> list[int]:
    """Keep the tokens of most typical surprise, up to a mass (Meister et al. 2023, eq. 6).

    The distance of a token's surprise from the entropy, |-log p(x) - H|, is that of its score from
    the mean score. Arguments are those of `top_p`.
    """
    groups, mean = row.order(), Mean(row)

    def compare(a: Sequence[int], b: Sequence[int]) -> int:
        x, y = a[0], b[0]
        lower = rank[x] > rank[y]  # x is the less likely one
        both = row.scores[x] + row.scores[y]
        side = mean.twice_against(both, "typical_p", (x, y))
        return side if lower else -side

    rank = {group[0]: at for at, group in enumerate(groups)}
    nearest = _merged(sorted(groups, key=cmp_to_key(compare)), compare)
    return flat(_prefix(row, _units(nearest, ties), mass, nucleus, "typical_p"))


def top_n_sigma(row: Row, n: Number) -> list[int]:
    """Keep logits that are at most n standard deviations below the largest (Tang et al. 2024).

    Raises:
        ValueError: the row came from weights, whose logarithms have no rational spread.
    """
    if any(score.logs for score in row.scores.values()):
        raise ValueError("top_n_sigma measures logits; pass logits instead of weights")
    logits = [score.plain for score in row.scores.values()]
    mean = sum(logits) / rational(len(logits))
    variance = sum((a - mean) ** 2 for a in logits) / rational(len(logits))
    best = max(logits)
    return [x for x, s in row.scores.items() if (best - s.plain) ** 2 <= n * n * variance]


class Mean:
    """The mean score of a row, sum of p(x) s(x), which is -H + log Z."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._moment = Sum({k: score.times(2) for k, score in row.moment().items()})
        self._whole = row.sum(row.scores)
        self._bounds: tuple[Number, Number] | None = None

    def twice_against(self, score: Score, what: str, pair: tuple[int, int]) -> int:
        """Return the sign of twice the mean minus a score.

        Raises:
            Undecided: as `Row.sign`.
        """
        # Bounds that serve for all tell most apart.
        if not score.logs and len(self._whole) > 1 and (known := self._twice()) is not None:
            low, high = known
            if low > score.plain or high < score.plain:
                return 1 if low > score.plain else -1
        return self._row.sign(self._moment, self._whole, score, what, pair)

    def _twice(self) -> tuple[Number, Number] | None:
        """Return bounds of twice the mean, if there are any."""
        if self._bounds is None:
            self._bounds = self._row.quotient(self._moment, self._whole)
        return self._bounds


def _pick(group: list[int], count: int, ties: Ties) -> list[int]:
    if ties == "all" or count >= len(group):
        return group
    return group[:count] if ties == "lowest" else group[len(group) - count :]


def _units(groups: Sequence[list[int]], ties: Ties) -> list[list[int]]:
    """Return what is kept or dropped as one: groups, or their tokens one by one."""
    if ties == "all":
        return list(groups)
    return [[x] for group in groups for x in (group if ties == "lowest" else reversed(group))]


def _prefix(
    row: Row, units: list[list[int]], mass: Number, nucleus: Nucleus, what: str
) -> list[list[int]]:
    """Return the first units of which the mass reaches, or exceeds, a share; at least one."""
    whole = row.sum(row.scores)

    def enough(count: int) -> bool:
        pair = units[count - 1][-1], units[count][0]
        sign = row.sign(row.sum(flat(units[:count])), whole, mass, what, pair)
        return sign >= 0 if nucleus == "reaches" else sign > 0

    return units[: first(len(units), enough)]


def _until(groups: Sequence[list[int]], below: Callable[[int], bool]) -> list[int]:
    """Return the tokens of the groups before the first that is below; at least one group."""
    return flat(groups[: first(len(groups), lambda count: below(groups[count][0]))])


def _merged(
    groups: Sequence[list[int]], compare: Callable[[Sequence[int], Sequence[int]], int]
) -> list[list[int]]:
    """Join neighbours that compare equal: two weights as far from the mean on either side."""
    merged: list[list[int]] = []
    for group in groups:
        if merged and compare(merged[-1], group) == 0:
            merged[-1] = sorted([*merged[-1], *group])
        else:
            merged.append(group)
    return merged


def filters(preset: Preset, temperature: Number) -> dict[str, Callable[[Row, Number], list[int]]]:
    """Return the filters of a preset by the names of their parameters."""
    found: dict[str, Callable[[Row, Number], list[int]]] = {
        "top_k": lambda row, k: top_k(row, k, preset.top_k_ties),
        "top_p": lambda row, mass: top_p(row, mass, preset.top_p_ties, preset.nucleus),
        "typical_p": lambda row, mass: typical_p(row, mass, preset.typical_ties, preset.typical),
        "min_p": min_p,
        "epsilon": epsilon,
        "eta": eta,
        "top_n_sigma": top_n_sigma,
    }
    if temperature == 0:
        found["temperature"] = lambda row, _: greedy(row, preset.greedy_ties)
    return found
