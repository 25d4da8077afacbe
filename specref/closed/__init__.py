"""A second oracle: output laws by formula or by recursion over prefixes, without `choice`.

`choice.law` runs a rule and follows every way its choices can fall. Here nothing is run: each rule
has its law written down, from the papers where they give one, and the two are compared on all laws
of a grid. Neither shares a line with the other, so a fault would have to be made twice.

One file per group of rules, one line per rule here.
"""

from collections.abc import Callable
from typing import TypeAlias

from specref.closed import chain, lossy, siblings, trees
from specref.dist import Number
from specref.draft import Shape
from specref.model import Context, Model, exact_pair

Text: TypeAlias = tuple[int, ...]

Closed: TypeAlias = Callable[[Model, Model, Shape, Context], dict[Text, Number]]
"""From (p, q, shape, context) to the law of the tokens that one round emits, over all drafts."""

CLOSED: dict[str, Closed] = {
    "token": chain.token,
    "one_hot": chain.one_hot,
    "match": chain.match,
    "greedy": chain.greedy,
    "block": chain.block,
    "one_shot": chain.one_shot,
    "coupled": chain.coupled,
    "hierarchical": chain.hierarchical,
    "typical": lossy.typical,
    "lenient": lossy.lenient,
    "lenient_scaled": lossy.lenient_scaled,
    "threshold": lossy.threshold,
    "ensemble": lossy.ensemble,
    "rrs_with": trees.rrs_with,
    "rrs_without": trees.rrs_without,
    "target_only": trees.target_only,
    "heterogeneous": trees.heterogeneous,
    "traversal": trees.traversal,
    "traversal_with": trees.traversal_with,
    "nested_transport": trees.nested_transport,
    "k_seq": siblings.k_seq,
    "spec_hub": siblings.spec_hub,
    "greedy_multi": siblings.greedy_multi,
    "importance": siblings.importance,
    "transport": siblings.transport,
}
"""The closed law of every rule, by name."""


def round_law(
    rule: str, p: Model, q: Model, shape: Shape, context: Context = ()
) -> dict[Text, Number]:
    """Return the exact law of the tokens emitted by one round, as `decode.round_law` does.

    Args:
        rule: a name in `RULES`.
        p, q: callables from a context to a law.
        shape: depth of a chain, or widths of a tree.
        context: what stands before the round.

    Raises:
        KeyError: a rule without a closed law.
        ValueError: models that do not return laws over the same tokens.
    """
    if rule not in CLOSED:
        raise KeyError(f"there is no closed law of {rule!r}; there are of {', '.join(CLOSED)}")
    return CLOSED[rule](*exact_pair(p, q, context), shape, context)
