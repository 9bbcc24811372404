"""Arguments of API and library functions: from recorded words to typed columns and to text."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.base.numerals import number_of
from tracer.trace.bytes.definitions import Definitions
from tracer.trace.bytes.format import MAX_CALL_WORDS
from tracer.trace.tables.calls import CallColumns, Functions, Words

_UNSIGNED = re.compile(
    r"unsigned( (char|short|int|long|long long))?( int)?|size_t|uint(8|16|32|64)_t|cuuint(32|64)_t|bool|_Bool"
)
_SIGNED = re.compile(
    r"(signed )?(char|short|int|long|long long)( int)?|ssize_t|ptrdiff_t|int(8|16|32|64)_t|CUdevice"
)
_FLOATS = {
    ("float", 4): np.float32,
    ("double", 8): np.float64,
    ("__half", 2): np.float16,
}
_SIZES = (1, 2, 4, 8)
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True)
class Field:
    """One thing that is recorded of a call."""

    at_exit: bool
    name: str
    type: str
    offset: int
    """In bytes, from the first argument word"""
    size: int

    @property
    def plain_type(self) -> str:
        return re.sub(r"\b(const|enum|struct|volatile)\b ?", "", self.type).strip()


_LONGEST_NAME = 64
_BYTES = 8 * MAX_CALL_WORDS


def parse_layout(layout: str) -> list[Field]:
    """The fields of a function, a line each; lines of another form are left out.

    So are fields that a call cannot have: a second one at the same offset, or one behind all argument words.
    The text of a call would be much larger than its record.
    """
    fields: dict[tuple[bool, int], Field] = {}
    for line in layout.splitlines():
        parts = line.split("\t")
        if len(parts) != 5 or parts[0] not in ("enter", "exit"):
            continue
        at_exit = parts[0] == "exit"
        name, c_type = (part[:_LONGEST_NAME] for part in parts[1:3])
        offset, size = (number_of(part, _BYTES) for part in parts[3:])
        if offset is not None and size:
            fields.setdefault((at_exit, offset), Field(at_exit, name, c_type, offset, size))
    return list(fields.values())


class CallArguments:
    """The arguments of all calls, decoded when they are asked for."""

    def __init__(self, calls: CallColumns, functions: Functions, definitions: Definitions) -> None:
        self._function = calls.function
        self._words = (calls.enter_words, calls.exit_words)
        self._order = np.argsort(calls.function, kind="stable")
        self._bounds = np.searchsorted(
            calls.function[self._order], np.arange(len(functions.numbers) + 1), "left"
        )
        self._defined = []
        enumerations: dict[int, Mapping[str, dict[int, str]]] = {}
        for process, domain, number in functions.numbers:
            defined = definitions.functions[process][domain, number]
            fields = parse_layout(defined.layout)
            if process not in enumerations:
                lineage = definitions.lineage(process)
                known = [own for owner in lineage if (own := definitions.enumerations.get(owner))]
                enumerations[process] = ChainMap(*known)
            self._defined.append((defined.name, fields, enumerations[process]))

    def names(self) -> list[str]:
        """The name of each function, by its code."""
        return [name for name, _, _ in self._defined]

    def texts(self) -> pl.Series:
        """For each call `count=4096, kind=cudaMemcpyHostToDevice`; "" where nothing is recorded."""
        parts, rows = [], []
        for code, (_, fields, enumerations) in enumerate(self._defined):
            of_function = self._rows(code)
            if fields and len(of_function):
                rows.append(of_function)
                parts.append(self._texts(of_function, fields, enumerations))
        count = len(self._function)
        if not parts:
            return pl.Series("arguments", [""], pl.String).new_from_index(0, count)
        # One row per call: the place of its text among those of all functions, or the empty text.
        texts = pl.concat([*parts, pl.Series([""], dtype=pl.String)])
        place = np.full(count, len(texts) - 1, np.int64)
        decoded = np.concatenate(rows)
        place[decoded] = np.arange(len(decoded))
        return texts.gather(place).alias("arguments")

    def table(self, function: str, ids: NDArray[np.int64]) -> pl.DataFrame:
        """The id of each call of a function and a typed column for each of its fields.

        `ids`: of all calls, in the tables. Raises KeyError where no call of the function was
        recorded.
        """
        tables = [
            self._columns(self._rows(code), ids, fields, enumerations)
            for code, (name, fields, enumerations) in enumerate(self._defined)
            if name == function and len(self._rows(code))
        ]
        if not tables:
            raise KeyError(f"no call of {function} was recorded")
        return pl.concat(tables, how="diagonal_relaxed").sort("id")

    def _rows(self, code: int) -> NDArray[np.int64]:
        return self._order[self._bounds[code] : self._bounds[code + 1]]

    def _columns(
        self,
        rows: NDArray[np.int64],
        ids: NDArray[np.int64],
        fields: list[Field],
        enumerations: Mapping[str, dict[int, str]],
    ) -> pl.DataFrame:
        columns = {"id": pl.Series(ids[rows].astype(np.uint32))}
        for field, values, known in self._values(rows, fields):
            names = enumerations.get(field.plain_type)
            column = _enumerated(values, names) if names else pl.Series(values)
            # What a pointer pointed at before the call and after it has one name.
            title = f"{field.name} (returned)" if field.name in columns else field.name
            columns[title] = _only(column, known)
        return pl.DataFrame(columns)

    def _texts(
        self, rows: NDArray[np.int64], fields: list[Field], enumerations: Mapping[str, dict[int, str]]
    ) -> pl.Series:
        texts, pieces = [], []
        for number, (field, values, known) in enumerate(self._values(rows, fields)):
            column = f"{number}"
            texts.append(_only(_text(field, values, enumerations), known).alias(column))
            pieces.append(pl.format("{}={}", pl.lit(field.name), pl.col(column)))
        joined = pl.concat_str(pieces, separator=", ", ignore_nulls=True)
        return pl.DataFrame(texts).select(joined).to_series()

    def _values(
        self, rows: NDArray[np.int64], fields: list[Field]
    ) -> list[tuple[Field, NDArray[np.generic] | pl.Series, NDArray[np.bool_]]]:
        """Each field with its value in each call and whether it was recorded; those at the call first."""
        found = []
        for at_exit in (False, True):
            wanted = [field for field in fields if field.at_exit == at_exit]
            if not wanted:
                continue
            words: Words = self._words[at_exit]
            data = words.rows(rows).view(np.uint8).reshape(len(rows), -1)
            size = words.count[rows] * 8
            for field in wanted:
                known = field.offset + field.size <= size
                found.append((field, _decode(data, field), known))
        return found


def hexadecimal(values: NDArray[np.generic]) -> pl.Series:
    """`0x7f00...` for each value (unsigned integers)."""
    count = len(values)
    if not count:
        return pl.Series([], dtype=pl.String)
    distinct, inverse = np.unique(values.astype(np.uint64), return_inverse=True)
    octets = distinct.astype(">u8").view(np.uint8).reshape(-1, 8)
    lines = np.full((len(distinct), 17), ord("\n"), np.uint8)
    lines[:, 0:16:2] = _HEX_DIGITS[octets >> 4]
    lines[:, 1:16:2] = _HEX_DIGITS[octets & 15]
    texts = pl.Series([lines.tobytes()[:-1].decode()]).str.split("\n").explode()
    short = texts.str.strip_chars_start("0")
    named = "0x" + short.set(short == "", "0")
    return named.gather(inverse.reshape(-1))


def _decode(data: NDArray[np.uint8], field: Field) -> NDArray[np.generic] | pl.Series:
    """The values of a field; hexadecimal text for values that are not numbers."""
    octets = np.zeros((len(data), field.size), np.uint8)
    there = data[:, field.offset : field.offset + field.size]
    octets[:, : there.shape[1]] = there
    plain = field.plain_type
    if (plain, field.size) in _FLOATS:
        floats: NDArray[np.generic] = octets.view(_FLOATS[plain, field.size]).reshape(-1)
        return floats.astype(np.float32) if field.size == 2 else floats
    if field.size not in _SIZES:
        return _octet_text(octets)
    # Enumerations have 4 bytes and may be negative; pointers and handles have 8.
    signed = _SIGNED.fullmatch(plain) or (field.size == 4 and not _UNSIGNED.fullmatch(plain))
    return octets.view(f"{'i' if signed else 'u'}{field.size}").reshape(-1)


def _text(
    field: Field, values: NDArray[np.generic] | pl.Series, enumerations: Mapping[str, dict[int, str]]
) -> pl.Series:
    if isinstance(values, pl.Series):
        return values
    names = enumerations.get(field.plain_type)
    if names:
        return _enumerated(values, names)
    # Handles are pointers behind a typedef.
    plain = field.plain_type
    is_number = bool(_UNSIGNED.fullmatch(plain) or _SIGNED.fullmatch(plain)) or field.size == 4
    if is_number or values.dtype.kind == "f":
        return pl.Series(values).cast(pl.String)
    return hexadecimal(values)


def _octet_text(octets: NDArray[np.uint8]) -> pl.Series:
    count, size = octets.shape
    lines = np.full((count, 2 * size + 1), ord("\n"), np.uint8)
    lines[:, 0 : 2 * size : 2] = _HEX_DIGITS[octets >> 4]
    lines[:, 1 : 2 * size : 2] = _HEX_DIGITS[octets & 15]
    if not count:
        return pl.Series([], dtype=pl.String)
    return pl.Series([lines.tobytes()[:-1].decode()]).str.split("\n").explode()


def _enumerated(values: NDArray[np.generic] | pl.Series, names: dict[int, str]) -> pl.Series:
    """The name of each number; the number itself where it has none."""
    distinct, inverse = np.unique(np.asarray(values), return_inverse=True)
    texts = [names.get(int(number), str(number)) for number in distinct.tolist()]
    return pl.Series(texts, dtype=pl.String).gather(inverse.reshape(-1))


def _only(column: pl.Series, known: NDArray[np.bool_]) -> pl.Series:
    """Null where it was not recorded."""
    return column if known.all() else column.set(pl.Series(~known), None)
