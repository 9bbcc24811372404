"""A trace as tables."""
