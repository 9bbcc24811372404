// The copy engine of sm_90 and newer, which copies between memory and shared memory, or between the shared memories of a cluster, while the
// threads do other work; and the barriers in shared memory that say when its bytes are there.
#pragma once

#include "device.cuh"
#include "tensor_map.h"

namespace tracer::overrides {

#if __CUDA_ARCH__ >= 900
// ---- barriers -----------------------------------------------------------------------------------
// A barrier's phase ends when as many arrivals as it was made for have come, and the bytes that were to be expected.
// Phases count 0, 1, 0, ..
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barriers_are_seen() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Whether a phase has ended.
__device__ __forceinline__ bool phase_ended(uint64_t* barrier, uint32_t phase) {
  uint32_t ended;
  asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
               : "=r"(ended)
               : "r"(shared_address(barrier)), "r"(phase)
               : "memory");
  return ended != 0;
}
// Copies `bytes`, a multiple of 16, from memory to shared memory, and counts them at a barrier.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// Brings the slab at (column, row) of a matrix to shared memory, and counts its bytes, also those outside the matrix, which are zeros.
__device__ __forceinline__ void bring_slab(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
// The same of a map of three dimensions.
__device__ __forceinline__ void bring_box(void* to, const CUtensorMap& map, int column, int row, int plane, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   shared_address(to)),
               "l"(&map), "r"(column), "r"(row), "r"(plane), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void wait_for(uint64_t* barrier, int phase) {
  while (!phase_ended(barrier, unsigned(phase))) {
  }
}
// Between what threads saw written to memory, and what the copy engine reads of it. For shared memory, wgmma too: copies_see().
__device__ __forceinline__ void memory_is_seen() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// ---- barriers of bytes ----------------------------------------------------------------------------
// One thread arrives, with the number of bytes to expect.
__device__ __forceinline__ void bytes_init(uint64_t* barrier) {
  barrier_init(barrier, 1);
  barriers_are_seen();
}
__device__ __forceinline__ void bytes_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Waits for the end of a phase. What was sent is then seen.
__device__ __forceinline__ void bytes_wait(uint64_t* barrier, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again%=:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@done bra ready%=;\nbra again%=;\nready%=:\n}" ::
          "r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}
// The address of `at` in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint32_t address_in(const void* at, uint32_t rank) {
  uint32_t out;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(shared_address(at)), "r"(rank));
  return out;
}
// Sends `bytes` of this block's shared memory, a multiple of 16, to another block (address_in), and their number to a barrier there. The
// copy engine does it: what threads wrote must have been passed to it by copies_see().
__device__ __forceinline__ void send(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(shared_address(from)), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void copies_see() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif

}  // namespace tracer::overrides
