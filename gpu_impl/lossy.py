"""Rules that do not keep the target's law: never without being asked for by name."""

from dataclasses import dataclass

from gpu_impl.errors import need


@dataclass(frozen=True)
class Lenience:
    """Keep x with probability min(1, p(x) / (l q(x))): `specref.rules.lenient`, for "token".

    Attributes:
        lenience: l, in 0 < l <= 1; 1 loses nothing.
    """

    lenience: float

    def __post_init__(self) -> None:
        _share("lenience", self.lenience)


@dataclass(frozen=True)
class Thresholds:
    """Give siblings more of the coin than p(x): `specref.rules.threshold`, for "target_only".

    Attributes:
        single: target probability from which a draft is kept outright, 0 < single <= 1.
        acc: what the running sum is divided by, 0 < acc <= 1. Both at 1 lose nothing.
    """

    single: float
    acc: float

    def __post_init__(self) -> None:
        _share("single", self.single)
        _share("acc", self.acc)


def _share(name: str, value: float) -> None:
    need(0 < value <= 1, f"{name} = {value} is out of range; pass 0 < {name} <= 1, where 1 is off")


LOSSY = {Lenience: ("token",), Thresholds: ("one_hot", "target_only")}
"""The rules that each can be asked for with."""
