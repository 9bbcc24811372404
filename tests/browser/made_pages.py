"""Pages that the tests open, and what is drawn on them."""

from __future__ import annotations

from pathlib import Path

from tracer.report.html.page import render_html
from tracer.report.reading import Reading

RESNET = Path(__file__).parents[2] / "reports" / "traces" / "resnet34.trace.xz"


def written(path: Path, reading: Reading) -> Path:
    path.write_text(render_html(reading))
    return path


def drawing(page, holder: str) -> str:
    """What a canvas shows, after it was drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.wait_for_timeout(50)  # flame-chart-js makes bars clickable 16 ms after it drew them
    return page.evaluate(f"document.querySelector('#{holder} canvas').toDataURL()")
