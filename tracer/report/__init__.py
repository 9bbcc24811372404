"""Reports: a model built from a trace, and renderers that only write it down."""
