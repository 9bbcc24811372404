"""The trace file: its bytes, and what they say."""
