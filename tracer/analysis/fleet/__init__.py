"""Small tables of one rank, and the tables of all ranks that they add up to."""
