"""What everything computes with: array types and files, compiled loops, batch-invariant kernels."""
