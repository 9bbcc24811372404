"""How a recording ended."""

from __future__ import annotations

STOPPED = "stopped"
"""It was stopped"""
KILLED = "killed"
"""A signal, os._exit or exec ended the process"""
DUMPED = "dumped"
"""It had not ended: the trace is a copy of that moment"""
WRITTEN = "written"
"""It has not ended: a process is still writing the trace"""
