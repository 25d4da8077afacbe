"""Wrong samplers seen in the wild, as data: one family per file, one registry.

A fault has the signature of what it breaks (a rule or a drafter), so everything that works on rules
works on faults. It proves the power of the gate, it names what a failing sampler computes, and it
teaches. Each is a proper program on all laws, also where honest rules never get (`frame`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from specref.decode import deviation
from specref.draft import Drafter, Shape, likeliest, with_replacement
from specref.faults import (
    acceptance,
    bonus,
    coins,
    filters,
    lossy,
    plans,
    proposals,
    residual,
    rows,
    siblings,
    weights,
)
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


_RESIDUAL = (
    Fault(
        "residual_softmaxed", "token", "residual",
        "The correction is drawn from the softmax of (p - q)+.",
        "(p - q)+ is divided by its sum.",
        verify=residual.residual_softmaxed,
        links=("huggingface/transformers#28508",),
    ),
    Fault(
        "residual_is_target", "token", "residual",
        "The correction is drawn from p.",
        "The correction is drawn from norm((p - q)+).",
        verify=residual.residual_is_target,
    ),
    Fault(
        "residual_without_rejected", "token", "residual",
        "The correction is drawn from p with the refused token removed.",
        "The draft was drawn from q, so the correction is drawn from norm((p - q)+).",
        verify=residual.residual_without_rejected,
    ),
    Fault(
        "residual_floored", "token", "residual",
        "Every entry of (p - q)+ is raised to at least 2^-126 before it is normalised.",
        "Entries with p <= q stay exactly 0.",
        verify=residual.residual_floored,
        links=("vllm-project/vllm#2336",),
    ),
    Fault(
        "soft_residual_for_certain_draft", "one_hot", "residual",
        "x is accepted with p(x), but the correction is drawn from norm((p - q)+) with the soft q.",
        "A draft accepted with p(x) has q = 1 at x, so the correction is drawn from p without x.",
        verify=residual.soft_residual_for_certain_draft,
    ),
    Fault(
        "fresh_draw_after_rejection", "one_hot", "residual",
        "After a refusal the correction is drawn from the whole of p.",
        "The correction is drawn from p without the refused token.",
        verify=residual.fresh_draw_after_rejection,
    ),
    Fault(
        "fresh_draw_on_mismatch", "match", "residual",
        "When the target's draw differs from the draft, another draw from p is emitted.",
        "The target's draw that differs is emitted itself.",
        verify=residual.fresh_draw_on_mismatch,
    ),
    Fault(
        "one_shot_corrected_from_residual", "one_shot", "residual",
        "A draft is accepted with p(x)/(M q(x)), and the correction is drawn from norm((p - q)+).",
        "What is accepted has law p, so the correction is drawn from p.",
        verify=residual.one_shot_corrected_from_residual,
    ),
    Fault(
        "fresh_draw_after_coupled_mismatch", "coupled", "residual",
        "When another token wins the target's race, a fresh draw from p is emitted.",
        "The winner of the target's race is emitted.",
        verify=residual.fresh_draw_after_coupled_mismatch,
    ),
    Fault(
        "draft_law_subtracted", "target_only", "residual",
        "After all siblings are refused the draw is from norm((p - q)+).",
        "The draw is from p with the tried siblings removed.",
        verify=residual.draft_law_subtracted,
        links=("NVIDIA/TensorRT-LLM#15098",),
    ),
)  # fmt: skip

_ACCEPTANCE = (
    Fault(
        "everything_accepted", "token", "acceptance",
        "Every draft is accepted.",
        "A draft is accepted with chance min(1, p(x)/q(x)).",
        verify=acceptance.everything_accepted,
        links=("huggingface/transformers#28508", "vllm-project/vllm-ascend#13730"),
    ),
    Fault(
        "first_draft_unverified", "token", "acceptance",
        "The first draft is accepted unseen; the others are verified with their own rows.",
        "The first draft is verified like the others.",
        verify=acceptance.first_draft_unverified,
    ),
    Fault(
        "first_draft_unverified_greedy", "greedy", "acceptance",
        "Draft i + 1 is compared with the argmax of row i, and draft 0 with nothing.",
        "Draft i is compared with the argmax of row i.",
        verify=acceptance.first_draft_unverified_greedy,
        links=("ohdearquant/lattice#243",),
    ),
    Fault(
        "envelope_inverted", "one_shot", "acceptance",
        "A draft is accepted with min(1, p(x)/(M q(x))), M the largest q/p.",
        "M is the largest p/q, so that M q is nowhere below p.",
        verify=acceptance.envelope_inverted,
    ),
    Fault(
        "refused_tokens_kept", "token", "acceptance",
        "After a refusal all drafts stay in the text, and the correction is added behind them.",
        "The text ends with the correction, in the place of the refused token.",
        verify=acceptance.refused_tokens_kept,
        links=("lucidrains/speculative-decoding#3",),
    ),
    Fault(
        "underflow_accepted", "token", "acceptance",
        "A draft with q(x) <= 2^-25 is accepted: in float16 u q(x) <= p(x) reads 0 <= p(x).",
        "Small probabilities keep their ratio, in float32 or in logarithms.",
        verify=acceptance.underflow_accepted,
        links=("lablup/mlxcel#992",),
    ),
)  # fmt: skip

_BONUS = (
    Fault(
        "bonus_from_draft", "token", "bonus",
        "The bonus is drawn from q, at the position of the bonus.",
        "The bonus is drawn from p.",
        verify=bonus.bonus_from_draft,
    ),
    Fault(
        "bonus_from_last_draft_row", "token", "bonus",
        "The bonus is drawn from the q of the last draft.",
        "The bonus is drawn from p at the position behind the last draft.",
        verify=bonus.bonus_from_last_draft_row,
    ),
    Fault(
        "bonus_is_likeliest", "token", "bonus",
        "The bonus is the argmax of p.",
        "The bonus is drawn from p.",
        verify=bonus.bonus_is_likeliest,
    ),
    Fault(
        "bonus_from_residual", "token", "bonus",
        "The bonus is drawn from norm((p - q)+), at the position of the bonus.",
        "Nothing was refused there, so the bonus is drawn from p.",
        verify=bonus.bonus_from_residual,
    ),
    Fault(
        "bonus_from_last_residual", "token", "bonus",
        "The bonus is drawn from norm((p - q)+) of the last draft.",
        "The last draft was accepted, so the bonus is drawn from the p behind it.",
        verify=bonus.bonus_from_last_residual,
    ),
    Fault(
        "bonus_from_row_before", "token", "bonus",
        "The bonus is drawn from the target row of the last draft.",
        "The bonus is drawn from the target row behind the last draft.",
        verify=bonus.bonus_from_row_before,
    ),
)  # fmt: skip

_ROWS = (
    Fault(
        "residual_from_first_row", "token", "rows",
        "Every correction is drawn from the residual of the first position of the round.",
        "The correction is drawn from the residual of the refused position.",
        verify=rows.residual_from_first_row,
    ),
    Fault(
        "ratio_with_previous_q", "token", "rows",
        "The ratio divides by q of the position before; only the first position has its own.",
        "The ratio divides by q of the draft's own position.",
        verify=rows.ratio_with_previous_q,
    ),
    Fault(
        "residual_with_previous_q", "token", "rows",
        "The residual subtracts q of the position before; only the first position has its own.",
        "The residual subtracts q of the refused position.",
        verify=rows.residual_with_previous_q,
    ),
    Fault(
        "target_rows_shifted", "token", "rows",
        "Draft i is accepted and corrected with target row i + 1; the bonus row is right.",
        "Draft i is judged by target row i.",
        verify=rows.target_rows_shifted,
        links=("mlx-node/mlx-node#11",),
    ),
)  # fmt: skip

_PROPOSALS = (
    Fault(
        "argmax_draft", "token", "proposals",
        "The draft is the argmax of q, but ratio and residual use the soft q.",
        "A certain draft has q = 1 at its token; or the draft is drawn from q.",
        draft=likeliest,
        links=("huggingface/transformers#32867", "jaymody/speculative-sampling#3"),
    ),
    Fault(
        "soft_q_for_certain_draft", "one_hot", "proposals",
        "A draft that was certain is verified with the soft q in ratio and residual.",
        "A certain draft is accepted with p(x) and corrected from p without x.",
        verify=proposals.soft_q_for_certain_draft,
        links=("huggingface/transformers#32867", "jaymody/speculative-sampling#3"),
    ),
    Fault(
        "filtered_draft_raw_q", "token", "proposals",
        "Drafts come from q after a top-2 filter, but ratio and residual use q before it.",
        "The q that is declared is the q that was drawn from.",
        draft=proposals.filtered_draft_raw_q,
        links=(
            "huggingface/transformers#47932", "huggingface/transformers#47961",
            "mlx-node/mlx-node#11",
        ),
    ),
    Fault(
        "raw_draft_filtered_q", "token", "proposals",
        "Drafts come from q, but ratio and residual use q after a top-2 filter (0 there refuses).",
        "The q in ratio and residual is the q that was drawn from.",
        verify=proposals.raw_draft_filtered_q,
    ),
    Fault(
        "q_at_other_temperature", "token", "proposals",
        "Drafts come from q, but ratio and residual use q at temperature 1/2.",
        "The q in ratio and residual is the q that was drawn from.",
        verify=proposals.q_at_other_temperature,
    ),
    Fault(
        "draft_rounded", "token", "proposals",
        "Drafts come from q as bfloat16 rounds it, but ratio and residual use q itself.",
        "The q in ratio and residual is the q that was drawn from, to the last bit.",
        draft=proposals.draft_rounded,
        links=("deepseek-ai/DeepSpec#31",),
    ),
    Fault(
        "draft_ids_unmapped", "token", "proposals",
        "Drafted ids are those of the drafter's own vocabulary, off by one from the target's.",
        "Drafted ids are mapped to the target's before anything reads them.",
        draft=proposals.draft_ids_unmapped,
        links=("NVIDIA-NeMo/Automodel#2447", "vllm-project/vllm-ascend#15863"),
    ),
    Fault(
        "unlikely_draft_dropped", "token", "proposals",
        "A drawn chain is cut before its first token that is not the argmax of q.",
        "Whether a draft is submitted does not depend on it or on later ones.",
        draft=proposals.unlikely_draft_dropped,
    ),
    Fault(
        "top_siblings_taken_as_drawn_with", "rrs_with", "proposals",
        "The likeliest tokens of q are verified as independent draws from q.",
        "Chosen siblings are verified with p alone, or siblings are drawn from q.",
        verify=proposals.top_siblings_taken_as_drawn_with, draft=likeliest,
    ),
    Fault(
        "top_siblings_taken_as_drawn_without", "rrs_without", "proposals",
        "The likeliest tokens of q are verified as draws from q without replacement.",
        "Chosen siblings are verified with p alone, or siblings are drawn from q.",
        verify=proposals.top_siblings_taken_as_drawn_without, draft=likeliest,
    ),
)  # fmt: skip

_SIBLINGS = (
    Fault(
        "siblings_share_p", "rrs_with", "siblings",
        "Every sibling is tested with the same p; the correction is drawn from norm((p - q)+).",
        "After each refusal p becomes its residual.",
        verify=siblings.siblings_share_p,
    ),
    Fault(
        "p_unnormalised_with", "rrs_with", "siblings",
        "After a refusal p becomes (p - q)+, not divided by its sum until the correction.",
        "After each refusal p becomes norm((p - q)+).",
        verify=siblings.p_unnormalised_with,
    ),
    Fault(
        "p_unnormalised_without", "rrs_without", "siblings",
        "After a refusal p becomes (p - q)+, not divided by its sum until the correction.",
        "After each refusal p becomes norm((p - q)+).",
        verify=siblings.p_unnormalised_without,
    ),
    Fault(
        "q_unchanged_without", "rrs_without", "siblings",
        "Siblings drawn without replacement are all judged by the same q.",
        "After each refusal q loses the refused token and is renormalised.",
        verify=siblings.q_unchanged_without,
    ),
    Fault(
        "siblings_merged", "rrs_with", "siblings",
        "Equal siblings are tested once.",
        "Each independent draw is tested, repeats too: their refusal changes the residual.",
        verify=siblings.siblings_merged,
    ),
    Fault(
        "sorted_by_p_with", "rrs_with", "siblings",
        "Independent siblings are tried by falling p.",
        "Siblings are tried in the order drawn.",
        verify=siblings.sorted_by_p_with,
    ),
    Fault(
        "sorted_by_q_with", "rrs_with", "siblings",
        "Independent siblings are tried by falling q.",
        "Siblings are tried in the order drawn.",
        verify=siblings.sorted_by_q_with,
    ),
    Fault(
        "sorted_by_p_without", "rrs_without", "siblings",
        "Siblings drawn without replacement are tried by falling p.",
        "Siblings are tried in the order drawn.",
        verify=siblings.sorted_by_p_without,
    ),
    Fault(
        "sorted_by_q_without", "rrs_without", "siblings",
        "Siblings drawn without replacement are tried by falling q.",
        "Siblings are tried in the order drawn.",
        verify=siblings.sorted_by_q_without,
    ),
    Fault(
        "draft_models_swapped", "heterogeneous", "siblings",
        "Each of two siblings is held to the law of the draft model that the other came from.",
        "A sibling is held to the law that it was drawn from.",
        verify=siblings.draft_models_swapped,
    ),
    Fault(
        "draft_models_sorted_by_p", "heterogeneous", "siblings",
        "Siblings of two draft models are tried by falling p, each against its own law.",
        "Siblings are tried in an order that does not depend on their tokens.",
        verify=siblings.draft_models_sorted_by_p,
    ),
    Fault(
        "zeroed_unnormalised", "target_only", "siblings",
        "A later sibling is accepted with p(x), not divided by what the tried ones left.",
        "After each refusal p loses the refused token and is renormalised.",
        verify=siblings.zeroed_unnormalised,
    ),
    Fault(
        "duplicates_counted_twice", "target_only", "siblings",
        "The running sum of p counts every copy of an equal sibling.",
        "An equal sibling counts once.",
        verify=siblings.duplicates_counted_twice, draft=with_replacement,
    ),
    Fault(
        "fresh_coin_per_sibling", "target_only", "siblings",
        "Each sibling draws a coin of its own and compares it with the running sum of p.",
        "One coin per node is compared with the running sum.",
        verify=siblings.fresh_coin_per_sibling,
    ),
    Fault(
        "own_target_draw_per_sibling", "target_only", "siblings",
        "Each sibling is compared with its own draw from p; if none agrees, the first is emitted.",
        "One draw from p per node is compared with all siblings.",
        verify=siblings.own_target_draw_per_sibling,
        links=("foundation-model-stack/fms-extras#12",),
    ),
)  # fmt: skip

_WEIGHTS = (
    Fault(
        "last_weight_uncapped", "block", "weights",
        "The whole draft is accepted with the plain product of its ratios.",
        "The product is cut at 1 after every factor, also before the last.",
        verify=weights.last_weight_uncapped,
    ),
    Fault(
        "weights_uncapped", "block", "weights",
        "All weights are plain products of ratios.",
        "The product is cut at 1 after every factor.",
        verify=weights.weights_uncapped,
    ),
    Fault(
        "block_residual_unscaled", "block", "weights",
        "The correction is drawn from norm((p - q)+).",
        "The correction is drawn from norm((P p - q)+), P the weight of what was kept.",
        verify=weights.block_residual_unscaled,
        links=("vllm-project/vllm-ascend#7807", "vllm-project/vllm-ascend#7808"),
    ),
    Fault(
        "weight_as_coin", "block", "weights",
        "A beginning is kept with chance P, its weight.",
        "It is kept with chance S / (S + 1 - P), S the sum of (P p - q)+, if no longer one is.",
        verify=weights.weight_as_coin,
    ),
    Fault(
        "block_stops_at_first_refusal", "block", "weights",
        "Beginnings are tested from the shortest on, up to the first that is refused.",
        "The longest beginning that is accepted is kept, whatever shorter ones did.",
        verify=weights.block_stops_at_first_refusal,
        links=("vllm-project/vllm-ascend#11985",),
    ),
    Fault(
        "block_coin_shared", "block", "weights",
        "One coin decides about all beginnings of a round.",
        "Each beginning has a coin of its own.",
        verify=weights.block_coin_shared,
    ),
    Fault(
        "branch_weights_stale", "traversal", "weights",
        "Every branch gets the weight that it would have as the first below its node.",
        "Weight, target and draft law of a node move with every refused branch.",
        verify=weights.branch_weights_stale,
    ),
    Fault(
        "branch_draft_law_stale", "traversal", "weights",
        "Branches drawn without replacement are all judged by the same q.",
        "After each refusal q loses the refused token and is renormalised.",
        verify=weights.branch_draft_law_stale,
    ),
    Fault(
        "branch_refusal_undivided", "traversal", "weights",
        "After a refusal a node's weight is S, the sum of (r b - s)+.",
        "It is S / (S + 1 - r).",
        verify=weights.branch_refusal_undivided,
    ),
)  # fmt: skip

_PLANS = (
    Fault(
        "divisor_too_small", "k_seq", "plans",
        "Siblings are accepted with min(1, p/q), as if rho were 1, and the residual is clipped.",
        "They are accepted with min(1, p/(rho q)), rho large enough for all of them together.",
        verify=plans.divisor_too_small,
    ),
    Fault(
        "selection_held_to_q", "importance", "plans",
        "A sibling is selected in proportion to p/q, and verified as a draw from q.",
        "What is selected is verified with the law of the selected, p_I.",
        verify=plans.selection_held_to_q,
    ),
    Fault(
        "sure_hub_accepted", "spec_hub", "plans",
        "The hub of a pair is accepted where the target gives it more than 0.999.",
        "However likely, it is accepted by the plan.",
        verify=plans.sure_hub_accepted,
    ),
    Fault(
        "drawn_sibling_held_to_whole_q", "greedy_multi", "plans",
        "The drawn sibling is verified against q.",
        "It was drawn from q without the likeliest tokens, renormalised, and is held to that.",
        verify=plans.drawn_sibling_held_to_whole_q,
    ),
    Fault(
        "planned_correction_is_target", "transport", "plans",
        "When no sibling is accepted, the correction is drawn from p.",
        "It is drawn from what the plan leaves of p.",
        verify=plans.planned_correction_is_target,
    ),
)  # fmt: skip

_LOSSY = (
    Fault(
        "typical_token_from_first_row", "typical", "lossy",
        "The round closes with the argmax of its first row, wherever it ends.",
        "It closes with the argmax of the row behind the last kept token.",
        verify=lossy.typical_token_from_first_row,
        links=(
            "vllm-project/vllm#5131", "vllm-project/vllm#8320", "vllm-project/vllm#8562",
        ),
    ),
    Fault(
        "typical_bar_undefined", "typical", "lossy",
        "The entropy of a row with a zero is 0 log 0, no number, and nothing is above the bar.",
        "A token of probability 0 adds nothing to the entropy.",
        verify=lossy.typical_bar_undefined,
    ),
    Fault(
        "typical_parameters_swapped", "typical", "lossy",
        "The bar is min(delta, epsilon exp(-H)).",
        "The bar is min(epsilon, delta exp(-H)).",
        verify=lossy.typical_parameters_swapped,
    ),
    Fault(
        "lenience_inverted", "lenient", "lossy",
        "A draft is accepted with min(1, l p(x)/q(x)).",
        "A draft is accepted with min(1, p(x)/(l q(x))).",
        verify=lossy.lenience_inverted,
    ),
)  # fmt: skip

_FILTERS = (
    Fault(
        "filter_on_bonus_only", "token", "filters",
        "A top-2 filter is applied to the bonus row only.",
        "The filter is applied to every target row.",
        verify=filters.filter_on_bonus_only, target=filters.top_two_of,
        links=("vllm-project/vllm#42744", "vllm-project/vllm#42802"),
    ),
    Fault(
        "decoded_greedily", "token", "filters",
        "The argmax of every target row is emitted.",
        "Tokens are sampled from p.",
        verify=filters.decoded_greedily,
        links=("sgl-project/sglang#31214", "sgl-project/sglang#39253"),
    ),
    Fault(
        "target_softmaxed_twice", "token", "filters",
        "The softmax of the probabilities p is used in place of p.",
        "The law p is a softmax already and is used as it is.",
        verify=filters.target_softmaxed_twice,
        links=("vllm-project/vllm-ascend#6685",),
    ),
)  # fmt: skip

_COINS = (
    Fault(
        "coin_inclusive", "token", "coins",
        "A draft is accepted iff u <= p(x)/q(x), with coins that can be 0.",
        "A draft is accepted iff u < p(x)/q(x).",
        verify=coins.coin_inclusive,
    ),
    Fault(
        "coin_inclusive_one_hot", "one_hot", "coins",
        "A draft is accepted iff u <= p(x), with coins that can be 0.",
        "A draft is accepted iff u < p(x).",
        verify=coins.coin_inclusive_one_hot,
    ),
    Fault(
        "coin_inclusive_target_only", "target_only", "coins",
        "The first sibling with u <= running sum of p is taken, with coins that can be 0.",
        "The first sibling with u < running sum of p is taken.",
        verify=coins.coin_inclusive_target_only,
        links=("sgl-project/sglang#35771", "sgl-project/sglang#35798"),
    ),
    Fault(
        "coin_stuck_at_zero", "token", "coins",
        "Every coin is 0, so that every draft with p(x) > 0 is accepted.",
        "Coins are uniform.",
        verify=coins.coin_stuck_at_zero,
        links=("vllm-project/vllm-ascend#13730", "vllm-project/vllm-ascend#13766"),
    ),
    Fault(
        "coin_shared", "token", "coins",
        "One coin decides all positions of a round.",
        "Each position has a coin of its own.",
        verify=coins.coin_shared,
    ),
    Fault(
        "coin_reused", "token", "coins",
        "The coin that refused the draft is the inverse-CDF draw of the correction.",
        "The correction has a draw of its own.",
        verify=coins.coin_reused,
    ),
    Fault(
        "uniform_for_empty_residual", "token", "coins",
        "A coin of 1, once in 2^24, refuses a ratio of 1; where p = q the correction is uniform.",
        "Coins stay below 1; an empty residual falls back to p.",
        verify=coins.uniform_for_empty_residual,
        links=("duoan/TorchCode#16",),
    ),
    Fault(
        "scan_falls_to_last_token", "token", "coins",
        "Once in 2^24 the inverse CDF of the residual is overrun and the last token is emitted.",
        "A token of residual mass 0 is never emitted.",
        verify=coins.scan_falls_to_last_token,
        links=("iree-org/iree-turbine#741",),
    ),
    Fault(
        "draft_noise_reused", "token", "coins",
        "The race that drew the draft is run again with the same noise to draw the correction.",
        "The correction has noise of its own.",
        verify=coins.draft_noise_reused,
        links=("vllm-project/vllm#47386", "vllm-project/vllm#54282"),
    ),
)  # fmt: skip

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for family in (
        _RESIDUAL, _ACCEPTANCE, _BONUS, _ROWS, _PROPOSALS, _SIBLINGS, _WEIGHTS, _PLANS, _LOSSY,
        _FILTERS, _COINS,
    )
    for fault in family
}  # fmt: skip
"""Every fault by name."""
