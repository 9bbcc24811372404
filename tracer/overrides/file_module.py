"""Names of modules that `--override file.py:function` loads: no import of a script meets one by chance."""

from __future__ import annotations

import re
from pathlib import Path

_PREFIX = "_tracer_override_"


def module_name(path: Path) -> str:
    """What the module of this file is called in sys.modules."""
    return f"{_PREFIX}{path.stem}_{abs(hash(str(path)))}"


def shown(module: str) -> str:
    """The name for people: that of the file without .py; any other module's name as it is."""
    return re.sub(rf"^{_PREFIX}(.+)_\d+$", r"\1", module)
