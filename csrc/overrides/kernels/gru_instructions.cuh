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

// The same place in the shared memory of another block of the cluster.
template <typename T>
__device__ __forceinline__ T* of_block(T* shared, unsigned rank) {
  return reinterpret_cast<T*>(const_cast<float*>(in_block(reinterpret_cast<const float*>(shared), rank)));
}

}  // namespace tracer::overrides::gru
