"""Writes a trace in the formats of other tools; needs no torch."""
