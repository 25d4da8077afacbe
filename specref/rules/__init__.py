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
    hub_pairs,
    likeliest,
    one_from_each,
    top_and_one,
    with_replacement,
    without_replacement,
)
from specref.rules.block import block
from specref.rules.coupled import coupled
from specref.rules.ensemble import ensemble
from specref.rules.greedy import greedy
from specref.rules.greedy_multi import greedy_multi
from specref.rules.heterogeneous import heterogeneous
from specref.rules.hierarchical import hierarchical
from specref.rules.importance import importance
from specref.rules.k_seq import k_seq
from specref.rules.lenient import lenient
from specref.rules.lenient_scaled import lenient_scaled
from specref.rules.match import match
from specref.rules.nested_transport import nested_transport
from specref.rules.one_hot import one_hot
from specref.rules.one_shot import one_shot
from specref.rules.rrs_with import rrs_with
from specref.rules.rrs_without import rrs_without
from specref.rules.spec_hub import spec_hub
from specref.rules.target_only import target_only
from specref.rules.threshold import threshold
from specref.rules.token import token
from specref.rules.transport import transport
from specref.rules.traversal import traversal
from specref.rules.traversal_with import traversal_with
from specref.rules.typical import typical

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
        own_drafts: drafts that `draft` cannot propose are refused with a ValueError.
        exact_numbers: laws are fractions; the rule compares what floats cannot settle.
        off_path: the rule calls the models behind tokens that were not drafted (`Node.beyond`), so
            it needs drafts that were grown from models.
        width: the number of siblings that the rule is made for, where it is one number; fewer are
            verified too.
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
    own_drafts: bool = field(default=False, kw_only=True)
    exact_numbers: bool = field(default=False, kw_only=True)
    off_path: bool = field(default=False, kw_only=True)
    width: int | None = field(default=None, kw_only=True)

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
    "block": Rule(
        block, with_replacement, "chain", True,
        "Sun et al. 2024, Alg. 2",
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
    "one_shot": Rule(
        one_shot, with_replacement, "chain", True,
        "Leviathan et al. 2023, A.2",
        accepts_all_when_equal=True, drafts_from_q=True,
    ),
    "coupled": Rule(
        coupled, with_replacement, "chain", True,
        "Daliri et al. 2024, Gumbel coupling",
        accepts_all_when_equal=True, drafts_from_q=True,
    ),
    "hierarchical": Rule(
        hierarchical, with_replacement, "chain", True,
        "Zhou et al. 2026 (HSD), Alg. 1",
        accepts_all_when_equal=True, drafts_from_q=True, off_path=True,
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
    "heterogeneous": Rule(
        heterogeneous, one_from_each, "tree", True,
        "Miao et al. 2024 (SpecInfer), Alg. 2, one draft model per sibling",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True, width=2,
    ),
    "target_only": Rule(
        target_only, likeliest, "tree", True,
        "SGLang, tree_speculative_sampling_target_only; EAGLE-2 code",
        any_draft=True,
    ),
    "traversal": Rule(
        traversal, without_replacement, "tree", True,
        "Weng et al. 2025, Traversal Verification",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
    ),
    "traversal_with": Rule(
        traversal_with, with_replacement, "tree", True,
        "Weng et al. 2025, Traversal Verification, independent siblings",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
    ),
    "k_seq": Rule(
        k_seq, with_replacement, "tree", True,
        "Sun et al. 2023 (SpecTr), K-SEQ",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
    ),
    "spec_hub": Rule(
        spec_hub, hub_pairs, "tree", True,
        "Sun et al. 2024 (SpecHub), section 4",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
        own_drafts=True, width=2,
    ),
    "greedy_multi": Rule(
        greedy_multi, top_and_one, "tree", True,
        "Hu et al. 2025, greedy multi-draft",
        accepts_all_when_equal=True, drafts_from_q=True, own_drafts=True,
    ),
    "importance": Rule(
        importance, with_replacement, "tree", True,
        "Khisti et al. 2025, importance-weighted sampling",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
    ),
    "transport": Rule(
        transport, with_replacement, "tree", True,
        "Sun et al. 2023 (SpecTr), section 4",
        accepts_all_when_equal=True, drafts_from_q=True, exact_numbers=True,
    ),
    "nested_transport": Rule(
        nested_transport, without_replacement, "tree", True,
        "after UniVer (arXiv 2605.04543) and GBV (arXiv 2602.16961)",
        accepts_all_when_equal=True, drafts_from_q=True, sibling_order_matters=True,
        own_drafts=True, exact_numbers=True,
    ),
    "typical": Rule(
        typical, likeliest, "tree", False,
        "Cai et al. 2024 (Medusa), typical acceptance",
        accepts_all_when_equal=True, exact_numbers=True,
    ),
    "lenient": Rule(
        lenient, with_replacement, "chain", False,
        "Leviathan et al. 2023, appendix A.5, residual of p - q",
        accepts_all_when_equal=True, drafts_from_q=True,
    ),
    "lenient_scaled": Rule(
        lenient_scaled, with_replacement, "chain", False,
        "Leviathan et al. 2023, appendix A.5, residual of p - l q",
        accepts_all_when_equal=True, drafts_from_q=True,
    ),
    "threshold": Rule(
        threshold, likeliest, "tree", False,
        "SGLang, tree_speculative_sampling_target_only with thresholds",
        sibling_order_matters=True,
    ),
    "ensemble": Rule(
        ensemble, with_replacement, "chain", False,
        "Fu et al. 2025 (Speculative Ensemble), weighted ensemble",
        accepts_all_when_equal=True, drafts_from_q=True,
    ),
}  # fmt: skip
"""Every rule by name."""
