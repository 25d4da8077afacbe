"""The production sampler: one batched verifier for chains and trees, held to `specref`."""
