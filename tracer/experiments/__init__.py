"""Experiments: recorded work, as it was and changed, in turns, in a process of its own."""

SECONDS = 20
"""Of an experiment, its process included"""
