"""A recording that is read while it is written."""
