// The instructions that only the GRU kernels use, and by type what device.cuh has by name.
#pragma once

#include "device.cuh"

namespace tracer::overrides::gru {

__device__ __forceinline__ uint32_t to_tf32(float value) { return round_to_tf32(__float_as_uint(value)); }

__device__ __forceinline__ void mma_16bit(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], __nv_bfloat16*) {
  mma_bf16(sum, a, b);
}
__device__ __forceinline__ void mma_16bit(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], __half*) { mma_f16(sum, a, b); }

// The two halves of a barrier of the cluster (sm_90): what a thread wrote before it arrived, in any block's shared memory, is seen
// by those that have waited.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// ---- barriers of bytes (sm_90) ------------------------------------------------------------------
// A barrier in shared memory whose phase ends when one thread has arrived with the number of bytes to expect, and these bytes have been
// sent to it.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void bytes_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void bytes_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Waits for the end of a phase; phases count 0, 1, 0, .. What was sent is then seen.
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

// The same place in the shared memory of another block of the cluster.
template <typename T>
__device__ __forceinline__ T* of_block(T* shared, unsigned rank) {
  return reinterpret_cast<T*>(const_cast<float*>(in_block(reinterpret_cast<const float*>(shared), rank)));
}

}  // namespace tracer::overrides::gru
