"""Whether this machine and this Python can record, and what to do if not."""
