"""What the hops of a trace say: dispatch trees, distinct dispatch paths, surveys."""
