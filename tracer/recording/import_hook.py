"""Runs a function right after `import torch` has finished, and leaves no trace in the import."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` is not loaded yet when the interpreter starts
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class TorchImportHook:
    """A finder that finds nothing itself: it wraps the loader that the other finders return."""

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported
        self._searching = False

    def install(self) -> None:
        """Wait for torch; if it is imported already, call at once."""
        if "torch" in sys.modules:
            self._imported()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or self._searching:
            return None
        self._searching = True  # another such hook would ask us again, for ever
        try:
            for finder in list(sys.meta_path):
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    self._wrap(spec.loader)
                    return spec
        finally:
            self._searching = False
        return None

    def _wrap(self, loader: Any) -> None:
        original = getattr(loader, "exec_module", None)
        if original is not None:  # else a folder named torch: no package, nothing to run
            loader.exec_module = _Torch(self, loader, original).exec_module

    def ran(self) -> None:
        """torch has been imported."""
        self.remove()
        self._imported()


class _Torch:
    """What runs the module torch in place of its loader, once."""

    def __init__(self, hook: TorchImportHook, loader: Any, original: Callable[[ModuleType], object]) -> None:
        self._hook, self._loader, self._original = hook, loader, original

    def exec_module(self, module: ModuleType) -> None:
        vars(self._loader).pop("exec_module", None)
        self._original(module)
        self._hook.ran()

    # When an import fails, Python drops importlib's own frames from the traceback, and knows them
    # by this file name: ours goes with them, so that the script shows the traceback it always had.
    # Here, not in the import: an audit hook of the program may refuse to change code.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")
