"""What a section of a report is."""

from __future__ import annotations

from typing import Any, Protocol

from tracer.report.page import Page
from tracer.report.reading import Reading


class Section(Protocol):
    """A module of tracer.report.sections, or a TableSection: one part of a report, from the data to the text.

    title       its heading; "" if it has none
    level       2 for a section of its own, 3 for one within the section before it
    wanted      whether this trace has anything to say there
    data        what it says, as a frozen dataclass
    markdown    how it is written, without the heading
    """

    @property
    def title(self) -> str: ...
    @property
    def level(self) -> int: ...
    def wanted(self, reading: Reading, /) -> bool: ...
    def data(self, reading: Reading, /) -> Any: ...
    def markdown(self, data: Any, page: Page, /) -> str: ...
