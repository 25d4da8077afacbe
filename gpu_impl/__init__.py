"""The production sampler: one batched verifier for chains and trees, held to `specref`.

`draft` draws, `verify` decides; the rest are the words to say what they are given and return.
"""

from gpu_impl.call import RULES, verify
from gpu_impl.drafting import Drafted, draft
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.laws import DraftLogits, DraftProbs, OneHot
from gpu_impl.lossy import Lenience, Thresholds
from gpu_impl.parameters import Parameters
from gpu_impl.status import Decision, Status, Terminal
from gpu_impl.verified import Trace, Verified
from gpu_impl.workspace import Workspace

__all__ = [
    "RULES",
    "Decision",
    "DraftLogits",
    "DraftProbs",
    "Drafted",
    "Lenience",
    "OneHot",
    "Parameters",
    "Seeds",
    "Status",
    "Terminal",
    "Thresholds",
    "Trace",
    "Uniforms",
    "Verified",
    "Workspace",
    "draft",
    "verify",
]
