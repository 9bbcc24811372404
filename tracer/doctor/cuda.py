"""CUDA: torch's and tracer's CUDA parts, driver, GPUs and CUPTI. This does not initialise CUDA."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tracer.base import extension
from tracer.base.build import build_info, is_wheel
from tracer.doctor.finding import Finding
from tracer.doctor.trial import Trial

_NVIDIA = Path("/proc/driver/nvidia")
_INJECTION = "CUDA_INJECTION64_PATH"
_PROFILERS = ("nsys", "nsight", "cupti", "libToolsInjection", "ncu")
_HOPS_ALONE = "tracer records hops, but not CUDA"


def check_build(torch_cuda: str | None) -> Finding:
    """Whether torch has CUDA, and tracer its CUDA part."""
    if torch_cuda is None:
        return Finding("ok", "CUDA", "torch has no CUDA, so tracer records only hops")
    try:
        built_with = build_info()
    except ImportError:
        return Finding("note", "CUDA", f"torch has CUDA {torch_cuda}, but tracer is not built")
    if built_with.TORCH_CUDA is None:
        advice = f"{_HOPS_ALONE}; {extension.rebuild()}"
        return Finding(
            "note", "CUDA", f"torch has CUDA {torch_cuda}, but tracer was built without it", advice
        )
    text = f"torch has CUDA {torch_cuda}, tracer was built with headers of CUDA {built_with.CUDA_HEADERS}"
    if is_wheel():
        return _check_wheel(torch_cuda, str(built_with.CUDA_HEADERS), text)
    if torch_cuda != built_with.CUDA_HEADERS:
        advice = f"unset CUDA_HOME, which chose these headers, and {extension.rebuild()}"
        return Finding("note", "CUDA", text, advice)
    return Finding("ok", "CUDA", text)


def _check_wheel(torch_cuda: str, headers: str, text: str) -> Finding:
    """A wheel's CUDA part is for one major version of CUDA."""
    if torch_cuda.partition(".")[0] == headers.partition(".")[0]:
        return Finding("ok", "CUDA", text)
    return Finding("note", "CUDA", text, f"{_HOPS_ALONE}; {extension.rebuild()}")


def check_overrides(torch_cuda: str | None) -> Finding:
    """Whether the build has the CUDA kernels of mm, gru and cat, and which nvcc compiled them."""
    try:
        built_with = build_info()
    except ImportError:
        return Finding("note", "overrides", "tracer is not built")
    if torch_cuda is None:
        return Finding(
            "ok", "overrides", "only your own; the built-in ones (mm, gru, cat) need a torch with CUDA"
        )
    if built_with.OVERRIDES_NVCC is None:
        text = f"mm, gru and cat were not built: {built_with.OVERRIDES_MISSING}"
        rebuild = extension.rebuild()
        advice = f"your own overrides work; to add these, install a CUDA toolkit and {rebuild}"
        return Finding("note", "overrides", text, advice)
    return Finding("ok", "overrides", f"mm, gru and cat, compiled by nvcc {built_with.OVERRIDES_NVCC}")


def check_driver(torch_cuda: str | None) -> Finding:
    """The NVIDIA driver, and whether it is new enough for torch's CUDA."""
    version = driver_version()
    if version is None:
        if torch_cuda is None:
            return Finding("ok", "driver", "no NVIDIA driver (libcuda.so.1); this torch needs none")
        advice = f"{_HOPS_ALONE}; install the NVIDIA driver, or start the container with GPUs"
        return Finding("note", "driver", "no NVIDIA driver (libcuda.so.1)", advice)
    number = f"{version // 1000}.{version % 1000 // 10}"
    release = _release()
    text = f"{f'{release}, ' if release else ''}up to CUDA {number}"
    if torch_cuda and version // 1000 < int(torch_cuda.split(".")[0]):
        return Finding("note", "driver", text, f"torch needs CUDA {torch_cuda}: install a newer driver")
    return Finding("ok", "driver", text)


def check_gpus(torch_cuda: str | None, environment: Mapping[str, str]) -> Finding:
    gpus = gpu_names()
    hidden = environment.get("CUDA_VISIBLE_DEVICES")
    visible = "" if hidden is None else f", CUDA_VISIBLE_DEVICES={hidden!r}"
    if gpus:
        return Finding("ok", "GPU", ", ".join(gpus) + visible)
    if torch_cuda is None:
        return Finding("ok", "GPU", "none; this torch uses none")
    return Finding("note", "GPU", f"no GPU is visible here{visible}", _HOPS_ALONE)


def check_cupti(
    torch_cuda: str | None, trial: Trial, environment: Mapping[str, str], unusable: str = ""
) -> Iterator[Finding]:
    """Whether CUPTI was found by the trial, its version, and who may hold it.

    unusable    why tracer must not call it here, from `cupti_probe.unusable`
    """
    if torch_cuda is None:
        return
    said = trial.cuda
    version = said.get("cupti")
    if isinstance(version, int) and version:
        place = f", {trial.cupti[0]}" if trial.cupti else ""
        yield Finding("ok", "CUPTI", _cupti_version(version) + place)
    elif trial.failure:
        yield Finding("note", "CUPTI", "not checked, because tracer cannot record")
        return
    elif said.get("state") == "no driver":
        yield Finding("ok", "CUPTI", "not called: no NVIDIA driver")
        return
    elif unusable:
        advice = f"{_HOPS_ALONE}; install another version of the package nvidia-cuda-cupti, or another driver"
        yield Finding("note", "CUPTI", unusable, advice)
        return
    elif said.get("state") == "not used":
        yield Finding("ok", "CUPTI", ", ".join(trial.cupti) or "found; its version is shown if CUDA is used")
    else:
        why = said.get("why") or "not found"
        advice = f"{_HOPS_ALONE}; install torch's package for it: nvidia-cuda-cupti"
        yield Finding("note", "CUPTI", str(why), advice)
        return
    yield _holder(said, environment)


def _cupti_version(number: int) -> str:
    """130001 is 13.0; before CUDA 13 a small number counts the versions of its interface."""
    if number < 10000:
        return f"interface version {number}"
    return f"{number // 10000}.{number % 10000 // 100}"


def _holder(said: Mapping[str, object], environment: Mapping[str, str]) -> Finding:
    other = environment.get(_INJECTION)
    preloaded = environment.get("LD_PRELOAD", "")
    if said.get("state") in ("held", "failed"):
        advice = "end the other tool, or record without CUDA: tracer record --cuda off"
        return Finding("note", "CUPTI user", str(said.get("why")), advice)
    if other or any(name in preloaded for name in _PROFILERS):
        named = f"{_INJECTION}={other}" if other else f"LD_PRELOAD={preloaded}"
        return Finding("note", "CUPTI user", named, f"unset it; otherwise {_HOPS_ALONE}")
    if said.get("state") == "recorded":
        return Finding("ok", "CUPTI user", "no other tool: the trial recorded CUDA")
    return Finding(
        "ok",
        "CUPTI user",
        "no tool is named in the environment; what a script itself starts (torch.profiler) is known when "
        "it initialises CUDA, which this did not: tracer doctor --cuda does",
    )


def check_trial(trial: Trial) -> Finding:
    """The result of a recording on the GPU: launches, and their kernels."""
    if trial.failure:
        return Finding("problem", "GPU trial", trial.failure)
    said = trial.cuda
    if said.get("state") != "recorded":
        advice = "see CUPTI above; to record only hops: tracer record --cuda off"
        return Finding("problem", "GPU trial", str(said.get("why") or said.get("state") or "no CUDA"), advice)
    joined = said["in_a_hop"] + said["captured_in_a_hop"]
    text = f"{said['launches']} launches, {said['kernels']} kernels, {joined} of them in a hop"
    if not said.get("reconciles"):
        return Finding("note", "GPU trial", text, "the certificate in the report says what is missing")
    return Finding("ok", "GPU trial", f"works: {text}")


def driver_version() -> int | None:
    """13000 for CUDA 13.0: what the driver supports; None where there is none. Nothing is initialised."""
    version = ctypes.c_int()
    try:
        known = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0
    except (OSError, AttributeError):
        return None
    return version.value if known else None


def gpu_names() -> list[str]:
    """From the kernel driver's files, else from nvidia-smi."""
    names = []
    for path in sorted(_NVIDIA.glob("gpus/*/information")):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    smi = shutil.which("nvidia-smi")
    if names or smi is None:
        return names
    command = [smi, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if done.returncode else [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _release() -> str:
    """`580.65.06` of the kernel driver; "" where its file is not visible."""
    try:
        words = (_NVIDIA / "version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), "")
