"""tracer doctor understands the certificate of a real recording on a GPU."""

from __future__ import annotations

from gpu_trace import PATH

from tracer.doctor import cuda, trial
from tracer.trace import load

CERTIFICATE = {
    "entries": 100,
    "hooked": 100,
    "not_hooked": [],
    "lost_entries": [],
    "guards": {"updateDispatchTableEntry_": True, "checkInvariants": True},
    "unresolved_kernels": 0,
}


def tried(**changes: object) -> trial.Trial:
    said = {"failure": "", "op_calls": 3, "hops": 5, "source_lines": True, "backward": True}
    return trial.Trial(**{**said, "certificate": CERTIFICATE, **changes})  # type: ignore[arg-type]


def certified(**changes: object) -> trial.Trial:
    return tried(certificate={**CERTIFICATE, **changes})


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
