"""How numbers, source lines and inputs read, in trees and in reports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.analysis.runtime_survey import Steps

_WORDS = re.compile(r"[^\s(]+")
NO_BREAK = "\u00a0"
_FIGURE = re.compile(r"(?<=\d) (?=(?:[num]?s|min|h|%|x|[KMGTP]?i?B|[KMGTP]?FLOPS?)(?:/s)?(?![\w/]))")
_PACKAGES = ("/site-packages/", "/dist-packages/")


def duration(ns: int) -> str:
    """A time in the unit that fits: 0.12 us, 12.3 us, 4.5 ms, 6.7 s."""
    amount, unit = _scaled(ns)
    return f"{amount} {unit}"


def duration_and_self(ns: int, self_ns: int) -> str:
    """`12.3 us (self 1.2)`: the unit is repeated only where it differs."""
    amount, unit = _scaled(ns)
    own, own_unit = _scaled(self_ns)
    return f"{amount} {unit} (self {own if own_unit == unit else f'{own} {own_unit}'})"


def count(number: int, noun: str) -> str:
    """`1 hop`, `1,234 hops`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def unbroken(text: str) -> str:
    """`text` in which no line ends between a number and its unit."""
    return _FIGURE.sub(NO_BREAK, text)


def left_out(number: int) -> str:
    """A paragraph below a table that says how many rows it does not show; none for 0."""
    return f"\n\n{count(number, 'more row')} left out." if number > 0 else ""


def registration(registered_at: str) -> str:
    """`RegisterCPU_3.cpp:120` of a registration's full path."""
    return registered_at.rpartition("/")[2]


def steady_steps(steps: Steps) -> str:
    """`the 5 steady steps, of 6`: how many are steady, of how many that are known."""
    known = steps.warmup + steps.steady + steps.untold
    others = f", of {known:,}" if known > steps.steady else ""
    return f"the {count(steps.steady, 'steady step')}{others}"


def shorten(text: str, width: int) -> str:
    """The end of `text`, which says more than its beginning, in at most `width` characters.

    Paths into packages give way first. No parenthesis is closed that was opened in what is cut off.
    """
    text = text if len(text) <= width else package_relative(text)
    if len(text) <= width:
        return text
    return "..." + _without_stray_ends(text[len(text) - width + 3 :]) if width > 3 else ""


def shorten_path(path: str, width: int) -> str:
    """`.../net/layers.py:7` of a long path: as many of its last folders as fit in `width` characters."""
    if len(path) <= width:
        return path
    name = path
    while len(name) + 4 > width and "/" in name:
        name = name.partition("/")[2]
    return f".../{name}" if len(name) + 4 <= width else shorten(name, width)


def package_relative(text: str) -> str:
    """`text` with the paths in it relative to the installed packages."""
    return _WORDS.sub(lambda word: _in_packages(word[0]), text) if "-packages/" in text else text


def _in_packages(path: str) -> str:
    return path[max(path.rfind(folder) + len(folder) if folder in path else 0 for folder in _PACKAGES) :]


def shorten_kernel(name: str, width: int) -> str:
    """The beginning of a device kernel's name, which says more than its end, in `width` characters."""
    return name if len(name) <= width else f"{name[: width - 3]}..."


def size(number: float) -> str:
    """Bytes in the unit that fits: 512 B, 48.0 KiB, 1.5 GiB."""
    for limit, unit in ((1 << 10, "B"), (1 << 20, "KiB"), (1 << 30, "MiB"), (1 << 40, "GiB")):
        if number < limit:
            return f"{number * 1024 / limit:.1f} {unit}" if unit != "B" else f"{number:.0f} B"
    return f"{number / (1 << 40):,.1f} TiB"


def amount(number: float, unit: str) -> str:
    """A number with the SI prefix that fits: 0.52 MFLOP, 4.80 TB/s."""
    for limit, prefix in ((1e3, ""), (1e6, "k"), (1e9, "M"), (1e12, "G"), (1e15, "T")):
        if number < limit:
            return f"{number * 1e3 / limit:.3g} {prefix}{unit}"
    return f"{number / 1e15:.3g} P{unit}"


def _without_stray_ends(text: str) -> str:
    """`text` from behind the last `)` that nothing in it opens, or without it where it is the end."""
    opened, stray = 0, -1
    for place, letter in enumerate(text):
        opened += (letter == "(") - (letter == ")")
        if opened < 0:
            opened, stray = 0, place
    if stray < 0:
        return text
    return _without_stray_ends(text[:-1]) if stray == len(text) - 1 else text[stray + 1 :]


def whole_percent(part: int, whole: int) -> str:
    """`42 %`; 100 % is all of it and 0 % nothing."""
    percent = f"{100 * part / whole:.0f} %"
    if part < whole and percent == "100 %":
        return "more than 99 %"
    return "less than 1 %" if part and percent == "0 %" else percent


def _scaled(ns: int) -> tuple[str, str]:
    if abs(ns) < 995:
        return f"{ns / 1e3:.2f}", "us"
    for limit, unit, size in ((999_950, "us", 1e3), (999_950_000, "ms", 1e6)):
        if abs(ns) < limit:
            return f"{ns / size:.1f}", unit
    return f"{ns / 1e9:,.1f}", "s"
