"""What functions of the CUDA runtime and driver are for, by rules on their names."""

from __future__ import annotations

import re
from functools import cache

from tracer.trace.api_functions import DESCRIPTIONS

FAMILIES = {
    "launch": "Hands a kernel to a stream, to run on the GPU when what is queued before it has ended.",
    "copy": "Moves bytes between host and device, between devices, or within one.",
    "fill": "Sets device memory to a value.",
    "memory allocation": "Reserves, maps, registers, advises on or gives back memory of device or host.",
    "stream": "Makes, ends, orders or asks about a stream, the queue of work of a GPU.",
    "event": "Makes, records, waits on from a stream, or asks about an event, a mark in a stream.",
    "synchronisation": "Makes the host wait until work on the GPU has ended.",
    "graph": "Captures, builds, changes, instantiates, launches or asks about a CUDA graph.",
    "module and code loading": "Brings device code into the process and finds kernels and variables in it.",
    "occupancy and attributes": "Reads or sets a kernel's limits or the shape of its next launch, "
    "or works out how many of its blocks fit.",
    "query": "Asks about devices, versions, pointers or entry points, and changes nothing.",
    "device and context": "Chooses, configures or resets a device, or makes, enters and ends its context.",
    "error": "Reads or clears the error of this thread, or names one.",
    "peer and IPC": "Gives other GPUs or other processes access to memory and events.",
    "graphics interop": "Shares memory and synchronisation with graphics and other external interfaces.",
    "texture and surface": "Makes and describes textures, surfaces and tensor maps.",
    "callback and profiling": "Runs host code from a stream, or steers profilers, logs and checkpoints.",
}
"""What each family does, in one sentence."""

# The first rule that matches a name gives its family. Names stand without `cuda` or `cu`, version
# and stream suffixes.
_RULES = [
    (family, re.compile(pattern))
    for family, pattern in (
        # Before all others: names in them that mean something else elsewhere.
        ("graphics interop", r"W?GL|VDPAU|D3D|EGLStream|Graphics|NVN|(Import)?External"),
        ("graphics interop", r"(Destroy|Signal|Wait)External|EventCreateFrom(NVN|EGL)Sync"),
        ("graphics interop", r"DeviceGetNvSciSyncAttributes|Semaphore(Create|Export|Destroy)|NNSetAllocator"),
        ("callback and profiling", r"StreamAddCallback|LaunchHostFunc|.*AsyncNotification|Logs|Coredump"),
        ("callback and profiling", r"Profiler|CheckpointProcess"),
        (
            "graph",
            r"Graph(?!ics)|Stream(Begin|End)Capture|StreamIsCapturing|StreamGetCaptureInfo"
            r"|StreamUpdateCaptureDependencies|ThreadExchangeStreamCaptureMode|StreamCreateForCaptureToCig"
            r"|UserObject|Device(Get|Set)?Graph",
        ),
        ("launch", r"Launch"),
        (
            "occupancy and attributes",
            r"(Push|Pop)CallConfiguration|ConfigureCall|SetupArgument|SetDoubleFor|ParamSet"
            r"|FuncSet(BlockShape|SharedSize)",
        ),
        (
            "peer and IPC",
            r"Ipc|.*Peer(Access|Register|Unregister|GetDevicePointer)|.*CanAccessPeer|Multicast",
        ),
        ("peer and IPC", r".*ShareableHandle|MemPool(Ex|Im)portPointer|DeviceGetP2P|.*GPUDirectRDMAWrites"),
        ("peer and IPC", r"MemGetHandleForAddressRange"),
        ("synchronisation", r"(Device|Thread|Ctx|Stream|Event)Synchronize"),
        (
            "texture and surface",
            r".*(Tex(ture)?|Surf(ace)?)(Ref|Obj|1D)|(Un)?[Bb]ind(Texture|Surface)|TensorMap"
            r"|GetTexture|GetSurface|.*ChannelDesc|ModuleGet(Tex|Surf)Ref",
        ),
        ("copy", r"Memcpy|MemPrefetch|MemDiscard|MemBatchDecompress"),
        ("fill", r"Memset"),
        ("error", r"GetLastError|PeekAtLastError|GetError"),
        (
            "occupancy and attributes",
            r"Occupancy|(Func|Kernel)(Get|Set)(Attribute|Cache|Shared|Name|ParamInfo|Param)",
        ),
        (
            "module and code loading",
            r"Module|Library|Link|Binary|CompilePtx|InitModule|Register(Fat|Var|Host|Function|Managed|Unified)"
            r"|UnregisterFat|GetKernel|Kernel|Func(Load|IsLoaded|GetModule)|GetFuncBySymbol|GetSymbol",
        ),
        ("query", r"MemGetInfo|MemGetAddressRange|MemRangeGet|PointerGet"),
        (
            "memory allocation",
            r"Malloc|Free|Host(Alloc|Register|Unregister|Get)|Mem|Array|Mipmapped"
            r"|Device(Get|Set)(Default)?MemPool|StreamAttachMem|CtxResetPersisting|GetMipmapped|PointerSet",
        ),
        ("event", r"Event|StreamWaitEvent|(Ctx|GreenCtx)(Record|Wait)Event"),
        ("stream", r"Stream|GreenCtxStreamCreate"),
        (
            "device and context",
            r"SetDevice|SetValidDevices|ChooseDevice|Init(Device)?$|Thread(Exit|Set)|Device(Reset|Set|PrimaryCtx)"
            r"|Ctx(Create|Destroy|Attach|Detach|Push|Pop|Set|FromGreen)|GreenCtx|DevResource|DevSmResource"
            r"|MultiKernelCooperativeDomain",
        ),
        (
            "query",
            r"Get|Device(Get|ComputeCapability|TotalMem)|(Thread|Ctx)Get|(Driver|Runtime)Get",
        ),
    )
]
_PREFIX = re.compile(r"^_*(cuda|cu64|cu)(?=[A-Z])")
_SUFFIX = re.compile(r"((_v\d+)|(_pt[sd][sz]))+$")


@cache
def role(name: str) -> str | None:
    """The family of a function; None where no rule knows its name."""
    plain = _plain(name)
    return next((family for family, pattern in _RULES if pattern.match(plain)), None)


def describe(name: str) -> str | None:
    """What a function does and when PyTorch calls it; else what its family does."""
    family = role(name)
    return DESCRIPTIONS.get(_plain(name)) or (FAMILIES[family] if family else None)


def is_graph_launch(name: str) -> bool:
    return _plain(name) == "GraphLaunch"


def allocates(name: str) -> bool:
    """Whether the function reserves memory for good: not what gives it back or describes it."""
    return bool(re.match(r"Malloc|HostAlloc|Mem(Host)?Alloc|MemCreate", _plain(name)))


def loads_code(name: str) -> bool:
    return bool(re.match(r"(Module|Library|Func)Load|RegisterFatBinary$|LinkComplete", _plain(name)))


def _plain(name: str) -> str:
    return _PREFIX.sub("", _SUFFIX.sub("", name))
