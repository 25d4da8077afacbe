"""The calls of others, on `gpu_impl.verify`: their layouts in and out, none of their packages.

One module for each: `vllm` (model runner V1), `vllm_v2`, `sglang` (trees and chains), `flashinfer`,
`transformers`. A function has the name and the arguments of the one whose place it takes; what it
adds is by keyword:

    draws       `Seeds` or `Uniforms`, where the other has a generator
    parameters  of the target, where it is given as logits
    status      int32 [B]; a `Status` of each request is written into it

and everything else that `verify` takes (`backend`, `lazy`, `workspace`, ...). The host waits for
the device only where the one replaced does: in `transformers`, whose result has the size of what
was drawn.
"""
