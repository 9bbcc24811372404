"""How much a Parquet file says it holds: of rows, values and bytes, page by page.

A file of some kilobytes can say that it holds any number of equal values, and a reader makes room for them.
Its footer and page headers are in Thrift's compact protocol, after parquet.thrift of apache/parquet-format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MAGIC = b"PAR1"
_TAIL = 8
_LONGEST_FOOTER = 1 << 24
_LONGEST_HEADER = 1 << 16
"""Bytes of a page's header, which has the least and the greatest value of its page"""
_DEEPEST = 16
_VALUES_PER_BYTE, _SIZE_PER_BYTE = 16, 32
"""Of all columns. Tables of 20,000 calls have 2 values, and 2 bytes unpacked, for each byte of their file"""

# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and PageHeader
_ROW_GROUPS, _ROWS, _COLUMNS, _META = 4, 3, 1, 3
_CHUNK_VALUES, _CHUNK_BYTES, _CHUNK_PACKED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 6, 7, 9, 11
_PAGE_BYTES, _PAGE_PACKED, _PAGE_VALUES = 2, 3, 1
_KINDS_OF_PAGE = (5, 7, 8)


def check_held(file: bytes) -> None:
    """Raises ValueError if a file says that it holds more than its bytes may.

    IndexError, KeyError, TypeError: it is no Parquet file.
    """
    length = len(file)
    tail = file[-_TAIL:]
    if tail[4:] != _MAGIC:
        raise ValueError("no Parquet file")
    footer = int.from_bytes(tail[:4], "little")
    if not 0 < footer <= min(_LONGEST_FOOTER, length - _TAIL):
        raise ValueError("its footer is longer than the file")
    rows, values, size, packed = 0, 0, 0, 0
    for group in _Compact(file[length - _TAIL - footer :]).struct().get(_ROW_GROUPS, []):
        rows += _count(group[_ROWS]) * len(group[_COLUMNS])
        for chunk in group[_COLUMNS]:
            meta = chunk[_META]
            packed += _count(meta[_CHUNK_PACKED])
            if packed > length:  # columns that share pages would each be read
                raise ValueError("its columns are longer than the file")
            pages = list(_pages(file, meta))
            values += max(meta[_CHUNK_VALUES], sum(page.values for page in pages))
            size += max(meta[_CHUNK_BYTES], sum(page.size for page in pages))
    if max(rows, values) > _VALUES_PER_BYTE * length:
        raise ValueError("it has more values than its bytes can hold")
    if size > _SIZE_PER_BYTE * length:
        raise ValueError("it is longer, unpacked, than its bytes can hold")


@dataclass(frozen=True)
class _Page:
    values: int
    size: int


def _pages(file: bytes, meta: dict[int, Any]) -> Iterator[_Page]:
    """Those of a column of a row group, its dictionary too."""
    place = min(meta[_DATA_PAGE], meta.get(_DICTIONARY_PAGE) or meta[_DATA_PAGE])
    end = place + meta[_CHUNK_PACKED]
    while place < end:
        if place < 0:
            raise ValueError("a page before its file")
        compact = _Compact(file[place : place + _LONGEST_HEADER])
        header = compact.struct()
        kind: dict[int, int] = next((header[field] for field in _KINDS_OF_PAGE if field in header), {})
        yield _Page(_count(kind[_PAGE_VALUES]), _count(header[_PAGE_BYTES]))
        place += compact.place + _count(header[_PAGE_PACKED])


def _count(number: int) -> int:
    """One that is negative would make up for others that are too large."""
    if number < 0:
        raise ValueError("it has fewer than no rows, values or bytes")
    return number


class _Compact:
    """Values of Thrift's compact protocol: a struct is a dict by number of field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        field = 0
        while kind := self._byte():
            field = field + (kind >> 4) if kind >> 4 else self._integer()
            fields[field] = self._value(kind & 15, depth, of_field=True)
        return fields

    def _value(self, kind: int, depth: int, *, of_field: bool = False) -> Any:
        if depth > _DEEPEST:
            raise ValueError("its values are too deep")
        if kind in (1, 2):  # a field's truth is its kind
            return kind == 1 if of_field else self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("a kind of value that no Parquet has")

    def _integer(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number of more than 64 bits")

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self._data):
            raise ValueError("it ends in the middle of a value")
        return self._data[self.place - count : self.place]
