"""A trace whose names are made to fool a terminal, to break out of markdown and to run in a browser."""

from __future__ import annotations

from pathlib import Path

from synthetic import ENUMS, TraceWriter, tensor

EVIL = (
    "x\x1b]0;title\x07\x1b[1A\x1b[2K\x9b31m\x7f\u202egnp\u2066\u200b\ufeff\n```\n\n# INJECTED\n\n<img src=x "
    "onerror=alert(1)>\n\n[link](javascript:alert(1)) `` \\|<b>| \u2028" + "words " * 14 + "# INJECTED <div>"
)


def write(path: Path, evil: str = EVIL) -> Path:
    """A trace in which everything that can have a name has this one."""
    writer = TraceWriter()
    enums = {
        **ENUMS,
        "keys": [evil, [evil, evil + "CPU", evil], [evil, evil, evil]],
        "dtypes": {"6": evil},
        "device_types": {"0": evil},
        "layouts": {"0": evil},
    }
    writer.process(
        certificate={
            "entries": 1,
            "hooked": 0,
            "not_hooked": [{"op": evil, "key": evil, "why": evil, evil: evil}],
            "lost_entries": [{evil: evil}],
            "out_of_space": evil,
            "guards": {evil: False},
            "steps": {"wanted": [0, None], "ended": 3, "counted_by": evil},
            "cuda": {
                "state": evil,
                "why": evil,
                evil: evil,
                evil + "2": 7,
                evil + "3": [evil],
            },
        }
    )
    writer.process(1, how=7, certificate=None)
    writer.json(0, "enums", enums)
    texts = dict.fromkeys(("torch", "torch_cuda", "python", "tracer", "cpu", "platform", "started_at"), evil)
    options = {"ops": [evil], "steps": [0, None], "shapes": False}
    writer.json(0, "environment", {**texts, "argv": [evil, evil], "cwd": evil, "options": options})
    entry = dict.fromkeys(("name", "mode", "operator", "key", "kernel", "registered_at"), evil)
    writer.json(0, "overrides", {"overrides": [{**entry, "ran": 0, "handed_over": {evil: 1}}]})
    writer.hop(0, evil, key=evil, registered_at=evil, rule=evil, python_kernel=evil)
    writer.hop(1, "aten::mm", address=0x20)
    writer.symbol(0x20, evil, evil)
    writer.symbol(0x30, evil, evil)
    writer.module_path(1, evil, evil)
    for number, name in enumerate(("cudaLaunchKernel", "cudaMalloc", evil, "cudaStreamSynchronize"), 1):
        writer.function(number, name, ("enter", evil.replace("\n", " "), evil.replace("\n", " "), 0, 4))
    writer.function(9, "cublas" + evil, domain=2)
    writer.gpu(0, evil, numMultiprocessors=132)
    writer.string(1, evil)
    lane = writer.lane()
    lane.name_thread(1, evil)
    other = writer.lane(1, thread=2000)
    other.name_thread(1, evil)
    for each in (lane, other):
        each.define_source(1, evil, 3)
        each.define_source(2, evil, 4)
        each.define_python_stack(3, 1, 2)
        each.define_string(1, evil)
        each.define_signature(1, tensor((2, 3)), tensor((2, 3), device=(1, 0), position=1))
        each.define_stack(1, 0x30, 0x20)
    for step in range(4):
        lane.module(1)
        lane.enter(0, source=3, sequence=step, signature=1)
        lane.enter(1, call_site=2)
        lane.library_enter(9)
        for function in (1, 2, 3, 4):
            lane.api(function, 5, correlation=100 * function + step, stack=1, kernel=1)
        lane.call_exit()
        lane.exit(raised=step == 2)
        lane.exit()
        lane.node(1, step, made_by=1)
        lane.enter(1, source=1)
        lane.exit()
        writer.kernel(100 + step, writer.ticks, writer.ticks + 90, name=1)
        writer.activity(2, 200 + step, writer.ticks, writer.ticks + 5, size=64)
        lane.step(step + 1)
    other.enter(0, source=3)
    return writer.write(path)
