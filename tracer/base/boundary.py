"""The trust boundary: only here text of a trace becomes something else than text.

A trace may be a stranger's (SECURITY.md). What is not of the form that it must have raises StrangeTextError.
tests/unit/test_boundary.py holds that no other module does this.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

# tests/cpu/test_foreign_replay.py compares the types with those that torch knows.
_DEVICES = (
    r"cpu|cuda|hip|xpu|mps|meta|mkldnn|opengl|opencl|ideep|fpga|maia|ort|xla|lazy|vulkan|mtia|hpu|ipu|ve|"
    r"privateuseone"
)
DEVICES = frozenset(_DEVICES.split("|"))
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_DEVICE = re.compile(rf"{_WORD.pattern}(?::\d{{1,3}})?")
"""A package may give its device any name"""
_OPERATOR = re.compile(rf"({_WORD.pattern})::({_WORD.pattern})(?:\.({_WORD.pattern}))?")
DEEPEST = 8
"""Lists in lists: no argument of an operator has more than three"""


class StrangeTextError(ValueError):
    """The message is one line: which text of the trace, and what it must be."""


class NotInTorchError(StrangeTextError):
    """The text has the right form, but the torch that is installed has no such thing."""


def device(text: str) -> str:
    """`cpu`, `cuda:1`, `npu:0` if the torch that is loaded calls the device of a back end so."""
    kind, colon, index = text.partition(":")
    _of(_DEVICE, f"privateuseone{colon}{index}" if kind == _renamed() else text, "a device")
    return text


def _renamed() -> str | None:
    torch = sys.modules.get("torch")
    return torch._C._get_privateuse1_backend_name() if torch else None


def word(text: str, what: str) -> str:
    """A name of Python."""
    return _of(_WORD, text, what)[0]


def operator(text: str) -> tuple[str, str, str]:
    """`aten::add.Tensor` as ("aten", "add", "Tensor"); the overload of `aten::mm` is "default"."""
    space, base, overload = _of(_OPERATOR, text, "an operator").groups()
    return space, base, overload or "default"


def _of(form: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    found = form.fullmatch(text)
    if found is None:
        shown = repr(text if len(text) <= 60 else f"{text[:60]}...")
        raise StrangeTextError(f"the trace has {shown} where {what} must be")
    return found


def torch_dtype(name: str) -> Any:
    """The torch.dtype `float32`."""
    import torch

    found = getattr(torch, word(name, "a dtype"), None)
    if not isinstance(found, torch.dtype):
        raise NotInTorchError(f"torch {torch.__version__} has no dtype {name}")
    return found


def torch_constant(name: str) -> Any:
    """A layout or a memory format: `channels_last`."""
    import torch

    found = getattr(torch, word(name, "a constant of torch"), None)
    if not isinstance(found, (torch.layout, torch.memory_format)):
        raise NotInTorchError(f"torch {torch.__version__} has no layout or memory format {name}")
    return found


def saved_tensors(path: str) -> Any:
    """What torch.save wrote into a file that the user named: tensors and lists of them, no other objects."""
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def torch_device(name: str) -> Any:
    import torch

    try:
        return torch.device(device(name))
    except RuntimeError:
        raise NotInTorchError(
            f"torch {torch.__version__} has no device {name}; if a package makes it: --import PACKAGE"
        ) from None


def is_here(name: str) -> bool:
    """Whether the installed torch finds such a device."""
    import torch

    kind = device(name).partition(":")[0]
    if kind in ("cpu", "meta"):
        return True
    try:
        module = torch.get_device_module("cuda" if kind == "hip" else kind)
    except RuntimeError:
        return False
    return bool(module.is_available()) if hasattr(module, "is_available") else True


def torch_operator(name: str) -> Any:
    """The overload of the installed torch."""
    import torch

    space, base, overload = operator(name)
    try:
        found = getattr(getattr(getattr(torch.ops, space), base), overload)
    except AttributeError:
        found = None
    if not isinstance(found, torch._ops.OpOverload):
        raise NotInTorchError(
            f"torch {torch.__version__} has no operator {name}; if a package registers it: --import PACKAGE"
        )
    return found


def value(given: object, depth: int = 0) -> object:
    """A value of JSON that Python has too: None, a bool, a number, a text, or a list of such."""
    if given is None or isinstance(given, (bool, int, float, complex, str)):
        return given
    if isinstance(given, list) and depth < DEEPEST:
        return [value(element, depth + 1) for element in given]
    raise StrangeTextError("the trace has a value that is neither a number, a text nor a list of such")


def literal(given: object) -> str:
    """`value` as Python."""
    known = value(given)
    if isinstance(known, list):
        return f"[{', '.join(map(literal, known))}]"
    if isinstance(known, complex):
        return f"complex({literal(known.real)}, {literal(known.imag)})"
    if isinstance(known, float) and not abs(known) < float("inf"):
        return f'float("{known}")'
    return repr(known)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """A descriptor of a regular file, as an opener makes it. Raises OSError for everything else.

    A path that is not absolute begins in `folder`, a descriptor. With O_NOFOLLOW, the file may not be a link.

    A trace may name any path. Opening a FIFO waits for a writer, opening a device may change it, and reading
    /proc/kmsg takes the kernel's messages.
    """
    if not flags & os.O_NOFOLLOW:
        _check(path)
    elif not stat.S_ISREG(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    try:
        _check(descriptor)  # it may have been replaced since
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def beside(path: Path) -> Path:
    """`.NAME.PID`: where that is made which replaces `path` once it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def new_beside(path: Path) -> tuple[int, Path]:
    """A new file at `beside(path)`, its descriptor first. Raises OSError.

    The folder may be a stranger's, who has put a link there: it is not followed.
    """
    partial = beside(path)
    partial.unlink(missing_ok=True)
    return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), partial


def inside(folder: str, path: str) -> str:
    """The real path of a file, if it is in the folder. Raises OSError if links lead out of it."""
    root, found = os.path.realpath(folder), os.path.realpath(os.path.join(folder, path))
    if os.path.commonpath([root, found]) != root:
        raise OSError(errno.EACCES, f"it is not in {folder}")
    return found


def _check(file: str | os.PathLike[str] | int) -> None:
    found = os.stat(file)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    # Files of /proc and /sys say that they are regular, and have neither a size nor a disk.
    if not found.st_size and not os.statvfs(file).f_blocks:
        raise OSError(errno.EINVAL, "it is not on a disk, but in /proc or a similar place")
