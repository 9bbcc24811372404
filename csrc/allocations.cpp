#include "allocations.h"

#include <atomic>
#include <cstdint>
#include <string_view>

#include "native/caller.h"
#include "native/elf.h"
#include "python/source_line.h"
#include "torch_abi/allocator_functions.h"
#include "trace/lane.h"

namespace tracer {
namespace {

std::atomic<bool> followed{false};
torch_abi::CpuBlockAllocated cpu_block_allocated = nullptr;
torch_abi::CpuBlockFreed cpu_block_freed = nullptr;
torch_abi::GetDebugInfo get_debug_info = nullptr;
// Where c10::reportMemoryUsageToProfiler() is.
uint64_t reporting_begin = 0, reporting_end = 0;
// In the CPU's allocator, which reports its blocks as the others do while torch's profiler runs.
constinit thread_local bool in_cpu_allocator __attribute__((tls_model("initial-exec"))) = false;

// Blocks that a hop asked for have its line.
void write_line(trace::Lane* lane) noexcept try {
  uint64_t source = lane->depth == 0 && lane->source ? python::source_id(lane) : 0;
  if (source) trace::write_event(lane, trace::kMemoryLine, lane->now(), source);
} catch (...) {  // no memory for the line: torch's allocator goes on
}

void write(const void* block, uint64_t size, bool freed, uint64_t device_type, int device_index) {
  if (!block || !followed.load(std::memory_order_relaxed)) return;
  trace::Lane* lane = trace::current_lane();
  if (!lane) return;
  if (!freed) write_line(lane);
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  uint64_t device = (device_type & trace::kMemoryDeviceTypeMask) << trace::kMemoryDeviceTypeShift |
                    (uint64_t(device_index + 1) & trace::kMemoryDeviceIndexMask) << trace::kMemoryDeviceIndexShift;
  trace::write_event(lane, trace::kMemory, lane->now(),
                     (reinterpret_cast<uint64_t>(block) & trace::kMemoryAddressMask) | depth << trace::kMemoryDepthShift |
                         uint64_t(freed) << trace::kMemoryFreedShift,
                     (size < trace::kMemorySizeMask ? size : trace::kMemorySizeMask) | device);
}

void on_cpu_block_allocated(void* reporter, void* block, size_t size) {
  if (size) write(block, size, false, uint64_t(c10::DeviceType::CPU), -1);
  in_cpu_allocator = true;
  cpu_block_allocated(reporter, block, size);
  in_cpu_allocator = false;
}

void on_cpu_block_freed(void* reporter, void* block) {
  write(block, 0, true, uint64_t(c10::DeviceType::CPU), -1);  // its size is that of its allocation
  in_cpu_allocator = true;
  cpu_block_freed(reporter, block);
  in_cpu_allocator = false;
}

// What reportMemoryUsageToProfiler() finds in place of torch's profiler, which gets the blocks from here.
struct Reporter final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* block, int64_t size, size_t allocated, size_t reserved, c10::Device device) override {
    if (size && !in_cpu_allocator) write(block, uint64_t(size < 0 ? -size : size), size < 0, uint64_t(device.type()), device.index());
    auto* profiler = static_cast<c10::MemoryReportingInfoBase*>(get_debug_info(c10::DebugInfoKind::PROFILER_STATE));
    if (profiler) profiler->reportMemoryUsage(block, size, allocated, reserved, device);
  }
  bool memoryProfilingEnabled() const override { return true; }
};
Reporter& reporter = *new Reporter;

c10::DebugInfoBase* on_get_debug_info(c10::DebugInfoKind kind) {
  uint64_t caller = native::plain_address(__builtin_return_address(0));
  bool reports = kind == c10::DebugInfoKind::PROFILER_STATE && caller > reporting_begin && caller <= reporting_end;
  return reports && followed.load(std::memory_order_relaxed) ? &reporter : get_debug_info(kind);
}

// Another library may be called by way of a slot of its own, or of none: what all of them call is in libc10.
bool find_reporting() {
  native::Library library = native::find_library(torch_abi::kC10);
  native::for_each_function(library.path, [&](const char* name, uint64_t address, uint64_t size) {
    if (std::string_view(name) != torch_abi::kBlockReported) return;
    reporting_begin = library.load_bias + address;
    reporting_end = reporting_begin + size;
  });
  return reporting_begin != 0;
}

template <class Function>
void take_slot(const char* symbol, Function ours, Function& original) {
  if (original) return;
  void** slot = native::find_plt_slot(torch_abi::kC10, symbol);
  if (!slot) return;
  original = reinterpret_cast<Function>(*slot);
  if (!native::write_plt_slot(slot, reinterpret_cast<void*>(ours))) original = nullptr;
}

}  // namespace

void follow_allocations(bool wanted) {
  if (wanted) {
    // Both or neither: a block that is freed without being seen would look as if it were never given back.
    take_slot(torch_abi::kCpuBlockFreed, &on_cpu_block_freed, cpu_block_freed);
    if (cpu_block_freed) take_slot(torch_abi::kCpuBlockAllocated, &on_cpu_block_allocated, cpu_block_allocated);
    if (reporting_begin || find_reporting()) take_slot(torch_abi::kGetDebugInfo, &on_get_debug_info, get_debug_info);
  }
  followed.store(wanted);
}

AllocationState allocation_state() { return {followed.load(), cpu_block_allocated != nullptr, get_debug_info != nullptr}; }

}  // namespace tracer
