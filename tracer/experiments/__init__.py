"""Experiments: recorded work, as it was and changed, in turns, in a process of its own."""
