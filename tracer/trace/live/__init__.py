"""Reads a recording while it is being written."""
