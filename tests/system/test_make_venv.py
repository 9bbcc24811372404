"""`make` changes and deletes only an environment that it made itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("Makefile", "pyproject.toml", "cmake/timed.sh", "cmake/whose_venv.sh", "cmake/choose_torch.py")
MARK = ".made_by_make"
FOREIGN = ".venv was not made by this Makefile"
# The pip of these environments leaves a trace if anything calls it.
PIP = "import sys, pathlib; pathlib.Path(sys.prefix, 'pip_was_called').write_text(' '.join(sys.argv[1:]))"
PYTHON_WITHOUT_PIP = f"""#!/bin/sh
[ "$2" != venv ] || set -- "$@" --without-pip
exec "{sys.executable}" "$@"
"""

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What make needs of the repository until it has an environment."""
    folder = tmp_path / "clone"
    for name in NEEDED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    python = tmp_path / "python"
    python.write_text(PYTHON_WITHOUT_PIP)
    python.chmod(0o755)
    return folder


def make(clone: Path, *arguments: str, python: str = "") -> tuple[int, list[str], list[str]]:
    """Exit status, and the lines on stdout and stderr. `true` is a compiler that is there."""
    of_make = ("VENV", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")  # of a `make test` that runs this
    environment = {name: text for name, text in os.environ.items() if name not in of_make}
    done = subprocess.run(
        ["make", *arguments, f"PYTHON={python or clone.parent / 'python'}", "CXX=true"],
        cwd=clone,
        env=environment | {"PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def environment_with_torch(folder: Path) -> Path:
    """An environment as a user makes it, with a torch that was chosen with care."""
    venv.create(folder)
    packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for package, name, text in (
        ("torch", "__init__.py", "__version__ = '2.11.0+cu130'"),
        ("torch-2.11.0+cu130.dist-info", "METADATA", "Name: torch\nVersion: 2.11.0+cu130\n"),
        ("pip", "__main__.py", PIP),
    ):
        (packages / package).mkdir()
        (packages / package / name).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, object]:
    """Every file below a folder, or the one that it is: what it holds, and when it was written."""
    paths = [folder, *folder.rglob("*")]
    return {
        str(path): (
            os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes(),
            path.lstat().st_mtime_ns,
        )
        for path in paths
    }


def of_user(clone: Path) -> None:
    environment_with_torch(clone / ".venv")


def linked(clone: Path) -> None:
    """As of a tool that keeps all environments in one place."""
    (clone / ".venv").symlink_to(environment_with_torch(clone.parent / "central"))


def link_to_nothing(clone: Path) -> None:
    (clone / ".venv").symlink_to(clone.parent / "gone")


def a_file(clone: Path) -> None:
    """The name of an environment, as some tools write it."""
    (clone / ".venv").write_text("my-project\n")


def no_environment(clone: Path) -> None:
    """A folder with a file that is called as a stamp of make's."""
    (clone / ".venv").mkdir()
    (clone / ".venv/.tools").write_text("mine")


foreign = pytest.mark.parametrize(
    "put", [of_user, linked, link_to_nothing, a_file, no_environment], ids=lambda put: put.__name__
)


@foreign
@pytest.mark.parametrize("goal", ["test", "demo", "lint"])
def test_an_environment_of_somebody_else_is_not_touched(
    clone: Path, put: Callable[[Path], None], goal: str
) -> None:
    put(clone)
    before = contents(clone), contents(clone.parent)
    status, out, errors = make(clone, goal)
    assert (status, out) == (2, [])
    assert errors[0] == f"{FOREIGN}; choose another folder: make {goal} VENV=build/venv"
    assert len(errors) == 2  # the other one is make's own
    assert (contents(clone), contents(clone.parent)) == before


@pytest.mark.parametrize("goal", ["install", "dist", "docs", "cuda-check", "test-browser", "fuzz"])
def test_no_target_touches_it(clone: Path, goal: str) -> None:
    of_user(clone)
    before = contents(clone)
    assert make(clone, goal)[0] == 2
    assert contents(clone) == before


@foreign
def test_clean_leaves_it(clone: Path, put: Callable[[Path], None]) -> None:
    put(clone)
    (clone / "build/demo").mkdir(parents=True)
    kept = [clone / ".venv", *clone.parent.glob("central")]
    before = [contents(folder) for folder in kept]
    assert make(clone, "clean") == (0, ["rm -rf build", f"{FOREIGN}, so it stays"], [])
    assert not (clone / "build").exists()
    assert [contents(folder) for folder in kept] == before


def test_make_knows_the_environment_that_it_made(clone: Path) -> None:
    status, out, errors = make(clone, ".venv/bin/python")
    assert (status, errors) == (0, [])
    assert out[0] == "== virtual environment .venv"
    assert (clone / ".venv" / MARK).exists()
    assert make(clone, "check") == (0, [], [])
    assert make(clone, "clean") == (0, ["rm -rf build", "rm -rf .venv"], [])
    assert sorted(path.name for path in clone.iterdir()) == ["Makefile", "cmake", "pyproject.toml"]
    assert make(clone, "clean") == (0, ["rm -rf build"], [])


def test_an_environment_that_could_not_be_made_is_ours(clone: Path) -> None:
    failing = clone.parent / "failing"
    failing.write_text(f'#!/bin/sh\n[ "$2" != venv ] || exit 1\nexec "{sys.executable}" "$@"\n')
    failing.chmod(0o755)
    assert make(clone, ".venv/bin/python", python=str(failing))[0] == 2
    assert make(clone, ".venv/bin/python")[0] == 0


@pytest.mark.parametrize("stamp", [".installed", ".tools", ".torch-1640767327-20", ".docs.txt"])
def test_one_that_an_earlier_makefile_made_is_ours(clone: Path, stamp: str) -> None:
    of_user(clone)
    (clone / ".venv" / stamp).touch()
    assert make(clone, "check") == (0, [], [])
    assert make(clone, "clean")[1] == ["rm -rf build", "rm -rf .venv"]
    assert not (clone / ".venv").exists()


def test_another_torch_is_asked_for(clone: Path) -> None:
    """Of make's own environment the torch is make's."""
    of_user(clone)
    (clone / ".venv" / MARK).touch()
    make(clone, "test", "TORCH=torch==2.15.0")
    assert (clone / ".venv/pip_was_called").exists()


def test_an_empty_folder_is_free(clone: Path) -> None:
    (clone / "empty").mkdir()
    assert make(clone, "check", "VENV=empty") == (0, [], [])


def test_another_folder_is_used(clone: Path) -> None:
    of_user(clone)
    before = contents(clone / ".venv")
    assert make(clone, "build/venv/bin/python", "VENV=build/venv")[0] == 0
    assert (clone / "build/venv" / MARK).exists()
    assert contents(clone / ".venv") == before


@pytest.mark.parametrize(("folder", "other"), [(".", "build/venv"), ("build/venv", "build/tracer_venv")])
def test_a_folder_with_other_things_is_not_used(clone: Path, folder: str, other: str) -> None:
    (clone / "build/venv").mkdir(parents=True)
    (clone / "build/venv/notes").write_text("mine")
    before = contents(clone)
    status, _, errors = make(clone, "demo", f"VENV={folder}")
    said = f"{folder} was not made by this Makefile; choose another folder: make demo VENV={other}"
    assert (status, errors[0]) == (2, said)
    assert contents(clone) == before


@pytest.mark.parametrize("folder", ["", "a b"])
@pytest.mark.parametrize("goal", ["test", "clean"])
def test_a_folder_that_make_cannot_name(clone: Path, goal: str, folder: str) -> None:
    for name in "a", "b":
        (clone / name).write_text("mine")
    before = contents(clone)
    status, _, (error,) = make(clone, goal, f"VENV={folder}")
    assert status == 2
    assert error.endswith(
        f"*** VENV='{folder}': give one folder without blanks, such as VENV=build/venv.  Stop."
    )
    assert contents(clone) == before


def test_a_python_that_is_missing_is_named_beside_an_environment(clone: Path) -> None:
    of_user(clone)
    (clone / ".venv" / MARK).touch()
    errors = make(clone, "check", python="python9")[2]
    assert errors[0] == "python9 is missing: apt-get install python3 python3-venv python3-dev"
    assert len(errors) == 2


def test_the_environment_has_another_python(clone: Path) -> None:
    of_user(clone)
    (clone / ".venv" / MARK).touch()
    (clone / ".venv/bin/python").unlink()
    (clone / ".venv/bin/python").write_text("#!/bin/sh\necho 3.8\n")
    (clone / ".venv/bin/python").chmod(0o755)
    python = str(clone.parent / "python")
    said = f".venv has Python 3.8, not that of PYTHON={python}: make clean first, or add VENV=FOLDER"
    assert make(clone, "check")[2][0] == said
