"""Wrong samplers seen in the wild, as data: one family per file, one registry.

A fault has the signature of what it breaks (a rule or a drafter), so everything that works on rules
works on faults. It proves the power of the gate, it names what a failing sampler computes, and it
teaches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from specref.decode import deviation
from specref.draft import Drafter, Shape
from specref.model import Model
from specref.rules import RULES, Rule, Verify


@dataclass(frozen=True)
class Fault:
    """A wrong sampler.

    Attributes:
        name: what the registry and reports call it.
        base: the rule that it is a broken form of.
        family: the kind of mistake; the file it stands in.
        computed: what it computes.
        should: what should be computed.
        verify: the wrong rule; None if the rule is right and the drafter or the target is not.
        draft: the wrong drafter; None for the drafter of `base`.
        target: from the p that the sampler is given to the law that was asked for; None if they
            are the same.
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
    links: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """The fault as a rule: its verifier and drafter, those of `base` where it has none."""
        base = RULES[self.base]
        return Rule(
            self.verify or base.verify, self.draft or base.draft, base.shape, False, base.source
        )

    def deviation(
        self, p: Model, q: Model, *, shape: Shape, length: int, rounds: int = 1
    ) -> Fraction:
        """Return the exact TV between what it emits and what was asked for (`decode.deviation`)."""
        return deviation(
            self.rule,
            p,
            q,
            shape=shape,
            length=length,
            rounds=rounds,
            target=self.target(p) if self.target else None,
        )


FAULTS: dict[str, Fault] = {}
"""Every fault by name."""
