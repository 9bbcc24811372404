"""Writes a report: its sections in order, with a table of contents."""

from __future__ import annotations

import re

from tracer.base import heap, progress
from tracer.report.page import Page
from tracer.report.reading import Reading
from tracer.report.sections import head, order
from tracer.report.svg.picture import Pictures

_NOT_IN_A_LINK = re.compile(r"[^\w\- ]")


def render(reading: Reading, pictures: Pictures | None = None) -> str:
    """The report as GitHub markdown, with one newline at its end. Pictures are added to `pictures`."""
    page = Page.of(reading, pictures)
    titles, parts = [], []
    sections = order(reading.only, reading.sections)
    for number, section in enumerate(sections):
        progress.done(number, len(sections))
        if not section.wanted(reading):
            continue
        text = section.markdown(section.data(reading), page)
        heap.give_back()
        if not text:
            continue
        if section.level == 2:
            titles.append(section.title)
        parts.append(f"{'#' * section.level} {section.title}\n\n{text}")
    shown = "" if reading.sections else contents(titles)
    text = "\n\n".join([head.markdown(head.data(reading), page), shown, *parts])
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def contents(titles: list[str]) -> str:
    """Links to the headings, in one line, as GitHub makes their anchors."""
    links = (f"[{title}](#{_NOT_IN_A_LINK.sub('', title.lower()).replace(' ', '-')})" for title in titles)
    return " · ".join(links)
