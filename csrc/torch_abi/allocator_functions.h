// Functions that torch's allocators call for each block, in the slots through which c10 calls them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/Device.h>

namespace tracer::torch_abi {

constexpr const char* kC10 = "libc10.so";
constexpr const char* kC10Cuda = "libc10_cuda.so";

// ProfiledCPUMemoryReporter::New(void*, size_t) and Delete(void*): of each block of the CPU's allocator. Declared as c10 declares
// them; a member function is called with the object as its first argument.
constexpr const char* kCpuBlockAllocated = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm";
constexpr const char* kCpuBlockFreed = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv";
using CpuBlockAllocated = void (*)(void*, void*, size_t);
using CpuBlockFreed = void (*)(void*, void*);

// reportMemoryUsageToProfiler(void* block, int64_t size, size_t allocated, size_t reserved, Device): of each block of the CUDA
// allocator; the size is negative where it is freed.
constexpr const char* kBlockReported = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
using BlockReported = void (*)(void*, int64_t, size_t, size_t, c10::Device);

}  // namespace tracer::torch_abi
