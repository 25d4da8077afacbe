"""Wrong samplers seen in the wild, as data: one family per file, one registry.

A fault has the signature of what it breaks: a rule, a drafter, the loop of rounds, or the law that
a request asks for. So everything that works on these works on faults. It proves the power of the
gate, it names what a failing sampler computes, and it teaches. Each is a proper program on all
laws, also where honest rules never get (`frame`).

Left out, because no law shows them: a bonus that is thrown away, a draft model whose cache is stale
while the q that is declared is what it drew from (both cost speed alone); streams of other requests
and of ranks, and positions or slots of a batch, of which a single request's loop knows nothing;
probabilities that are reported beside the right tokens and are no law; crashes.
"""

from specref.faults import (
    acceptance,
    bonus,
    caches,
    coins,
    ends,
    filters,
    loops,
    lossy,
    plans,
    proposals,
    requests,
    residual,
    rows,
    siblings,
    streams,
    weights,
)
from specref.faults.fault import Fault

__all__ = ["FAULTS", "ROUND_FAULTS", "Fault"]

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for family in (
        residual, acceptance, bonus, rows, proposals, siblings, weights, plans, lossy,
        filters, coins, ends, caches, streams, loops, requests,
    )
    for fault in family.FAULTS
}  # fmt: skip
"""Every fault by name."""

ROUND_FAULTS: dict[str, Fault] = {
    name: fault for name, fault in FAULTS.items() if fault.kind in ("rule", "drafter")
}
"""Those that a single round on given laws shows: wrong rules and drafters."""
