"""The constants of csrc/trace/records.h, which writes the format, are those of format.py, which reads it."""

from __future__ import annotations

import re
from pathlib import Path

from tracer.trace.bytes import format as fmt

CSRC = Path(__file__).parents[2] / "csrc"
RECORDS = (CSRC / "trace/records.h").read_text()

# What the reader alone has: versions, sizes and texts of its own, and what it derives.
ONLY_READ = {
    "ACCUMULATE_GRAD",
    "CALL_ALL_ARGUMENTS",
    "CHUNK_ALIGNMENT",
    "NEXT_CHUNK_OFFSET",
    "OLDEST_VERSION",
    "SLOT_BYTES",
    "WALL_NS_OFFSET",
}
# A shift or a mask by a bare number.
BARE = re.compile(r"(?:<<|>>) ?\d+|& ?(?:0x[0-9a-f]+|\d+)\b")
# Lines that pack something else than words of the file: sizes, hashes, keys of caches, words of CUPTI.
OTHER_WORDS = re.compile(r"constexpr|known_callers|hash|mix\(|lane->epoch|~\(|crc|cpuid")


WRITES = re.compile(r"write_event\(|CallEvent|kActivityWords|kEventBit|kEventKindShift|kSlotInUse")


def _name(word: str) -> str:
    """`kCallDepthShift` as Python writes it: CALL_DEPTH_SHIFT."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", word.removeprefix("k")).upper()


def _constants() -> dict[str, int]:
    found: dict[str, int] = {}
    text = re.sub(r"//[^\n]*", "", RECORDS)
    pairs = re.findall(r"constexpr \w+ (k\w+) = ([^;]+);", text)
    for body in re.findall(r"enum \w+[^{]*\{(.*?)\};", text, re.DOTALL):
        pairs += re.findall(r"(k\w+) = ([^,}]+)", body)
    for word, value in pairs:
        plain = re.sub(r"\b(0x[0-9a-f]+|\d+)u?l{0,2}\b", r"\1", value.strip())
        expression = re.sub(r"\bk\w+\b", lambda other: str(found[_name(other[0])]), plain)
        assert re.fullmatch(r"[0-9a-fx()<+\- ]+", expression), (word, value)
        found[_name(word)] = eval(expression)
    return found


def test_both_sides_have_the_same_numbers() -> None:
    written = _constants()
    read = {name: value for name, value in vars(fmt).items() if name.isupper() and isinstance(value, int)}
    assert len(written) > 80
    assert {name: value for name, value in read.items() if name in written} == {
        name: value for name, value in written.items() if name in read
    }
    assert {name for name in read if name not in written and not name.startswith("_")} <= ONLY_READ


def test_the_writer_names_every_position() -> None:
    writers = [
        file
        for file in sorted(CSRC.rglob("*.[ch]*"))
        if file.name != "records.h" and WRITES.search(file.read_text())
    ]
    bare = [
        f"{file.name}:{number}: {line.strip()}"
        for file in writers
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if BARE.search(line.partition("//")[0]) and not OTHER_WORDS.search(line)
    ]
    assert len(writers) > 10
    assert bare == []
