"""The checks of `tracer doctor` that can be held against conditions other than this machine's."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from elf import FUNCTION, write_library
from gpu_trace import PATH

import tracer
from tracer.cli.doctor import _show, _verdict
from tracer.doctor import cuda, environment, machine, software, trial
from tracer.doctor.finding import Finding
from tracer.trace import load

CERTIFICATE = {
    "entries": 100,
    "hooked": 100,
    "not_hooked": [],
    "lost_entries": [],
    "other_signatures": [],
    "guards": {"updateDispatchTableEntry_": True, "checkInvariants": True},
    "unresolved_kernels": 0,
}


def tried(**changes: object) -> trial.Trial:
    said = {"failure": "", "op_calls": 3, "hops": 5, "source_lines": True, "backward": True}
    return trial.Trial(**{**said, "certificate": CERTIFICATE, **changes})  # type: ignore[arg-type]


def certified(**changes: object) -> trial.Trial:
    return tried(certificate={**CERTIFICATE, **changes})


def states(findings: object) -> list[tuple[str, str]]:
    return [(finding.state, finding.name) for finding in findings]  # type: ignore[attr-defined]


def test_torch_is_described_by_its_version_file(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = True\n"
        "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    )
    found = software.check_torch(tmp_path)
    assert found.state == "ok"
    assert found.text == f"2.11.0+cu130, debug build, CUDA 13.0, {tmp_path}"
    assert software.check_torch(None).state == "problem"
    missing = software.check_torch(None)
    assert missing.text == f"not installed in {sys.executable}"
    assert re.fullmatch(r"install it: \S*python\S* -m pip install torch", missing.advice or "")


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 9, 1), "problem"), ((3, 10, 0), "ok"), ((3, 14, 2), "ok"), ((3, 15, 0), "note")],
)
def test_versions_of_python(version: tuple[int, ...], state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert software.check_python().state == state


def test_a_free_threaded_python_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert software.check_python().state != "problem"
    monkeypatch.setattr(sys, "abiflags", "t")
    found = software.check_python()
    assert (found.state, found.advice) == ("problem", "use a Python with the GIL")
    assert "(free-threaded)" in found.text


def test_a_stripped_library_is_noted(tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    assert list(software.check_symbols(tmp_path)) == []
    (lib / "libtorch_cpu.so").write_bytes(b"no ELF file at all")
    assert states(software.check_symbols(tmp_path)) == [("note", "symbols")]
    assert list(software.check_symbols(None)) == []
    write_library(lib / "libtorch_cpu.so", [("f", 64, 8, FUNCTION)], table=".dynsym")
    write_library(lib / "libtorch_python.so", [("f", 64, 8, FUNCTION)])
    assert [(found.state, found.text) for found in software.check_symbols(tmp_path)] == [
        ("note", "libtorch_cpu.so is stripped"),
        ("ok", "libtorch_python.so has .symtab"),
    ]


@pytest.mark.parametrize(
    ("attempt", "found"),
    [
        (tried(), [("ok", "layout"), ("ok", "recording")]),
        (certified(hooked=0), [("problem", "layout"), ("ok", "recording")]),
        (certified(hooked=99), [("note", "layout"), ("ok", "recording")]),
        (certified(not_hooked=["aten::mm"]), [("note", "layout"), ("ok", "recording")]),
        (certified(lost_entries=["aten::mm"]), [("note", "layout"), ("ok", "recording")]),
        (certified(other_signatures=["aten::mm"]), [("note", "layout"), ("ok", "recording")]),
        (certified(guards={"checkInvariants": False}), [("note", "layout"), ("ok", "recording")]),
        (tried(unnamed=3), [("ok", "layout"), ("note", "recording")]),
        (tried(source_lines=False), [("ok", "layout"), ("note", "recording")]),
        (tried(backward=False), [("ok", "layout"), ("note", "recording")]),
        (trial.Trial("it broke; mend it"), [("problem", "recording")]),
    ],
)
def test_what_the_trial_says(attempt: trial.Trial, found: list[tuple[str, str]]) -> None:
    assert states(trial.check_recording(attempt)) == found


def test_a_failed_trial_says_what_to_do() -> None:
    (found,) = trial.check_recording(trial.Trial("tracer was built with A and this is B; rebuild it: C"))
    assert (found.text, found.advice) == ("tracer was built with A and this is B", "rebuild it: C")
    (found,) = trial.check_recording(trial.Trial("broken"))
    assert (found.text, found.advice) == ("broken", "")


@pytest.mark.parametrize(
    ("errors", "status", "reason"),
    [
        ("tracer: X is wrong; do Y\n", 2, "X is wrong; do Y"),
        ("tracer: nothing is recorded: no table\nImportError: z\n", 1, "nothing is recorded: no table"),
        ("Traceback\n  File\nImportError: libfoo.so\n", 1, "ImportError: libfoo.so"),
        ("Traceback\n  File\nOSError: x\ntracer: run.trace\n  complete: nothing\n", 1, "OSError: x"),
        ("", -11, "the recorded script was killed by signal 11"),
    ],
)
def test_why_a_trial_failed(errors: str, status: int, reason: str) -> None:
    assert trial._reason(errors, status) == reason


def cupti(state: str, *, environment: dict[str, str] | None = None, why: str = "", version: int = 130001):
    attempt = certified(cuda={"state": state, "why": why, "cupti": version})
    return list(cuda.check_cupti("13.0", attempt, environment or {}))


def test_cupti_and_who_holds_it() -> None:
    found = cupti("not used")
    assert states(found) == [("ok", "CUPTI"), ("ok", "CUPTI user")]
    assert found[0].text == "13.0"
    assert "tracer doctor --cuda" in found[1].text
    assert "no other tool" in cupti("recorded")[1].text
    held = cupti("held", why="CUPTI is already in use by NAME")[1]
    assert (held.state, held.text) == ("note", "CUPTI is already in use by NAME")
    for variables in (
        {"CUDA_INJECTION64_PATH": "/opt/x.so"},
        {"LD_PRELOAD": "/opt/nsys/libToolsInjection64.so"},
    ):
        found = cupti("not used", environment=variables)
        assert states(found) == [("ok", "CUPTI"), ("note", "CUPTI user")]
        assert next(iter(variables.values())) in found[1].text
    assert cupti("not used", version=26)[0].text == "interface version 26"
    assert states(cupti("failed", why="libcupti.so.13 is not there", version=0)) == [("note", "CUPTI")]
    assert list(cuda.check_cupti(None, tried(), {})) == []
    assert states(cuda.check_cupti("13.0", trial.Trial("broken"), {})) == [("note", "CUPTI")]


def test_without_a_driver_cupti_is_not_asked_for() -> None:
    assert [(found.state, found.text) for found in cupti("no driver", version=0)] == [
        ("ok", "not called: no NVIDIA driver")
    ]


def test_a_cupti_that_crashed_when_it_was_tried() -> None:
    reason = "cuptiSubscribe of libcupti.so.13 crashed (signal 11)"
    attempt = certified(cuda={"state": "failed", "why": reason, "cupti": 0})
    (found,) = cuda.check_cupti("13.0", attempt, {}, reason)
    assert (found.state, found.text) == ("note", reason)
    assert "install another version of the package nvidia-cuda-cupti" in found.advice


def built(monkeypatch: pytest.MonkeyPatch, **facts: str | None) -> None:
    """As if tracer had been built so."""
    known = {
        "TORCH_CUDA": "13.0",
        "CUDA_HEADERS": "13.0",
        "OVERRIDES_MISSING": "",
        "OVERRIDES_NVCC": "13.0.48",
    }
    module = SimpleNamespace(**{**known, **facts})
    monkeypatch.setitem(sys.modules, "tracer._build_info", module)
    monkeypatch.setattr(tracer, "_build_info", module, raising=False)


def test_the_headers_that_tracer_was_built_with(monkeypatch: pytest.MonkeyPatch) -> None:
    built(monkeypatch)
    assert cuda.check_build("13.0").text == "torch has CUDA 13.0, tracer was built with headers of CUDA 13.0"
    assert cuda.check_build("13.0").state == "ok"
    built(monkeypatch, CUDA_HEADERS="13.2")
    found = cuda.check_build("13.0")
    assert (found.state, found.text[-12:]) == ("note", "of CUDA 13.2")
    assert found.advice.startswith("unset CUDA_HOME, which chose these headers, and rebuild it")
    built(monkeypatch, TORCH_CUDA=None)
    assert cuda.check_build("13.0").state == "note"


def test_overrides_that_the_build_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    built(monkeypatch)
    assert cuda.check_overrides("13.0").text == "mm, gru and cat, compiled by nvcc 13.0.48"
    built(monkeypatch, OVERRIDES_MISSING="no working nvcc was found", OVERRIDES_NVCC=None)
    found = cuda.check_overrides("13.0")
    assert (found.state, found.text) == ("note", "mm, gru and cat were not built: no working nvcc was found")
    assert re.search(r"CUDA toolkit and (re)?build it.*pip install .*--force-reinstall", found.advice)
    assert cuda.check_overrides(None).state == "ok"


def test_the_trial_on_the_gpu() -> None:
    counts = {"state": "recorded", "launches": 4, "kernels": 4, "in_a_hop": 3}
    counts |= {"captured_in_a_hop": 1, "reconciles": True}
    found = cuda.check_trial(certified(cuda=counts))
    assert (found.state, found.text) == ("ok", "works: 4 launches, 4 kernels, 4 of them in a hop")
    assert cuda.check_trial(certified(cuda={**counts, "reconciles": False})).state == "note"
    assert cuda.check_trial(certified(cuda={"state": "no driver", "why": "none"})).state == "problem"
    assert cuda.check_trial(trial.Trial("broken")).state == "problem"


@pytest.mark.parametrize(
    ("version", "torch_cuda", "state", "text"),
    [
        (13000, "13.0", "ok", "CUDA 13.0"),
        (12080, "12.6", "ok", "CUDA 12.8"),
        (12080, "13.0", "note", "CUDA 12.8"),
        (None, "13.0", "note", "no NVIDIA driver"),
        (None, None, "ok", "no NVIDIA driver"),
    ],
)
def test_drivers(
    version: int | None, torch_cuda: str | None, state: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "driver_version", lambda: version)
    found = cuda.check_driver(torch_cuda)
    assert found.state == state
    assert text in found.text
    assert bool(found.advice) == (state != "ok")


def test_gpus_are_read_from_the_drivers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_NVIDIA", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cuda.check_gpus("13.0", {}).state == "note"
    assert cuda.check_gpus(None, {}).state == "ok"
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    assert (
        cuda.check_gpus("13.0", {"CUDA_VISIBLE_DEVICES": "0"}).text == "NVIDIA H200, CUDA_VISIBLE_DEVICES='0'"
    )
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul\n")
    assert cuda._release() == "580.65.06"


@pytest.mark.parametrize(
    ("free", "writable", "state"),
    [(50 << 30, True, "ok"), (1 << 29, True, "note"), (1 << 20, True, "problem")],
)
def test_disk_space(free: int, writable: bool, state: str) -> None:
    found = machine.check_folder("/data", free, writable)
    assert found.state == state
    assert bool(found.advice) == (state != "ok")
    assert machine.check_folder("/data", 50 << 30, False).state == "problem"


def test_missing_tools_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for found, advice in ((machine.check_gdb(), "gdb"), (machine.check_compiler(), "g++")):
        assert found.state == "note"
        assert advice in found.advice


@pytest.mark.parametrize(
    ("variables", "state", "text"),
    [
        ({}, "ok", "no variable is set"),
        ({"HOME": "/root"}, "ok", "no variable is set"),
        ({"TRACER_JOIN": "{}"}, "note", "TRACER_JOIN is left over from an earlier recording"),
        ({"TRACER_PAGER": "less"}, "ok", "no variable is set"),
        ({"TRACER_RECORD": "{}"}, "note", "TRACER_RECORD is left over from an earlier recording"),
        ({"TRACER_DEPTH": "3"}, "note", "TRACER_DEPTH=3"),
        ({"PYTHONNOUSERSITE": "1"}, "ok", "PYTHONNOUSERSITE is set"),
        ({"PYTHONHOME": "/opt"}, "note", "PYTHONHOME=/opt"),
        ({"LD_PRELOAD": "/usr/lib/nothing.so"}, "note", "LD_PRELOAD=/usr/lib/nothing.so"),
        ({"LD_PRELOAD": "libbare.so /usr"}, "note", "LD_PRELOAD=libbare.so /usr"),
        ({"CUDA_INJECTION64_PATH": "/opt/x.so"}, "note", "CUDA_INJECTION64_PATH=/opt/x.so"),
    ],
)
def test_variables(variables: dict[str, str], state: str, text: str) -> None:
    (found,) = environment.check_environment(variables, no_site=False)
    assert found.state == state
    assert text in found.text


@pytest.mark.parametrize(
    ("value", "advised"), [(None, True), ("", True), ("0", True), ("1", False), ("2", False)]
)
def test_lines_of_earlier_compiled_code_are_advised(value: str | None, advised: bool) -> None:
    variables = {} if value is None else {"INDUCTOR_PROVENANCE": value}
    found = environment.check_provenance(variables)
    assert found.state == "ok"
    assert ("INDUCTOR_PROVENANCE=1" in found.advice) == advised
    assert ("keep their lines" in found.text) != advised


def test_a_preloaded_library_that_is_missing_is_named() -> None:
    (found,) = environment.check_environment({"LD_PRELOAD": "/usr:/nowhere/a.so"}, no_site=False)
    assert found.advice == "/nowhere/a.so does not exist: unset LD_PRELOAD"


def test_tracer_in_packages_that_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Path(tracer.__file__).parent.parent)
    monkeypatch.setattr("site.getusersitepackages", lambda: folder)
    (found,) = environment.check_environment({"PYTHONNOUSERSITE": "1"}, no_site=False)
    assert (found.state, found.text) == ("problem", f"PYTHONNOUSERSITE is set, and tracer is in {folder}")
    (found,) = environment.check_environment({}, no_site=True)
    assert found.state == "problem"


def test_lines_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    _show(Finding("problem", "environment", "word " * 30, "advice " * 20))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("problem  environment word word")
    assert max(map(len, lines)) <= 80
    assert all(line.startswith(" " * 21) for line in lines[1:])
    assert sum("-> advice" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("problems", "notes", "text"),
    [
        (0, 0, "Recording works here."),
        (0, 2, "Recording works here; 2 notes."),
        (1, 1, "1 problem stops recording; 1 note."),
        (2, 0, "2 problems stop recording."),
    ],
)
def test_verdicts(problems: int, notes: int, text: str) -> None:
    assert _verdict(problems, notes) == text


def test_a_certificate_from_a_gpu_is_understood() -> None:
    said = load(PATH).certificate["cuda"]
    found = cuda.check_trial(certified(cuda=said))
    assert (found.state, found.text) == ("ok", "works: 271 launches, 279 kernels, 279 of them in a hop")
    assert [
        (line.state, line.text.split(":")[0]) for line in cuda.check_cupti("13.0", certified(cuda=said), {})
    ] == [
        ("ok", "13.0"),
        ("ok", "no other tool"),
    ]


@pytest.mark.parametrize(
    ("value", "state", "says"),
    [
        ("off", "ok", "TRACER_MEASURED=off: mode auto of the built-in overrides reads no measurements"),
        ("OFF", "ok", "reads no measurements"),
        ("", "note", "is empty: mode auto of the built-in overrides reads the usual file"),
        ("missing.json", "note", "cannot use this file, as it cannot be read: No such file or directory"),
        ("other.json", "note", "cannot use this file, as it is not a file of measurements"),
        ("good.json", "ok", "TRACER_MEASURED=good.json: mode auto of the built-in overrides reads it"),
    ],
)
def test_the_file_of_measurements_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, state: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.json").write_text("[]")
    Path("good.json").write_text('{"format": 1, "gpu": "a", "torch": "b", "build": "c"}')
    (found,) = environment.check_environment({"TRACER_MEASURED": value}, no_site=False)
    assert found.state == state
    assert says in found.text


@pytest.mark.parametrize(("torch_cuda", "state"), [("13.0", "ok"), ("13.2", "ok"), ("12.8", "note")])
def test_a_wheel_serves_one_major_version_of_cuda(
    torch_cuda: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(monkeypatch)
    monkeypatch.setattr(cuda, "is_wheel", lambda: True)
    found = cuda.check_build(torch_cuda)
    assert found.state == state
    assert "CUDA_HOME" not in found.advice
