"""What functions of the CUDA runtime and driver do, and when PyTorch calls them."""

from __future__ import annotations

DESCRIPTIONS = {
    "GetDevice": (
        "Reads which device is current for this thread; PyTorch asks before and after nearly every op on "
        "a GPU, to guard and restore the current device."
    ),
    "SetDevice": (
        "Makes a device current for this thread; PyTorch calls it when a device guard enters or leaves "
        "another device than the current one."
    ),
    "GetDeviceCount": "Counts the devices; PyTorch asks once, when CUDA is first looked at.",
    "GetDeviceProperties": (
        "Reads a device's name, limits and features; PyTorch asks once a device and keeps them."
    ),
    "DeviceGetAttribute": (
        "Reads one number about a device; libraries and launch code ask for limits such as shared memory "
        "a block."
    ),
    "DeviceGetStreamPriorityRange": (
        "Reads the range of stream priorities; PyTorch asks before it makes its pool of streams."
    ),
    "DriverGetVersion": "Reads the driver's version; asked when CUDA and its libraries start.",
    "GetDriverEntryPoint": (
        "Finds a driver function by name; PyTorch looks up those that it calls past the runtime."
    ),
    "GetDriverEntryPointByVersion": (
        "Finds a driver function by name and version; PyTorch looks up those that it calls past the runtime."
    ),
    "PointerGetAttributes": (
        "Tells whether a pointer is of host or device, and of which one; PyTorch asks where a pointer "
        "comes from outside, as for pinned memory."
    ),
    "MemGetInfo": (
        "Reads free and total memory of the device; torch.cuda.mem_get_info and out-of-memory errors ask."
    ),
    "LaunchKernel": (
        "Puts a kernel with its grid, block, arguments and shared memory into a stream; every <<<...>>> "
        "in PyTorch and most libraries ends here."
    ),
    "LaunchKernelExC": (
        "As cudaLaunchKernel, with attributes such as a cluster shape or an early start; libraries and "
        "kernels for recent GPUs use it."
    ),
    "LaunchKernelEx": (
        "As cuLaunchKernel, with attributes such as a cluster shape; compiled kernels (Triton, CUTLASS) "
        "for recent GPUs use it."
    ),
    "LaunchCooperativeKernel": (
        "Puts a kernel into a stream whose blocks may wait for each other; few kernels need it."
    ),
    "PushCallConfiguration": (
        "Keeps grid, block, shared memory and stream of a <<<...>>> for the stub that launches; compiled "
        "code calls it before each such launch."
    ),
    "PopCallConfiguration": (
        "Fetches what the push before it kept; the stub of a kernel calls it before it launches."
    ),
    "MemcpyAsync": (
        "Copies in a stream, without waiting unless the host memory is pageable; PyTorch uses it for "
        "tensor.to, copy_, item and contiguous copies between or within devices."
    ),
    "Memcpy": "Copies and waits for the end; rare in PyTorch, some libraries set themselves up with it.",
    "Memcpy2DAsync": "Copies rows with gaps between them in a stream; used where a copy has a stride.",
    "MemcpyPeerAsync": (
        "Copies between two devices in a stream; PyTorch uses it where they have no peer access."
    ),
    "MemcpyToSymbolAsync": "Copies into a variable of device code in a stream.",
    "MemsetAsync": (
        "Fills memory with a byte in a stream; PyTorch uses it for zero_ and for workspaces and counters "
        "of reductions and libraries."
    ),
    "Memset": "Fills memory with a byte; libraries set their workspaces up with it.",
    "Malloc": (
        "Reserves device memory; PyTorch's caching allocator calls it where no cached block fits, mostly "
        "in the first steps."
    ),
    "Free": (
        "Gives device memory back and waits for the device; PyTorch's allocator calls it to make room or "
        "in empty_cache, and cudaFree(0) starts CUDA."
    ),
    "MallocAsync": (
        "Reserves device memory in the order of a stream; PyTorch calls it with the backend cudaMallocAsync."
    ),
    "FreeAsync": (
        "Gives memory back in the order of a stream; PyTorch calls it with the backend cudaMallocAsync."
    ),
    "MallocHost": "Reserves pinned host memory.",
    "HostAlloc": (
        "Reserves pinned host memory; PyTorch's cache of pinned memory calls it where no cached block fits, "
        "as for pin_memory, for copies that do not wait and for the number that item reads."
    ),
    "FreeHost": "Gives pinned host memory back.",
    "HostRegister": (
        "Pins memory that exists already; PyTorch calls it where pinned memory is set to be registered."
    ),
    "MemCreate": (
        "Reserves physical device memory without an address; PyTorch calls it with expandable segments."
    ),
    "MemMap": "Gives physical device memory an address; PyTorch calls it with expandable segments.",
    "StreamCreateWithPriority": (
        "Makes a stream; PyTorch makes 32 for each priority when a stream of its pool is first asked for."
    ),
    "StreamCreate": (
        "Makes a stream that keeps the order with the default stream; libraries and extensions make their "
        "own with it."
    ),
    "StreamCreateWithFlags": "Makes a stream; libraries make their own with it.",
    "StreamQuery": (
        "Tells whether a stream has ended its work, without waiting; Stream.query and NCCL's watchdog ask."
    ),
    "StreamGetPriority": "Reads the priority of a stream; asked when a stream is shown or wrapped.",
    "StreamWaitEvent": (
        "Makes a stream wait for an event, not the host; wait_stream, wait_event and work on side "
        "streams use it."
    ),
    "StreamSynchronize": (
        "Makes the host wait for a stream; item, tolist, nonzero and copies from or to pageable host memory "
        "need it."
    ),
    "DeviceSynchronize": "Makes the host wait for all work of the device; torch.cuda.synchronize calls it.",
    "EventSynchronize": "Makes the host wait for an event; Event.synchronize calls it.",
    "EventCreateWithFlags": (
        "Makes an event; PyTorch makes one where a torch.cuda.Event or a guard over streams needs it."
    ),
    "EventRecord": (
        "Marks a place in a stream; Event.record calls it, and the allocators where memory was used on "
        "another stream."
    ),
    "EventRecordWithFlags": (
        "Marks a place in a stream, also one that is being captured; Event.record calls it."
    ),
    "EventQuery": (
        "Tells whether an event has been reached, without waiting; the allocators ask before they use "
        "memory again."
    ),
    "EventElapsedTime": "Reads the milliseconds between two events; Event.elapsed_time calls it.",
    "EventDestroy": "Ends an event.",
    "StreamIsCapturing": (
        "Tells whether a stream is being captured into a graph; PyTorch's allocators, random generators "
        "and libraries ask before what a capture forbids."
    ),
    "StreamGetCaptureInfo": (
        "Reads whether and into which graph a stream is captured; PyTorch asks when it allocates or "
        "draws random numbers."
    ),
    "ThreadExchangeStreamCaptureMode": (
        "Changes what a capture forbids this thread; PyTorch relaxes it around allocations during a capture."
    ),
    "StreamBeginCapture": "Begins to capture a stream into a graph; torch.cuda.graph calls it.",
    "StreamEndCapture": "Ends a capture and returns the graph; torch.cuda.graph calls it.",
    "GraphInstantiate": (
        "Makes a graph ready to be launched; torch.cuda.graph calls it when the capture has ended."
    ),
    "GraphInstantiateWithFlags": (
        "Makes a graph ready to be launched; torch.cuda.graph calls it when the capture has ended."
    ),
    "GraphLaunch": "Puts all work of a graph into a stream; CUDAGraph.replay calls it.",
    "GetLastError": (
        "Reads and clears this thread's error; PyTorch checks with it after each launch of its own."
    ),
    "PeekAtLastError": (
        "Reads this thread's error and leaves it; libraries such as CUB check with it after a launch."
    ),
    "FuncGetAttributes": (
        "Reads a kernel's registers, shared memory and most threads; CUB asks for the version of its "
        "code, and launch code for limits."
    ),
    "FuncSetAttribute": (
        "Sets a limit of a kernel; needed before a launch with more than 48 KiB of dynamic shared memory."
    ),
    "OccupancyMaxActiveBlocksPerMultiprocessor": (
        "Works out how many blocks fit on a multiprocessor; PyTorch and CUB choose a grid by it."
    ),
    "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
        "Works out how many blocks fit on a multiprocessor; libraries choose a grid by it."
    ),
    "OccupancyMaxActiveClusters": (
        "Works out how many clusters of blocks fit on the device at once; libraries for recent GPUs choose "
        "a kernel or a grid by it."
    ),
    "LibraryLoadData": (
        "Loads device code from memory for all contexts; the runtime does so when a kernel of a library "
        "is first needed."
    ),
    "ModuleLoadData": (
        "Loads device code from memory into a context; compiled kernels (Triton, NVRTC) come in so."
    ),
    "ModuleLoadDataEx": (
        "Loads device code from memory into a context with options; compiled kernels come in so."
    ),
    "ModuleGetFunction": "Finds a kernel in loaded code; compiled kernels are looked up once.",
    "GetSymbolAddress": (
        "Finds the address of a variable of device code; libraries and extensions ask before they read or "
        "fill it, and its code is loaded then if it was not yet."
    ),
    "GetFuncBySymbol": "Finds the driver's kernel behind a function of the runtime.",
    "DeviceCanAccessPeer": (
        "Tells whether a device can read another's memory; PyTorch asks before a copy between devices."
    ),
    "DeviceEnablePeerAccess": (
        "Lets this device read another's memory; PyTorch calls it before the first such copy."
    ),
    "IpcGetMemHandle": "Makes a handle of device memory for another process; torch.multiprocessing sends it.",
}
"""By name without prefix and suffixes of versions and streams."""
