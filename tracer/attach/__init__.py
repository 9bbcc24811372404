"""Recording a process that already runs: from outside, with gdb or Python's own way in."""
