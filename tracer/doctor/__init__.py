"""Whether this machine and this Python can record, and what to do where they cannot."""
