"""The mutations of tests/mutations fit the sources, and name tests that exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "mutations"), str(ROOT / "cmake" / "checks")]

import mutation  # noqa: E402
import room_tests  # noqa: E402
from mutation import Change, PatchError  # noqa: E402

NAMES = [path.stem for path in sorted(mutation.FOLDER.glob("*.patch"))]
COMPILED = ("dispatch", "native", "python", "torch_abi", "trace")
"""Rooms of csrc in which a fault shows without a GPU"""
PATCH = """\
# Breaks: the sum
# Seen as: a sum that is
#   too small
# Tests: tests/unit/test_sum.py::test_two
#   tests/unit/test_sum.py
diff --git a/sum.py b/sum.py
--- a/sum.py
+++ b/sum.py
@@ -1,3 +1,3 @@ def total(numbers):
 def total(numbers):

-    return sum(numbers)
+    return sum(numbers[1:])
"""
SOURCE = "def total(numbers):\n\n    return sum(numbers)\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "sum.patch"
    path.write_text(text)
    return path


# ---- those of the folder -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_fits_the_sources(name: str) -> None:
    texts = mutation.read(mutation.FOLDER / f"{name}.patch").mutated(ROOT)
    assert texts
    assert all(text != (ROOT / file).read_text(encoding="utf-8") for file, text in texts.items())


@pytest.mark.parametrize("name", NAMES)
def test_the_nearest_tests_of_each_exist(name: str) -> None:
    tests = mutation.read(mutation.FOLDER / f"{name}.patch").tests
    assert tests
    for test in tests:
        file, _, function = test.partition("::")
        assert (ROOT / file).is_file(), f"{file} is gone: which test is nearest now?"
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not function or f"\ndef {function}(" in text, f"{test} is gone: which test is nearest now?"


def test_every_room_has_one() -> None:
    rooms = {room for each in mutation.every().values() for room in each.rooms}
    of_tracer = {room for room in room_tests.rooms() if (ROOT / "tracer" / room).is_dir()}
    assert of_tracer - rooms == set()
    compiled = {room for each in mutation.every().values() if each.is_compiled for room in each.rooms}
    assert compiled == set(COMPILED)
    assert len(NAMES) >= 20


def test_none_changes_a_test() -> None:
    """A mutation in a test would be caught by itself."""
    files = {file for each in mutation.every().values() for file in each.files}
    assert {file.partition("/")[0] for file in files} <= {"csrc", "tracer", "gdb"}


# ---- how a patch is read -------------------------------------------------------------------------------


def test_a_patch_with_its_header(tmp_path: Path) -> None:
    read = mutation.read(written(tmp_path, PATCH))
    assert (read.name, read.breaks, read.seen) == ("sum", "the sum", "a sum that is too small")
    assert read.tests == ("tests/unit/test_sum.py::test_two", "tests/unit/test_sum.py")
    (tmp_path / "sum.py").write_text(SOURCE)
    assert read.mutated(tmp_path) == {"sum.py": SOURCE.replace("sum(numbers)", "sum(numbers[1:])")}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# Breaks: the sum\n", "", "needs Breaks, Seen as, Tests"),
        ("# Breaks: ", "# breaks: ", "a header has lines such as"),
        ("1,3 +1,3", "1,3 +1,4", "has not as many lines as it says"),
        (PATCH[PATCH.index("diff") :], "", "changes nothing"),
    ],
)
def test_a_malformed_patch_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(PatchError, match=said):
        mutation.read(written(tmp_path, PATCH.replace(old, new)))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCE.replace("sum(", "fsum("), "has the lines of the patch 0 times"),
        (SOURCE + SOURCE, "has the lines of the patch 2 times"),
        (None, "does not exist any more"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path, source: str | None, said: str) -> None:
    read = mutation.read(written(tmp_path, PATCH))
    if source is not None:
        (tmp_path / "sum.py").write_text(source)
    with pytest.raises(PatchError, match=said):
        read.mutated(tmp_path)


def test_a_mutation_must_still_be_python(tmp_path: Path) -> None:
    patch = PATCH.replace("numbers[1:]", "numbers[1:")
    (tmp_path / "sum.py").write_text(SOURCE)
    with pytest.raises(PatchError, match=r"sum\.py is no Python any more"):
        mutation.read(written(tmp_path, patch)).mutated(tmp_path)


def test_files_beside_the_rooms_are_in_none() -> None:
    changes = tuple(
        Change(file, "a\n", "b\n") for file in ("csrc/trace/ring.h", "csrc/fork.h", "tracer/cli/app.py")
    )
    made = mutation.Mutation("x", "", "", (), changes)
    assert made.rooms == ("trace", "cli")
    assert made.is_compiled
