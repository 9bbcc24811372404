"""Puts a built PyTorch together as a package of the virtual environment that runs this: Python files of the
source, libraries of the build, and torch/_C.

    assemble.py SOURCE BUILD INSTALLED VERSION
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDERS = ("torch", "torchgen")


def main(source, build, installed, version):
    packages = Path(sysconfig.get_paths()["purelib"])
    for name in FOLDERS:
        if (source / name).is_dir():
            copy_python(source / name, packages / name)
    torch = packages / "torch"
    for name in ("lib", "bin"):
        link(installed / name, torch / name)
    (torch / "version.py").write_text(
        f"__version__ = {version!r}\ndebug = True\ncuda = None\nhip = None\ngit_version = 'Unknown'\n"
    )
    compile_module(source, torch)


def copy_python(source, target):
    """Python files, and what they read at run time; no C++."""
    kinds = shutil.ignore_patterns("csrc", "*.cpp", "*.h", "*.so", "__pycache__", "lib", "bin")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=kinds)


def link(source, target):
    if target.is_symlink():
        target.unlink()
    elif target.is_dir():
        shutil.rmtree(target)
    target.symlink_to(source)


def compile_module(source, torch):
    """torch._C, which only calls into libtorch_python."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    command = [os.environ.get("CC", "gcc"), "-g", "-O0", "-shared", "-fPIC"]
    command += [f"-I{sysconfig.get_paths()['include']}", str(source / "torch/csrc/stub.c")]
    command += ["-o", str(torch / f"_C{suffix}"), f"-L{torch / 'lib'}", "-Wl,-rpath,$ORIGIN/lib"]
    command += ["-Wl,--no-as-needed", "-ltorch_python", "-ltorch"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:4]), sys.argv[4])
