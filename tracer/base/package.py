"""This installation of tracer: its version and its folder."""

from __future__ import annotations

import os

VERSION = "0.1.0"
DISTRIBUTION = "dispatch-tracer"
"""What pip calls this package: `tracer` is another project on PyPI"""
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package `tracer`"""
