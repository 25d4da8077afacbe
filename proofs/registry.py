"""Which proofs stand behind each rule of `specref.rules.RULES`: the table of the README as data."""

from proofs.symbolic.theorems import QUICK

COQ: dict[str, str] = {
    "token": "token_lossless_3",
    "one_hot": "one_hot_lossless_6",
    "match": "match_lossless_6",
    "greedy": "greedy_lossless_6",
    "target_only": "target_only_lossless_6",
    "rrs_with": "rrs_with_lossless_6",
    "rrs_without": "rrs_without_lossless_6",
    "traversal": "traversal_lossless_6",
    "traversal_with": "traversal_with_lossless_6",
    "block": "block_lossless_6",
}
"""The Coq theorem that says a rule is lossless, for every vocabulary, depth and shape; by rule."""

SYMBOLIC: tuple[str, ...] = tuple(QUICK)
"""Rules with claims that are proved by running their code on symbols."""
