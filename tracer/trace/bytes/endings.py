"""How a recording ended."""

from __future__ import annotations

STOPPED = "stopped"
"""In order"""
KILLED = "killed"
"""By a signal; or it left by os._exit or exec"""
WRITTEN = "written"
"""It has not: a process still writes the trace"""
