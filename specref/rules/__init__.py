"""The registry of acceptance rules: one file per rule, one line here.

A rule is a plain function `verify(root, choose) -> emitted tokens`: the accepted path and one more
token. It is made for a drafter; losslessness is a property of the pair.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from specref.draft import (
    Drafter,
    Node,
    likeliest,
    with_replacement,
    without_replacement,
)
from specref.rules.greedy import greedy
from specref.rules.match import match
from specref.rules.one_hot import one_hot
from specref.rules.rrs_with import rrs_with
from specref.rules.rrs_without import rrs_without
from specref.rules.target_only import target_only
from specref.rules.token import token

Verify: TypeAlias = Callable[[Node, Any], tuple[int, ...]]


@dataclass(frozen=True)
class Rule:
    """An acceptance rule, the drafter it is made for, and what is true of the pair.

    Attributes:
        verify: the rule itself.
        draft: the drafter that makes it lossless.
        shape: "chain" or "tree".
        lossless: whether the pair is, on its domain.
        source: paper and equation.
        accepts_all_when_equal: p == q accepts every draft.
        drafts_from_q: acceptance depends on q, so `q(x) > 0` is needed at every drafted token.
        any_draft: lossless for every drafter that does not look at the verifier's draws.
        sibling_order_matters: the law of one round changes when siblings swap.
        one_hot_target: the domain is restricted to targets that put mass 1 on one token.
    """

    verify: Verify
    draft: Drafter
    shape: str
    lossless: bool
    source: str
    accepts_all_when_equal: bool = field(default=False, kw_only=True)
    drafts_from_q: bool = field(default=False, kw_only=True)
    any_draft: bool = field(default=False, kw_only=True)
    sibling_order_matters: bool = field(default=False, kw_only=True)
    one_hot_target: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The name of the rule, which is the name of its function and of its file."""
        return self.verify.__name__


RULES: dict[str, Rule] = {
    "token": Rule(
        token, with_replacement, "chain", True,
        "Leviathan et al. 2023, Alg. 1",
        accepts_all_when_equal=True, drafts_from_q=True,
    ),
    "one_hot": Rule(
        one_hot, likeliest, "chain", True,
        "Leviathan et al. 2023, Alg. 1 with q one-hot",
        any_draft=True,
    ),
    "match": Rule(
        match, with_replacement, "chain", True,
        "Chen et al. 2024 (Sequoia), greedy tree",
        any_draft=True,
    ),
    "greedy": Rule(
        greedy, likeliest, "chain", True,
        "Stern et al. 2018, section 3",
        accepts_all_when_equal=True, any_draft=True, one_hot_target=True,
    ),
    "rrs_with": Rule(
        rrs_with, with_replacement, "tree", True,
        "Miao et al. 2024 (SpecInfer), Alg. 2",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
    ),
    "rrs_without": Rule(
        rrs_without, without_replacement, "tree", True,
        "Jeon et al. 2024 (RSD), Alg. 1; Chen et al. 2024 (Sequoia), Alg. 2",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
    ),
    "target_only": Rule(
        target_only, likeliest, "tree", True,
        "SGLang, tree_speculative_sampling_target_only; EAGLE-2 code",
        any_draft=True,
    ),
}  # fmt: skip
"""Every rule by name."""
