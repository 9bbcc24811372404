"""JSON documents of a recording."""

from __future__ import annotations

import json
import zlib
from types import ModuleType


def write_document(native: ModuleType, kind: str, document: object) -> None:
    """Put a JSON document into the trace, compressed: the list of libraries is long."""
    native.write_json(kind, compressed(document))


def compressed(document: object) -> bytes:
    """As the recorder takes it, too, where it writes one itself."""
    return zlib.compress(json.dumps(document).encode())
