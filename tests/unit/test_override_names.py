"""Names of overrides, and what is said of those that cannot be used; all of it without torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tracer.base.errors import RecordingError
from tracer.overrides import OverrideError, names, registered, unregister
from tracer.overrides.file_module import module_name, shown
from tracer.overrides.names import Given
from tracer.recording.options import Options


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mm", ("", "mm", "auto")),
        ("mm:auto", ("", "mm", "auto")),
        ("mm:force", ("", "mm", "force")),
        ("package.kernels:my_mm", ("package.kernels", "my_mm", "auto")),
        ("package.kernels:my_mm:force", ("package.kernels", "my_mm", "force")),
        ("folder/kernels.py:my_mm:auto", ("folder/kernels.py", "my_mm", "auto")),
        ("force", ("", "force", "auto")),
    ],
)
def test_a_name_has_a_module_and_a_mode_or_not(text: str, parts: tuple[str, str, str]) -> None:
    assert names.parse(text) == Given(text, *parts)


@pytest.mark.parametrize("text", ["", ":", ":mm", "mm:", "module::"])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(
        OverrideError, match="is not an override name; give one such as mm or my_module:my_mm"
    ):
        names.parse(text)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(OverrideError, match="unknown override nope; choose mm, gru, cat, or give your own"):
        names.checked("nope", str(tmp_path))
    with pytest.raises(OverrideError, match="unknown override nope"):
        unregister("nope")
    with pytest.raises(OverrideError, match="override mm is built in and cannot be removed"):
        unregister("mm")
    assert list(registered())[:3] == ["mm", "gru", "cat"]


def test_modules_and_files_are_looked_for_and_not_imported(tmp_path: Path) -> None:
    (tmp_path / "my_kernels.py").write_text("raise SystemExit('imported')\n")
    assert names.checked("my_kernels:my_mm", str(tmp_path)) == "my_kernels:my_mm"
    assert str(tmp_path) not in sys.path
    with pytest.raises(OverrideError, match="no module my_kernels here"):
        names.checked("my_kernels:my_mm", str(tmp_path / "elsewhere"))
    path = tmp_path / "my_kernels.py"
    assert names.checked(f"{os.path.relpath(path)}:my_mm:force", "") == f"{path}:my_mm:force"
    with pytest.raises(OverrideError, match=r"no file gone\.py for the override gone\.py:my_mm"):
        names.checked("gone.py:my_mm", str(tmp_path))


def test_a_built_in_override_says_what_it_needs(tmp_path: Path) -> None:
    try:
        import tracer._overrides  # noqa: F401
    except ImportError:
        with pytest.raises(
            OverrideError,
            match=r"\(mm, gru, cat\) need a GPU, and this tracer was built without them.*any device",
        ):
            names.checked("mm", str(tmp_path))
    else:
        assert names.checked("mm", str(tmp_path)) == "mm"


def test_options_carry_overrides_to_other_processes() -> None:
    options = Options(override=["mm:force", "my_kernels:my_mm"])
    assert Options.of(options.document()).override == ["mm:force", "my_kernels:my_mm"]
    assert Options().override == []
    assert Options(override="mm").override == ["mm"]
    with pytest.raises(RecordingError):
        Options(cuda="maybe")


def test_modules_of_files_are_shown_by_the_name_of_the_file() -> None:
    assert shown(module_name(Path("/a/b/my_kernels_2.py"))) == "my_kernels_2"
    assert module_name(Path("/a/k.py")) != module_name(Path("/b/k.py"))
    assert shown("package.module_1") == "package.module_1"
