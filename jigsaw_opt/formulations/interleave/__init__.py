"""Choose jobs that share GPUs by stages: a set-packing program over groups. `docs/policies.md` has it in formulas."""
