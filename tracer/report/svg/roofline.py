"""The roofline of a device's kernels as a picture."""

from __future__ import annotations

from tracer.report.roofline import Roofline
from tracer.report.svg.picture import drawn

LEAST_POINTS = 5
"""The fewest kernels that are drawn; fewer are readable in the table"""
KINDS = (
    ("memory", "limited by bytes"),
    ("compute", "limited by operations"),
    ("floor", "as short as the shortest kernel"),
)


def roofline_svg(line: Roofline) -> str:
    title = f"Roofline of {line.device}: FLOP/s against FLOP per byte; size: GPU time"
    return drawn("roofline.svg.j2", line=line, body=roofline_body(line), title=title, kinds=KINDS)


def roofline_body(line: Roofline, *, buttons: bool = False) -> str:
    """What is within the svg element. `buttons`: a point can be pressed."""
    return drawn("roofline_body.svg.j2", line=line, buttons=buttons)
