"""Roles of functions of the CUDA runtime and driver, by rules on their names."""

from __future__ import annotations

import re
from functools import cache

# The first rule that matches a name gives its family. Names are without `cuda` or `cu`, version
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
_REVERSED_SUFFIXES = re.compile(r"^(?:\d+v_|[sz][sd]tp_)+")
"""`zstp_2v_` of `_v2_ptsz`: a search for what ends a name begins again at each part of `_v1_v1_v1_x`"""


@cache
def role(name: str) -> str | None:
    """The family of a function; None where no rule knows its name."""
    plain = plain_name(name)
    return next((family for family, pattern in _RULES if pattern.match(plain)), None)


def is_graph_launch(name: str) -> bool:
    return plain_name(name) == "GraphLaunch"


def allocates(name: str) -> bool:
    """Whether the function reserves memory for good: not what gives it back or describes it."""
    return bool(re.match(r"Malloc|HostAlloc|Mem(Host)?Alloc|MemCreate", plain_name(name)))


def loads_code(name: str) -> bool:
    return bool(re.match(r"(Module|Library|Func)Load|RegisterFatBinary$|LinkComplete", plain_name(name)))


def plain_name(name: str) -> str:
    """`MemcpyAsync` of cudaMemcpyAsync and of cuMemcpyAsync_v2_ptsz."""
    return _PREFIX.sub("", _REVERSED_SUFFIXES.sub("", name[::-1])[::-1])
