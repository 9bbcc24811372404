"""What was recorded, what is missing, and whether that is everything."""
