"""What the script ran in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tracer.report.cells import code, prose, table
from tracer.report.page import Page, details
from tracer.report.reading import Reading
from tracer.report.text import package_relative

title = "Environment"
level = 2

_COMPILE_WORKER = "torch/_inductor/compile_worker/__main__.py"


@dataclass(frozen=True)
class Environment:
    facts: dict[str, Any]
    devices: tuple[str, ...]
    narrowed: list[str]
    """What was asked for instead of everything"""
    processes: list[dict[str, Any]]


def wanted(reading: Reading) -> bool:
    return bool(reading.trace.environment) or len(reading.trace.processes) > 1


def data(reading: Reading) -> Environment:
    facts = reading.trace.environment
    narrowed = list(_narrowed(facts.get("options") or {}, reading.trace.certificate))
    return Environment(facts, reading.devices, narrowed, reading.trace.processes.to_dicts())


def markdown(data: Environment, page: Page) -> str:
    facts = data.facts
    options = facts.get("options") or {}
    off = [name for name in ("shapes", "source") if options.get(name) is False]
    shown = {
        "command": code(" ".join(map(str, facts.get("argv") or []))),
        "started": prose(facts.get("started_at") or ""),
        "torch": prose(facts.get("torch") or ""),
        "GPU": prose(", ".join(data.devices)),
        "CUDA of torch": prose(facts.get("torch_cuda") or "none") if facts.get("torch") else "",
        "python": prose(facts.get("python") or ""),
        "tracer": prose(facts.get("tracer") or ""),
        "processor": prose(facts.get("cpu") or ""),
        "cores": prose(facts.get("cores") or ""),
        "platform": prose(facts.get("platform") or ""),
        **_settings(facts.get("settings") or {}),
        "not recorded": prose(", ".join(off)),
        "recorded": prose("; ".join(data.narrowed)),
    }
    cells = [[name, value] for name, value in shown.items() if value]
    return details("Command, versions and machine", table(["", ""], cells), _processes(data.processes))


def _settings(settings: dict[str, Any]) -> dict[str, str]:
    """Rows of the settings at the end of the recording."""
    threads = settings.get("threads")
    inter = settings.get("interop_threads")
    chosen = [
        name for name in ("deterministic", "cudnn_benchmark", "cudnn_deterministic") if settings.get(name)
    ]
    tf32 = settings.get("cudnn_allow_tf32")
    variables = settings.get("variables") or {}
    within = "" if threads is None else f"{threads} for each op"
    return {
        "threads": f"{within}, {inter} to run ops in parallel" if within and inter else within,
        "variables": ", ".join(code(f"{name}={value}") for name, value in variables.items()),
        "float32 matmul precision": prose(settings.get("float32_matmul_precision") or ""),
        "TF32 in cuDNN": "" if tf32 is None else ("yes" if tf32 else "no"),
        "flags": prose(", ".join(chosen)),
    }


def _processes(processes: list[dict[str, Any]]) -> str:
    if len(processes) < 2:
        return ""
    return "\n".join(
        f"- process {process['process']} (pid {process['pid']}, {prose(process['how'] or 'unknown')}): "
        f"{_command(process['command'])}"
        for process in processes
    )


def _command(text: str | None) -> str:
    """The command of a process; a compile worker's options are numbers of this one run."""
    if text is None:
        return "unknown"
    words, worker, _ = package_relative(text).partition(_COMPILE_WORKER)
    return f"{code(words + worker)} (options left out)" if worker else code(text)


def _narrowed(options: dict[str, Any], certificate: dict[str, Any]) -> Iterator[str]:
    if ops := certificate.get("only_ops"):
        yield f"only operators like {' or '.join(ops)}"
    if isinstance(steps := options.get("steps"), list) and len(steps) == 2:
        yield f"only steps {steps[0]}:{'' if steps[1] is None else steps[1]}"
    if size := certificate.get("max_size"):
        end = "oldest" if options.get("then_stop") else "newest"
        yield f"the {end} {size / (1 << 20):,.4g} MiB"
