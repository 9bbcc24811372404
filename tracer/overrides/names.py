"""Names of overrides as users give them: `mm`, `mm:force`, `module:function`, `file.py:function`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tracer.overrides import builtin, registry
from tracer.overrides.file_module import module_name
from tracer.overrides.meant import UNKNOWN, meant_by
from tracer.overrides.override import AUTO, MODES, Override
from tracer.overrides.override_errors import BuiltinError, OverrideError


class Given(NamedTuple):
    """`module` is empty if the name is that of a registered override."""

    text: str
    module: str
    name: str
    mode: str


def parse(text: str) -> Given:
    """The parts of a name; raises OverrideError if it has another form."""
    if not isinstance(text, str) or not text:
        raise OverrideError(f"{text!r} is not an override name; give one such as mm or my_module:my_mm")
    rest, _, last = text.rpartition(":")
    body, mode = (rest, last) if rest and last in MODES else (text, AUTO)
    module, _, name = body.rpartition(":")
    if not name or (":" in body and not module):
        raise OverrideError(f"{text} is not an override name; give one such as mm or my_module:my_mm")
    return Given(text, module, name, mode)


def checked(text: str, folder: str) -> str:
    """The name as another process can use it that finds modules in `folder` too.

    Raises OverrideError for what can be seen without importing torch or the module.
    """
    given = parse(text)
    if given.module.endswith(".py"):
        path = os.path.abspath(given.module)
        if not os.path.isfile(path):
            raise OverrideError(f"no file {given.module} for the override {given.text}; check its name")
        return f"{path}{text[len(given.module) :]}"
    if given.module:
        top = given.module.partition(".")[0]
        if not _is_there(top, folder):
            raise OverrideError(f"no module {top} here for the override {given.text}; check its name")
    elif given.name not in registry.registered():
        raise OverrideError(registry.unknown(given.name))
    elif reason := builtin.missing():
        raise BuiltinError(reason)
    return text


def is_built_in(text: str) -> bool:
    """Whether a built-in override is named, in any mode."""
    given = parse(text)
    return not given.module and given.name in builtin.NAMES


def _is_there(module: str, folder: str) -> bool:
    sys.path.insert(0, folder)
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path.remove(folder)


def find(text: str) -> tuple[Override, str]:
    """The named override and its mode; imports the module, if the name has one.

    Raises OverrideError; what a module raises when it is imported passes through.
    """
    given = parse(text)
    if not given.module:
        return registry.named(given.name), given.mode
    module = _imported(given.module)
    function = getattr(module, given.name, None)
    names = registry.overrides_with(function) if function is not None else []
    if given.name in names or (not names and given.name in registry.own()):
        return registry.named(given.name), given.mode
    if len(names) == 1:
        return registry.named(names[0]), given.mode
    if names:
        raise OverrideError(f"{given.text} is registered as {' and '.join(names)}; give one of these names")
    if function is None:
        raise OverrideError(
            f"module {given.module} has no function {given.name} and registers no override of that name"
        )
    operator = meant_by(given.name) or UNKNOWN
    raise OverrideError(
        f"{given.text} does not say which operator it is for; write above it: "
        f'@tracer.overrides.register("{operator}", "CPU", name="{given.name}")'
    )


def _imported(name: str) -> ModuleType:
    if not name.endswith(".py"):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                raise OverrideError(f"no module {name} here; check its name") from None
            raise
    path = Path(name).resolve()
    loaded = module_name(path)
    if loaded in sys.modules:
        return sys.modules[loaded]
    spec = spec_from_file_location(loaded, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OverrideError(f"no file {name} with an override; check its name")
    module = sys.modules[loaded] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[loaded]
        raise
    return module
