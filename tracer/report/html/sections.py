"""The sections of a report as HTML: any section that writes markdown has its place on the page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from tracer.report.page import Page
from tracer.report.reading import Reading
from tracer.report.sections import head, name_of, order, path_details
from tracer.report.text import unbroken

_DRAWN = {path_details.title}  # the page has the paths as a flame graph and as chains
_ENDS_A_WORD = re.compile(r"(?<=[/_.,])(?=\w)|(?<=::)(?=\w)|(?<=\w)(?=<\w)")
_OPENS = re.compile(r"<details><summary>([^<>]*)</summary>\s*")
_CLOSES = re.compile(r"</details>\s*")


@dataclass(frozen=True)
class Part:
    """A section of the page. `body` is HTML, in which every name is escaped."""

    name: str
    title: str
    level: int
    body: str


def parts(reading: Reading, page: Page) -> Iterator[Part]:
    """The sections of the report that have something to say, in order."""
    for section in order(reading.only, reading.sections):
        if section.title in _DRAWN or not section.wanted(reading):
            continue
        if text := section.markdown(section.data(reading), page):
            yield Part(name_of(section), section.title, section.level, to_html(text))


def about(reading: Reading, page: Page) -> str:
    """The head of the report without its title."""
    text = head.markdown(head.data(reading), page)
    return to_html(text.partition("\n\n")[2])


def to_html(text: str) -> str:
    """Markdown as HTML, without links and images. HTML in it is escaped, except `<br>` and `<details>`."""
    return _MARKDOWN.render(text)


def _html(self: RendererHTML, tokens: list[Token], place: int, options: Any, env: Any) -> str:
    content = tokens[place].content
    if content == "<br>":
        return "<br>"
    if opens := _OPENS.fullmatch(content):
        return f"<details><summary>{html.escape(html.unescape(opens[1]))}</summary>\n"
    if _CLOSES.fullmatch(content):
        return "</details>\n"
    return html.escape(content)


def _code(self: RendererHTML, tokens: list[Token], place: int, options: Any, env: Any) -> str:
    """A long name may be broken between its words."""
    pieces = _ENDS_A_WORD.split(tokens[place].content)
    return f"<code>{'<wbr>'.join(map(_whole_arrows, pieces))}</code>"


def _text(self: RendererHTML, tokens: list[Token], place: int, options: Any, env: Any) -> str:
    return _whole_arrows(tokens[place].content)


def _whole_arrows(text: str) -> str:
    """Escaped; a browser breaks a line between - and >."""
    return html.escape(text).replace("-&gt;", '<span class="arrow">-&gt;</span>')


def _unbroken(state: StateCore) -> None:
    """Text; columns of figures are one line anyway, and are sorted by what they say."""
    for before, token in pairwise(state.tokens):
        if token.type == "inline" and "right" not in str(before.attrGet("style")):
            for child in token.children or ():
                child.content = unbroken(child.content) if child.type == "text" else child.content


def _fence(self: RendererHTML, tokens: list[Token], place: int, options: Any, env: Any) -> str:
    lines = [html.escape(line) for line in tokens[place].content.splitlines()]
    if tokens[place].info == "diff":
        kinds = {"+": "plus", "-": "minus"}
        lines = [
            f'<span class="{kinds[line[0]]}">{line}</span>' if line[:1] in kinds else line for line in lines
        ]
    return f"<pre><code>{chr(10).join(lines)}\n</code></pre>\n"


_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table").disable(["link", "image", "autolink"])
_MARKDOWN.add_render_rule("fence", _fence)
_MARKDOWN.add_render_rule("code_inline", _code)
_MARKDOWN.add_render_rule("text", _text)
_MARKDOWN.add_render_rule("html_block", _html)
_MARKDOWN.add_render_rule("html_inline", _html)
_MARKDOWN.core.ruler.push("unbroken", _unbroken)
