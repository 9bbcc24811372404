#include "allocations.h"

#include <atomic>
#include <cstdint>

#include "native/elf.h"
#include "torch_abi/allocator_functions.h"
#include "trace/lane.h"

namespace tracer {
namespace {

std::atomic<bool> followed{false};
torch_abi::CpuBlockAllocated cpu_block_allocated = nullptr;
torch_abi::CpuBlockFreed cpu_block_freed = nullptr;
torch_abi::BlockReported block_reported = nullptr;

void write(const void* block, uint64_t size, bool freed, uint64_t device_type, int device_index) {
  if (!block || !followed.load(std::memory_order_relaxed)) return;
  trace::Lane* lane = trace::current_lane();
  if (!lane) return;
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
  cpu_block_allocated(reporter, block, size);
}

void on_cpu_block_freed(void* reporter, void* block) {
  write(block, 0, true, uint64_t(c10::DeviceType::CPU), -1);  // its size is that of its allocation
  cpu_block_freed(reporter, block);
}

void on_block_reported(void* block, int64_t size, size_t allocated, size_t reserved, c10::Device device) {
  if (size) write(block, uint64_t(size < 0 ? -size : size), size < 0, uint64_t(device.type()), device.index());
  block_reported(block, size, allocated, reserved, device);
}

template <class Function>
void take_slot(const char* library, const char* symbol, Function ours, Function& original) {
  if (original) return;
  void** slot = native::find_plt_slot(library, symbol);
  if (!slot) return;
  original = reinterpret_cast<Function>(*slot);
  if (!native::write_plt_slot(slot, reinterpret_cast<void*>(ours))) original = nullptr;
}

}  // namespace

void follow_allocations(bool wanted) {
  if (wanted) {
    // Both or neither: a block that is freed without being seen would look as if it were never given back.
    take_slot(torch_abi::kC10, torch_abi::kCpuBlockFreed, &on_cpu_block_freed, cpu_block_freed);
    if (cpu_block_freed) take_slot(torch_abi::kC10, torch_abi::kCpuBlockAllocated, &on_cpu_block_allocated, cpu_block_allocated);
    take_slot(torch_abi::kC10Cuda, torch_abi::kBlockReported, &on_block_reported, block_reported);
  }
  followed.store(wanted);
}

AllocationState allocation_state() { return {followed.load(), cpu_block_allocated != nullptr, block_reported != nullptr}; }

}  // namespace tracer
