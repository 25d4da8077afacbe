"""What a fault is: a wrong sampler with its name, what it computes, and its exact distance."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from specref.decode import Drafting, Loop, decode, deviation, sequence_law, target_law
from specref.dist import Law, as_fraction, tv
from specref.draft import Drafter, Shape
from specref.logits import Enclosure, Parameters
from specref.logits import law as asked_law
from specref.model import Context, Model
from specref.rules import RULES, Rule, Verify
from specref.stops import Stops

Found: TypeAlias = Law | Enclosure
"""A law of the next token, exact or enclosed."""

Asked: TypeAlias = Callable[..., Found]
"""A law of the next token with the arguments of `logits.law`, but for its preset and precision."""


@dataclass(frozen=True)
class Fault:
    """A wrong sampler.

    Attributes:
        name: what the registry and reports call it.
        base: the rule that it is a broken form of; where the rule is right, one that shows it.
        family: the kind of mistake; the file it stands in.
        computed: what it computes.
        should: what should be computed.
        verify: the wrong rule; None if the rule is right and something around it is not.
        draft: the wrong drafter; None for the drafter of `base`.
        target: from the p that the sampler is given to the law that was asked for; None if they
            are the same.
        loop: the wrong loop of rounds, called as `decode.decode`; None for that one.
        law: the wrong law of a request, called as law(logits, parameters, prompt=, output=); None
            for `logits.law`.
        preset: the preset that `law` should follow.
        links: public reports, as owner/repository#number.
    """

    name: str
    base: str
    family: str
    computed: str
    should: str
    verify: Verify | None = None
    draft: Drafter | None = None
    target: Callable[[Model], Model] | None = None
    loop: Loop | None = None
    law: Asked | None = None
    preset: str = "transformers"
    links: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["rule", "drafter", "target", "loop", "law"]:
        """What is wrong; only rules and drafters show in a single round on given laws."""
        if self.law is not None:
            return "law"
        if self.loop is not None:
            return "loop"
        return "rule" if self.verify else "drafter" if self.draft else "target"

    @property
    def rule(self) -> Rule:
        """The fault as a rule: its verifier and drafter, those of `base` where it has none."""
        base = RULES[self.base]
        return Rule(
            self.verify or base.verify,
            self.draft or base.draft,
            base.shape,
            False,
            base.source,
            own_drafts=base.own_drafts,
            width=base.width,
        )

    def deviation(
        self, p: Model, q: Model, *, shape: Shape, length: int, rounds: int = 1
    ) -> Fraction:
        """Return the exact TV between what it emits and what was asked for (`decode.deviation`).

        Raises:
            ValueError: no round is wrong, but the loop or the law.
        """
        if self.kind in ("loop", "law"):
            raise ValueError(
                f"{self.name} is a wrong {self.kind}, and no round of it is; "
                f"take {'sequence' if self.kind == 'loop' else 'law'}_deviation"
            )
        return deviation(
            self.rule,
            p,
            q,
            shape=shape,
            length=length,
            rounds=rounds,
            target=self.target(p) if self.target else None,
        )

    def sequence_deviation(
        self, p: Model, q: Model, shape: Drafting, stops: Stops | int, context: Context = ()
    ) -> Fraction:
        """Return the exact TV between the whole texts that it emits and those of plain decoding.

        Arguments and errors are those of `decode.sequence_law`.

        >>> from specref.faults import FAULTS
        >>> from specref.model import Table
        >>> p, q = (Table({(): row}, order=0) for row in (["1/3", "2/3"], ["1/2", "1/2"]))
        >>> FAULTS["limit_overrun"].sequence_deviation(p, q, 1, 1)
        Fraction(5, 6)

        Raises:
            ValueError: the law is wrong, and no loop.
        """
        if self.law is not None:
            raise ValueError(f"{self.name} is a wrong law, and its loop is not; take law_deviation")
        emitted = sequence_law(self.rule, p, q, shape, stops, context, loop=self.loop or decode)
        asked = self.target(p) if self.target else p
        return as_fraction(tv(emitted, target_law(asked, stops, context)))

    def law_deviation(
        self,
        logits: Iterable[Any],
        parameters: Parameters,
        prompt: Sequence[int] = (),
        output: Sequence[int] = (),
    ) -> Fraction:
        """Return the TV between its law of the next token and the one asked for.

        It is exact where both laws are, and off by less than V / 10^30 where they are enclosed.
        Arguments and errors are those of `logits.law`.

        >>> from specref.faults import FAULTS
        >>> from specref.logits import weights
        >>> ask = Parameters(temperature="1/2")
        >>> FAULTS["temperature_ignored"].law_deviation(weights([4, 1]), ask)
        Fraction(12, 85)

        Raises:
            ValueError: no law of the next token is wrong.
        """
        if self.law is None:
            raise ValueError(f"{self.name} is a wrong {self.kind}, and no law of the next token")
        row = tuple(logits)
        wrong = self.law(row, parameters, prompt=prompt, output=output)
        right = asked_law(row, parameters, self.preset, prompt=prompt, output=output)
        return as_fraction(tv(*map(_masses, (wrong, right))))


def _masses(found: Found) -> dict[int, Any]:
    return dict(enumerate(masses_of(found)))


def masses_of(found: Found) -> Law:
    """Return an exact law, or one inside its enclosure."""
    return found.inside() if isinstance(found, Enclosure) else found
