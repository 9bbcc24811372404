"""Several implementations of one operator beside stock: a summary, then the report of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracer.compare.markdown import facts_table, interval, render, result_of, time_of
from tracer.compare.model import Comparison
from tracer.compare.switch import Switch
from tracer.compare.verdict import verdict
from tracer.report.cells import code, prose, table, wrapped
from tracer.report.svg.bars import Ratio as Bar
from tracer.report.svg.bars import bars_svg
from tracer.report.svg.picture import Pictures


def implementations(names: Iterable[str]) -> list[list[str]]:
    """The names in groups: two that replace the same kernel are in different ones.

    Raises OverrideError and CannotCompareError.
    """
    groups: list[tuple[list[str], set[tuple[str, str]]]] = []
    for name in names:
        own = set(Switch([name]).operators)
        for known, taken in groups:
            if not own & taken:
                known.append(name)
                taken |= own
                break
        else:
            groups.append(([name], own))
    return [known for known, _ in groups]


def render_several(comparisons: Sequence[Comparison], details: int | None, pictures: Pictures | None) -> str:
    """The ratios of all in one table, and in one picture; then each as by itself."""
    first = comparisons[0]
    names = [", ".join(comparison.overrides) for comparison in comparisons]
    titles = ["case", "stock:"]
    for name in names:
        titles += [f"{code(name)}:", "ratio (95 %):", f"result of {code(name)}"]
    rows = []
    for number, case in enumerate(first.cases):
        own = [comparison.cases[number] for comparison in comparisons]
        stock = next((result.limited.stock.median for result in own if result.limited), None)
        row = [prose(case.name), "" if stock is None else time_of(stock)]
        for result in own:
            timing = result.limited
            row += [time_of(timing.override.median), interval(timing)] if timing else ["", ""]
            row.append(result_of(result))
        rows.append(row)
    parts = [
        f"# {prose(first.title)}: stock beside {', '.join(map(code, names))}",
        *(
            f"- {code(name)}: {prose(verdict(comparison))}"
            for name, comparison in zip(names, comparisons, strict=True)
        ),
        facts_table(first.facts),
        "## Implementations",
        wrapped(
            "Each was compared with stock by itself. Times are GPU times where there are any, else wall "
            "times; a ratio is stock / override, so that above 1 the override is faster."
        ),
        table(titles, rows),
        *_picture(comparisons, names, pictures),
    ]
    return "\n\n".join([*parts, *(render(comparison, details).rstrip() for comparison in comparisons)]) + "\n"


def _picture(comparisons: Sequence[Comparison], names: Sequence[str], pictures: Pictures | None) -> list[str]:
    bars = [
        Bar(
            f"{case.name}: {name}",
            timing.ratio.value,
            timing.ratio.low,
            timing.ratio.high,
            time_of(timing.override.median),
        )
        for cases in zip(*(comparison.cases for comparison in comparisons), strict=True)
        for case, name in zip(cases, names, strict=True)
        if (timing := case.limited) and timing.ratio.value > 0
    ]
    if pictures is None or not bars:
        return []
    title = "stock / override: above 1 the override is faster; grey: undecided"
    return [pictures.add("ratios", "Ratios of stock to each implementation", bars_svg(title, bars))]
