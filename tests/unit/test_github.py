"""Tables of markdown that fit GitHub's page: names are broken where needed, and nothing else changes."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from tracer.report.cells import code, table
from tracer.report.fitted_table import split_row
from tracer.report.github import WIDTH, _width, for_github, joined
from tracer.report.text import NO_BREAK

LONG = "torch::autograd::VariableType::cudnn_convolution_transpose_backward_out"
NAMES = [
    LONG,
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
    "x" * 90,
    "/a/very/long/path/to/a/file/of/a/package/that/is/installed/somewhere.py:131",
    "a|b" * 20,
    "back`tick" * 8,
    "\\" * 40,
    "``",
    "",
]


def rendered(markdown: str) -> list[str]:
    """The text of each cell."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    return [
        "".join(child.content for child in token.children if child.type != "html_inline")
        for token in tokens
        if token.type == "inline"
    ]


def wide(*names: str) -> str:
    titles = ["total:", "calls:", "line", "op", "kernel"]
    return table(titles, [["1.5 ms", "12", code(name), code(name), code(name)] for name in names])


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_each_cell_is_as_before(name: str) -> None:
    markdown = f"# A title\n\n{wide(name, LONG)}\n\nText with `{LONG}`.\n"
    narrowed = for_github(markdown)
    assert [cell.replace(NO_BREAK, " ") for cell in rendered(narrowed)] == rendered(markdown)
    assert joined(narrowed) == markdown
    assert for_github(narrowed) == narrowed


def test_a_table_fits_and_names_are_broken_at_their_parts() -> None:
    rows = for_github(wide(*NAMES[:4])).split("\n")
    assert _width([split_row(row) for row in rows]) <= WIDTH
    assert "`torch::autograd::`<wbr>`VariableType::cudnn_`<wbr>`convolution_" in rows[2]


def test_a_number_and_its_unit_are_one_word() -> None:
    cell = f"0.5 x, 68.2 ms (3 % -> 12 %), 2 steps, {code('1 s')}"
    text = for_github(f"1 s\n\n{table(['total:', 'op'], [['< 1.5 us', cell]])}")
    assert rendered(text) == [
        *("1 s", "total", "op", f"< 1.5{NO_BREAK}us"),
        f"0.5{NO_BREAK}x, 68.2{NO_BREAK}ms (3{NO_BREAK}% -> 12{NO_BREAK}%), 2 steps, 1 s",
    ]


def test_what_fits_is_not_touched() -> None:
    narrow = table(["calls:", "op"], [["12", code("aten::mm")]])
    assert for_github(narrow) == narrow
    block = f"```text\n{wide(LONG)}\n```\n"
    assert for_github(block) == block
