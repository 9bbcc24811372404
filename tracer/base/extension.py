"""The C++ extension, and whether it matches the installed torch."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from types import ModuleType

from tracer.base.build import build_for, builds, is_wheel, native, torch_of
from tracer.base.errors import RecordingError
from tracer.base.package import DISTRIBUTION, FOLDER
from tracer.base.quoting import quoted
from tracer.base.this_torch import this_torch
from tracer.base.torch_build import TorchBuild

OLDEST_TORCH = (2, 10)
# Packages that call the user's kernels
LAUNCHERS = ("triton", "numba", "numba_cuda", "cupy", "cupyx", "cupy_backends")
TOOLS = "scikit-build-core cmake ninja"  # that a build without isolation needs
_OF_A_TOOL = ("pipx_metadata.json", "uv-receipt.toml")  # pipx and `uv tool`: tracer's own environment


def load() -> ModuleType:
    """Import `tracer._C`, after torch. Raises RecordingError if the two do not match."""
    try:
        torch = this_torch()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise RecordingError(no_torch()) from None

    build = check(TorchBuild(str(torch.__version__), getattr(torch.version, "git_version", None)))
    try:
        module = native(build)
    except ImportError as error:
        raise RecordingError(
            f"tracer's extension does not load with torch {torch.__version__} "
            f"({_first_line(error)}); {rebuild()}"
        ) from None
    if module.recording() is None:  # running threads read the list
        module.hide_sources(
            [_folder(torch.__file__), os.path.join(FOLDER, ""), *_launchers()], _folder(os.__file__)
        )
    return module


def _folder(file: str | None) -> str:
    return os.path.join(os.path.dirname(str(file)), "")


def _launchers() -> list[str]:
    """The folders of LAUNCHERS that are installed; none is imported."""
    found = []
    for name in LAUNCHERS:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a replacement that the script has put into sys.modules
            continue
        if spec is not None and spec.origin:
            found.append(_folder(spec.origin))
    return found


def check(torch: TorchBuild | None) -> ModuleType:
    """The account of the build that runs with a torch (None: not installed).

    Raises RecordingError, naming both versions and the command that rebuilds, and on a free-threaded Python.
    """
    if is_free_threaded():
        raise RecordingError(
            f"Python {sys.version.split()[0]} is a free-threaded build, where tracer only reads traces; "
            "to record, use a Python with the GIL"
        )
    if torch is None:
        raise RecordingError(no_torch())
    found = builds()
    if not found:
        source = os.path.dirname(FOLDER)
        if installed := _installed_elsewhere():
            raise RecordingError(
                f"{source} is tracer's source and hides the tracer installed in {installed}; "
                "run the command tracer, or python -m tracer in another folder"
            )
        raise RecordingError(f"{source} is tracer's source and tracer is not installed; {install(source)}")
    if _numbers(torch.version) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise RecordingError(f"torch {torch.version} is too old; install torch {oldest} or newer")
    if found[-1].TORCH_VERSION is None:
        raise RecordingError(f"tracer was built without torch, so it only reads traces; {rebuild()}")
    if build := build_for(torch, found):
        return build
    versions = " and ".join(torch_of(build).named(torch) for build in found)
    here = torch.named(torch_of(found[0]))
    raise RecordingError(f"tracer was built with torch {versions}, but this is torch {here}; {rebuild()}")


def no_torch() -> str:
    """What is missing, and after a semicolon what to do."""
    missing = f"torch is not installed in {sys.executable}"
    if any(os.path.exists(os.path.join(sys.prefix, name)) for name in _OF_A_TOOL):
        from shutil import which

        python = quoted(which("python") or which("python3") or "python")
        return f"{missing}; to record, install tracer where your script runs: {_install_into(python)}"
    return f"{missing}; install it: {_python()} -m pip install torch"


def _install_into(python: str) -> str:
    """How to install this tracer into another environment."""
    if is_wheel():
        return f"{python} -m pip install {DISTRIBUTION}"
    return _commands("", _source_folder() or ".", python)


def rebuild() -> str:
    """How to build tracer again with the torch of this Python, from where it was installed."""
    folder = _source_folder()
    if is_wheel():
        return "build it: " + _commands(
            f"--force-reinstall --no-deps --no-binary {DISTRIBUTION}", DISTRIBUTION
        )
    where = "rebuild it: " if folder else "rebuild it in its folder: "
    return where + _commands("--force-reinstall --no-deps", folder or ".")


def install(folder: str | None = None) -> str:
    """How to install tracer here, from `folder`, else from where it was installed before."""
    if not folder and is_wheel():
        return f"install it here: {_install_into(_python())}"
    folder = folder or _source_folder()
    where = "install it here: " if folder else "install it here, from its source folder: "
    return where + _commands("", folder or ".")


def _commands(options: str, folder: str, other_python: str = "") -> str:
    python = other_python or _python()
    pip = f"{python} -m pip install"
    # Not importlib.util: setuptools' finder would take the question for pip's own, and from then on the
    # script could not import setuptools.
    no_pip = not other_python and PathFinder.find_spec("pip") is None
    words = [pip, "--no-build-isolation", options, quoted(folder)]
    first = f"{python} -m ensurepip && " if no_pip else ""
    return f"{first}{pip} {TOOLS} && {' '.join(word for word in words if word)}"


def _python() -> str:
    """This Python, as a shell finds it."""
    from shutil import which

    found = which("python") or ""
    same_folder = os.path.dirname(found) == os.path.dirname(sys.executable)
    same = same_folder and os.path.realpath(found) == os.path.realpath(sys.executable)
    return "python" if same else quoted(sys.executable)


def _source_folder() -> str | None:
    """Where pip installed this tracer from, if that folder is still there."""
    import json
    from importlib.metadata import distribution
    from urllib.parse import unquote, urlsplit

    try:
        url = urlsplit(json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")["url"])
    except Exception:  # not installed by pip, or a file that says something else
        return None
    folder = unquote(url.path) if url.scheme == "file" else ""
    return folder if os.path.exists(os.path.join(folder, "pyproject.toml")) else None


def is_free_threaded() -> bool:
    """Whether this Python was built without the GIL. Its objects differ, even if the GIL is on."""
    return "t" in getattr(sys, "abiflags", "")


def _installed_elsewhere() -> str | None:
    """The folder of sys.path that has a built tracer."""
    for folder in sys.path:
        if any(
            os.path.exists(os.path.join(folder, "tracer", name)) for name in ("_build_info.py", "_native")
        ):
            return folder
    return None


def _numbers(version: str) -> tuple[int, ...]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    digits = "".join(character for character in minor if character.isdigit())
    return (int(major), int(digits)) if major.isdigit() and digits else OLDEST_TORCH


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
