"""Libraries to load first (LD_PRELOAD): with them CUPTI is of another version, refuses, or is not there."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from elftools.elf.elffile import ELFFile

HIDDEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

/* The real dlopen is reached by a jump (-O2), so that it sees the caller's own search path. */
void *dlopen(const char *file, int mode) {
  static void *(*real)(const char *, int);
  if (file && strstr(file, HIDDEN)) return 0;
  if (!real) real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  return real(file, mode);
}
"""


def find_cupti() -> Path | None:
    """The CUPTI that torch brings, else the toolkit's."""
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    folders = [*packages.glob("**/lib"), *Path("/usr/local").glob("cuda*/extras/CUPTI/lib64")]
    folders += Path("/usr/local").glob("cuda*/lib64")
    found = (path for folder in folders for path in sorted(folder.glob("libcupti.so.1[0-9]")))
    return next(found, None)


def build_hiding(folder: Path, name: str) -> Path:
    """dlopen finds no library whose path has `name` in it."""
    return _build(folder, f"hiding_{name}", HIDDEN, f'-DHIDDEN="{name}"', "-ldl")


def build_other(
    folder: Path,
    cupti: Path,
    *,
    version: int,
    without: tuple[str, ...] = (),
    failing: tuple[str, ...] = (),
    failure: tuple[int, str] = (0, ""),
) -> Path:
    """A library that is called like `cupti` and has its functions, `without` some, which do nothing.

    Those that are `failing` return the number of `failure`, whose text cuptiGetResultString gives.
    """
    number, text = failure
    with cupti.open("rb") as file:
        elf = ELFFile(file)
        names = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
        soname = next(
            tag.soname
            for tag in elf.get_section_by_name(".dynamic").iter_tags()
            if tag.entry.d_tag == "DT_SONAME"
        )
    special = {"cuptiGetVersion", "cuptiGetResultString"}
    stubs = sorted(name for name in names if name.startswith("cupti") and name not in {*special, *without})
    source = "\n".join(
        [
            f"int cuptiGetVersion(unsigned *version) {{ *version = {version}; return 0; }}",
            f'int cuptiGetResultString(int result, const char **text) {{ *text = "{text}"; return 0; }}',
            *(f"int {name}(void) {{ return {number if name in failing else 0}; }}" for name in stubs),
        ]
    )
    # libtorch_cpu asks for the functions in the version that is called like the library
    versions = folder / f"other_cupti_{version}_{number}.map"
    versions.write_text(f"{soname} {{ global: *; }};\n")
    options = (f"-Wl,-soname,{soname}", f"-Wl,--version-script,{versions}")
    return _build(folder, f"other_cupti_{version}_{number}", source, *options)


def _build(folder: Path, name: str, source: str, *options: str) -> Path:
    code, library = folder / f"{name}.c", folder / f"{name}.so"
    code.write_text(source)
    subprocess.run(
        ["gcc", "-O2", "-w", "-shared", "-fPIC", "-o", str(library), str(code), *options], check=True
    )
    return library
