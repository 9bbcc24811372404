"""Stock kernels and overrides side by side: chains, times, memory, errors, limits."""
