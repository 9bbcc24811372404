"""A copy of the sources with an environment of its own, in which mutations are tried.

tree    what git knows of the working tree, and what it does not ignore
build   the extension, built from the tree
venv    imports the packages of the Python that runs this, and has a tracer of its own
logs    what builds and tests said
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

import commands
from mutation import Mutation, PatchError

ROOT = Path(__file__).resolve().parents[2]
_BUILD_SECONDS = 3600
_PYTEST = """\
#!{python}
import sys
import pytest
sys.exit(pytest.main())
"""
# A room of the sources, and where it is in the package (pyproject.toml)
_PLACES = {"tracer": "tracer", "gdb": "tracer/gdb"}


class SandboxError(Exception):
    """The sandbox could not be made; one line."""


class Sandbox:
    """One at a time uses the folder."""

    def __init__(self, folder: Path, jobs: int) -> None:
        """Raises SandboxError if another process uses the folder."""
        self.tree, self.logs = folder / "tree", folder / "logs"
        self._build, self._venv, self._kept = folder / "build", folder / "venv", folder / "kept"
        self._jobs = jobs
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(f"{folder} is in use by another run; wait for it") from None

    @property
    def pytest(self) -> Path:
        return self._venv / "bin" / "pytest"

    @property
    def environment(self) -> dict[str, str]:
        """This one, without what leads to another tracer or changes how tests run."""
        others = ("TRACER", "PYTEST_", "PYTHON", "VIRTUAL_ENV")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(others)}
        environment["PATH"] = f"{self._venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        if shutil.which("ccache"):
            environment |= {
                "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
                "CCACHE_BASEDIR": str(self.tree),
                "CCACHE_NOHASHDIR": "1",
            }
        return environment

    def make(self, mutations: Iterable[Mutation]) -> None:
        """Anew, but for the objects of the build. Raises SandboxError."""
        for folder in (self.tree, self.logs, self._venv, self._kept):
            shutil.rmtree(folder, ignore_errors=True)
        self.logs.mkdir()
        self._kept.mkdir()
        self._copy_tree()
        # ninja compares times: an object of an earlier run may be that of a mutated source.
        for mutation in mutations:
            self._touch(mutation)
        self._make_venv()
        self._install()

    def apply(self, mutation: Mutation) -> None:
        """In the tree and in the installed package. Raises PatchError if it does not fit or compile."""
        texts = mutation.mutated(self.tree)
        for file, text in texts.items():
            self._keep(self.tree / file)
            (self.tree / file).write_text(text, encoding="utf-8")
            if place := self._installed(file):
                self._keep(place)
                place.write_text(text, encoding="utf-8")
        if mutation.is_compiled:
            self._compile(mutation)

    def restore(self, mutation: Mutation) -> None:
        """What `apply` changed."""
        for file in mutation.files:
            self._bring_back(self.tree / file)
            if place := self._installed(file):
                self._bring_back(place)
        if mutation.is_compiled:
            self._touch(mutation)
            self._bring_back(self._extension)

    # ---- making it --------------------------------------------------------------------------------

    def _copy_tree(self) -> None:
        """With the times of the files: what has not changed since the last run is not built again."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        try:
            names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise SandboxError(f"git cannot list the sources: {error}") from None
        for name in sorted(filter(None, os.fsdecode(names).split("\0"))):
            source, target = ROOT / name, self.tree / name
            if source.is_symlink() or source.is_file():  # else it is deleted, and git knows it still
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def _make_venv(self) -> None:
        venv.EnvBuilder(symlinks=True, with_pip=False).create(self._venv)
        folders = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        # They come after its own, and their .pth files, such as that of another tracer, are not read.
        (self._packages / "packages.pth").write_text("".join(f"{folder}\n" for folder in folders))
        self.pytest.write_text(_PYTEST.format(python=self._python))
        self.pytest.chmod(0o755)

    def _install(self) -> None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self._python)]
        command += ["install", "--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed"]
        command += ["-C", f"build-dir={self._build}", str(self.tree)]
        if not self._built(command, "install"):
            raise SandboxError(f"tracer could not be built: see {self.logs / 'install.log'}")
        if not self._extension.exists():
            raise SandboxError("tracer was built without its extension: torch is missing")

    @property
    def _python(self) -> Path:
        return self._venv / "bin" / "python"

    @property
    def _packages(self) -> Path:
        return next(self._venv.glob("lib/python*/site-packages"))

    # ---- mutating it --------------------------------------------------------------------------------

    @property
    def _extension(self) -> Path:
        """Where it is installed."""
        return self._packages / "tracer" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"

    def _installed(self, file: str) -> Path | None:
        """Where a source is in the installed package; None if it is not in it."""
        folder, _, rest = file.partition("/")
        return self._packages / _PLACES[folder] / rest if folder in _PLACES else None

    def _compile(self, mutation: Mutation) -> None:
        log = f"{mutation.name}.build"
        if not self._built(["cmake", "--build", str(self._build), "--target", "_C"], log):
            raise PatchError(f"it does not compile: see {self.logs / log}.log")
        self._keep(self._extension)
        shutil.copy2(self._build / self._extension.name, self._extension)

    def _built(self, command: list[str], log: str) -> bool:
        """cmake and ninja may be packages of this Python only."""
        environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(self._jobs), **self.environment}
        environment["PATH"] += f"{os.pathsep}{sysconfig.get_path('scripts')}"
        path = self.logs / f"{log}.log"
        return commands.run(command, self.tree, environment, path, _BUILD_SECONDS) == 0

    def _keep(self, path: Path) -> None:
        """Moves it away: its time comes back with it."""
        path.replace(self._kept_as(path))

    def _bring_back(self, path: Path) -> None:
        if (kept := self._kept_as(path)).exists():
            kept.replace(path)

    def _kept_as(self, path: Path) -> Path:
        return self._kept / "-".join(path.relative_to(self.tree.parent).parts)

    def _touch(self, mutation: Mutation) -> None:
        for file in mutation.files:
            if file.startswith("csrc/") and (self.tree / file).exists():
                (self.tree / file).touch()
