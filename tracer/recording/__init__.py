"""Recording: the launcher, the recording itself, and the facts that it stores beside the hops."""
