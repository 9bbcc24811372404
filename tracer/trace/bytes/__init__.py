"""The trace file: its bytes and their meaning."""
