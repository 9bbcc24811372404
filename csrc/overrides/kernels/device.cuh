// The instructions that CUDA C++ has no words for, one function each, and the launch of a kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace tracer::overrides {

// ---- shared memory --------------------------------------------------------------------------
// The block's shared memory, given at launch.
__device__ __forceinline__ char* block_shared() {
  extern __shared__ __align__(128) char shared[];
  return shared;
}
__device__ __forceinline__ uint32_t shared_address(const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); }

// Copies `bytes` (0 to 16) and fills what is left of the 16 with zeros; both addresses are multiples of 16.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes));
}
// The same with 4 bytes, or 0.
__device__ __forceinline__ void copy_async_4(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes));
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;"); }
// Waits until at most `kOpen` groups of this thread are under way.
template <int kOpen>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

// ---- fragments ------------------------------------------------------------------------------
// Matrices of 8 rows of 16 bytes; lane 8 j + i gives the address of row i of matrix j. Lane l gets of each the 4-byte
// word l % 4 of row l / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices(uint32_t (&out)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "r"(shared_address(row)));
}
// The same of the transposed matrices of 8x8 two-byte elements.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row)));
}

// sum += a b; with g = lane / 4 and t = lane % 4 lane holds, of the 16x8 sum, (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
// TF32: of the 16x8 a (g, t), (g+8, t), (g, t+4), (g+8, t+4), of the 8x8 b (t, g), (t+4, g).
__device__ __forceinline__ void mma_tf32(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Two-byte elements: of the 16x16 a the pairs from (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), of the 16x8 b the pairs down
// from (2t, g), (2t+8, g).
__device__ __forceinline__ void mma_bf16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_f16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// To the nearest TF32, ties away from zero.
__device__ __forceinline__ uint32_t round_to_tf32(uint32_t bits) {
  uint32_t out;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(__uint_as_float(bits)));
  return out;
}

// ---- clusters -------------------------------------------------------------------------------
// Without clusters (before sm_90) a block is its own cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
#if __CUDA_ARCH__ >= 900
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}
// All threads of all blocks of the cluster; what was written before it is seen after it.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}
// The same place in the shared memory of another block of the cluster.
__device__ __forceinline__ const float* in_block(const float* shared, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  const float* out;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(shared), "r"(rank));
  return out;
#else
  return shared;
#endif
}

// ---- global memory that is read once ----------------------------------------------------------
__device__ __forceinline__ uint4 load_once(const uint4* pointer) {
  uint4 out;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w) : "l"(pointer));
  return out;
}

// The same 16 bytes, or zeros.
__device__ __forceinline__ uint4 load_if(const void* pointer, bool inside) {
  return inside ? load_once(static_cast<const uint4*>(pointer)) : make_uint4(0, 0, 0, 0);
}

// ---- elements -------------------------------------------------------------------------------
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

// ---- launch -----------------------------------------------------------------------------------
// Launches kKernel, which takes one structure, on the current device, whose index is `device`. `shared_bytes` is the same
// at every launch of a kernel. `cluster` blocks along z share a cluster; more than one needs sm_90.
template <auto kKernel, class Arguments>
cudaError_t launch(dim3 grid, int threads, size_t shared_bytes, int cluster, const Arguments& arguments, int device, cudaStream_t stream) {
  const void* kernel = reinterpret_cast<const void*>(kKernel);
  if (shared_bytes > 48 * 1024) {
    static std::atomic<uint64_t> allowed{0};  // a bit for each device
    uint64_t bit = uint64_t(1) << (device & 63);
    if (!(allowed.load(std::memory_order_relaxed) & bit)) {
      cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
      if (error != cudaSuccess) return error;
      allowed.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  if (cluster > 1) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = unsigned(cluster);
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  void* pointers[] = {const_cast<Arguments*>(&arguments)};
  return cudaLaunchKernelExC(&config, kernel, pointers);
}

}  // namespace tracer::overrides
