// Functions that torch's allocators call for each block, in the slots through which c10 calls them.
#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace tracer::torch_abi {

constexpr const char* kC10 = "libc10.so";

// ProfiledCPUMemoryReporter::New(void*, size_t) and Delete(void*): of each block of the CPU's allocator. Declared as c10 declares
// them; a member function is called with the object as its first argument.
constexpr const char* kCpuBlockAllocated = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm";
constexpr const char* kCpuBlockFreed = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv";
using CpuBlockAllocated = void (*)(void*, void*, size_t);
using CpuBlockFreed = void (*)(void*, void*);

// c10::reportMemoryUsageToProfiler(), which the allocators of other devices and of shared memory call, in whatever library they
// are. It asks ThreadLocalDebugInfo::get() for the thread's MemoryReportingInfoBase and passes the block on to that.
constexpr const char* kBlockReported = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
constexpr const char* kGetDebugInfo = "_ZN3c1020ThreadLocalDebugInfo3getENS_13DebugInfoKindE";
using GetDebugInfo = c10::DebugInfoBase* (*)(c10::DebugInfoKind);

}  // namespace tracer::torch_abi
