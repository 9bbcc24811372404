"""torch for test modules, imported when a test first uses it: `from lazily import nn, torch`.

Importing torch takes two seconds, and each worker of pytest imports every test module to collect its tests.
So no test module imports torch at its top. Put what needs torch when it is defined, such as a subclass of
nn.Module, into a function, or into a helper module that only functions import.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

# pytest looks for these, and for names as __test__, in all that a test module holds. torch has none of them.
_SOUGHT = {"_mock_name", "_pytestfixturefunction"}
_OF_TORCH = {"__file__", "__version__"}


class Lazily(types.ModuleType):
    """Gives the attributes of the module of its name, which it imports at the first use.

    It is a module itself, because torch.compile and torch.jit.script look at the globals of a function.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _SOUGHT or (name.startswith("__") and name not in _OF_TORCH):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(importlib.import_module(self.__name__), name, value)


torch = Lazily("torch")
nn = Lazily("torch.nn")
pytree = Lazily("torch.utils._pytree")
