"""Recording: the launcher, the recording itself, and what is noted beside the hops."""
