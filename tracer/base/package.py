"""This installation of tracer: its version and its folder."""

from __future__ import annotations

import os

VERSION = "0.1.0"
DISTRIBUTION = "dispatch-tracer"
"""What pip calls this package: `tracer` is another project on PyPI"""
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package `tracer`"""


def gdb_folder() -> str:
    """What runs in gdb and in the debugged process; `pip install -e .` leaves it beside the package."""
    installed = os.path.join(FOLDER, "gdb")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(FOLDER), "gdb")
