"""One op call of a trace, run again alone."""
