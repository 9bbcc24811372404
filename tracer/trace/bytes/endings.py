"""How a recording ended."""

from __future__ import annotations

STOPPED = "stopped"
"""It was stopped"""
KILLED = "killed"
"""A signal, os._exit or exec ended the process"""
WRITTEN = "written"
"""It has not ended: a process is still writing the trace"""
