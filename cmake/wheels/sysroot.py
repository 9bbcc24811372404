"""Debian 11's libc (2.31), to link with: what is linked with it runs on every system of manylinux_2_28.

Only names of glibc 2.28 and older are needed in the end: auditwheel looks at each. Needs debootstrap.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SUITE = "bullseye"
PACKAGES = ("libc6", "libc6-dev", "linux-libc-dev")


def make(folder: Path) -> Path:
    """The folder, as a compiler's --sysroot; what is there is not downloaded again."""
    root, packages = folder / "root", folder / "packages"
    if (folder / ".done").exists():
        return root
    if shutil.which("debootstrap") is None:
        raise SystemExit("debootstrap is missing: apt-get install debootstrap")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    include = ",".join(PACKAGES)
    command = ["debootstrap", "--download-only", "--variant=minbase", f"--include={include}", SUITE]
    with (folder / "log.txt").open("w") as log:
        subprocess.run([*command, str(packages)], check=True, stdout=log, stderr=log)
    for package in PACKAGES:
        (file,) = (packages / "var/cache/apt/archives").glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", str(file), str(root)], check=True)
    shutil.rmtree(packages)
    _relative_loader(root)
    (folder / ".done").touch()
    return root


def _relative_loader(root: Path) -> None:
    """libc.so names /lib64/ld-linux-x86-64.so.2, an absolute link, which would lead out of the folder."""
    for link in (root / "lib64").iterdir():
        target = os.readlink(link)
        link.unlink()
        link.symlink_to(f"..{target}")
