"""Pages that the tests open, and what is drawn on them."""

from __future__ import annotations

from pathlib import Path

from tracer.report.html.page import render_html
from tracer.report.reading import Reading

RESNET = Path(__file__).parents[2] / "reports" / "traces" / "resnet34.trace.xz"
SPLIT = """(where) => {
  const split = [];
  for (const cell of document.querySelectorAll(where)) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const node = texts.currentNode;
      if (node.parentElement.closest("code")) continue;
      for (const found of node.data.matchAll(/[\\d.]+\\s(?:[num]?s|%|x|[KMGT]i?B)(?![\\w/])/g)) {
        const range = new Range();
        range.setStart(node, found.index);
        range.setEnd(node, found.index + found[0].length);
        if (new Set([...range.getClientRects()].map(each => each.top)).size > 1) split.push(found[0]);
      }
    }
  }
  return split;
}"""
"""Numbers that are on another line than their unit, in what has the selector `where`"""


def written(path: Path, reading: Reading) -> Path:
    path.write_text(render_html(reading))
    return path


def drawing(page, holder: str) -> str:
    """What a canvas shows, after it was drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.wait_for_timeout(50)  # flame-chart-js makes bars clickable 16 ms after it drew them
    return page.evaluate(f"document.querySelector('#{holder} canvas').toDataURL()")
