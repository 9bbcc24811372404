"""Many traces: each one becomes small tables, which are merged; on this machine or on a Ray cluster."""
