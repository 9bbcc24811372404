"""A trace in the formats of other tools; knows no torch."""
