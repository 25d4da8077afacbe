"""What a round costs: `python -m gpu_impl.bench`, beside the peers that are installed.

    rounds      batches of drafts with logits like those of language models
    contenders  ways from raw logits and sampling parameters to tokens: ours, and peers'
    plain       the same in a few lines of torch
    peers       transformers, and vLLM's operators for CPUs
    kernels     peers' kernels for GPUs, from installed packages
    timing      interleaved repeats, medians, ratios; bytes that no exact sampler can spare
    growth      how cost grows with each size, as a chart
    gpu         one script for a machine with a GPU: correctness first, then times

Everything that is timed goes the whole way: temperature, filters and softmax are in it, because
that is where most samplers spend their time.
"""
