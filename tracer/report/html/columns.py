"""Columns of numbers for a page: compressed, as text that holds in a script element.

The page has each set of columns as base64 of gzip of: the length of the header (uint32, little-endian), the
header (JSON, padded with spaces), the columns one after the other, each at a multiple of 8 bytes. The header
names each column's type, place and length, and has `meta`, any JSON.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.tables.series import numbers

_TYPES = (np.int8, np.int16, np.int32, np.float64)
"""The smallest that holds a column is used; float64 holds integers up to 2^53 exactly"""
_ALIGNMENT = 8


def packed(columns: dict[str, NDArray[Any]], meta: dict[str, Any]) -> str:
    """The text for the page. `columns` hold integers."""
    places: dict[str, tuple[str, int, int]] = {}
    blocks, offset = [], 0
    for name, column in columns.items():
        small = _smallest(column)
        block = small.tobytes()
        places[name] = (small.dtype.name, offset, len(small))
        block += b"\0" * (-len(block) % _ALIGNMENT)
        blocks.append(block)
        offset += len(block)
    header = json.dumps({"columns": places, "meta": meta}, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 4) % _ALIGNMENT)
    plain = b"".join([struct.pack("<I", len(header)), header, *blocks])
    return base64.b64encode(gzip.compress(plain, 9, mtime=0)).decode()


def unpacked(text: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What `packed` was given: for tests and for programs that read a page."""
    plain = gzip.decompress(base64.b64decode(text))
    (length,) = struct.unpack_from("<I", plain)
    header = json.loads(plain[4 : 4 + length])
    columns = {
        name: np.frombuffer(plain, dtype, count, 4 + length + offset)
        for name, (dtype, offset, count) in header["columns"].items()
    }
    return columns, header["meta"]


def of_table(prefix: str, table: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """Columns of numbers as `prefix.name`; null is -1."""
    return {f"{prefix}.{name}": numbers(table[name]) for name in table.columns}


def _smallest(column: NDArray[Any]) -> NDArray[Any]:
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    for kind in _TYPES[:-1]:
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return column.astype(kind)
    return column.astype(np.float64)
