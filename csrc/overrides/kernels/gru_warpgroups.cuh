// What only sm_90a has: products of warp groups (wgmma), whose operands lie in shared memory, and copies that reach every block of a
// cluster at once.
//
// An operand is a row of slabs. A slab is 128 bytes of k of all rows, and begins at a multiple of 1024:
//
//   row 0  | 8 pieces of 16 bytes |      of row r, piece p lies at place p ^ (r & 7): "128-byte swizzle"
//   row 1  | ..
#pragma once

#include "gru_numbers.cuh"
#include "gru_tensor_map.h"

namespace tracer::overrides::gru {
namespace {

constexpr int kSlabBytes = 128;
template <Precision precision>
constexpr int kSlab = kSlabBytes / int(sizeof(Element<precision>));  // elements of a row of a slab
constexpr int kStepsOfSlab = 4;                                      // a product takes 32 bytes of k

// Where byte `byte` of row `row` of a slab lies.
__host__ __device__ constexpr int in_slab(int row, int byte) { return row * kSlabBytes + ((byte / 16) ^ (row & 7)) * 16 + byte % 16; }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The rows from `at` on of a slab, for wgmma: groups of 8 rows are 1024 bytes apart, 128-byte swizzle.
__device__ __forceinline__ uint64_t slab_rows(const void* at) {
  return uint64_t(shared_address(at) >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// The same, `step` products further along k.
__device__ __forceinline__ uint64_t further(uint64_t rows, int step) { return rows + uint64_t(step * 2); }

__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kOpen committed groups of products are under way.
template <int kOpen>
__device__ __forceinline__ void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

// d (64 rows of a, 2 * kCount rows of b) = a b', + d if `adds`. Thread t of the warp group holds, with g = t % 32 / 4 and q = t % 4,
// of each 8 columns the elements (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1) of the 16 rows from t / 32 * 16 on.
#define TRACER_WGMMA_24(type, transposed) \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %14, 0;\nwgmma.mma_async.sync.aligned.m64n24" type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, " \
               "%12, %13, adds, 1, 1" transposed ";\n}" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                 "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]) \
               : "l"(a), "l"(b), "r"(int(adds)))
#define TRACER_WGMMA_48(type, transposed) \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %26, 0;\nwgmma.mma_async.sync.aligned.m64n48" type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23}, " \
               "%24, %25, adds, 1, 1" transposed ";\n}" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                 "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                 "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
                 "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]) \
               : "l"(a), "l"(b), "r"(int(adds)))
#define TRACER_WGMMA_120(type, transposed) \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %62, 0;\nwgmma.mma_async.sync.aligned.m64n120" type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59}, " \
               "%60, %61, adds, 1, 1" transposed ";\n}" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                 "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                 "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
                 "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
                 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
                 "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
                 "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
                 "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
                 "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
                 "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]) \
               : "l"(a), "l"(b), "r"(int(adds)))
#define TRACER_WGMMA_128(type, transposed) \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128" type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
               "%64, %65, adds, 1, 1" transposed ";\n}" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                 "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                 "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
                 "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
                 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
                 "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
                 "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
                 "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
                 "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
                 "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
                 "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) \
               : "l"(a), "l"(b), "r"(int(adds)))
template <Precision precision, int kCount>
__device__ __forceinline__ void group_multiply(float (&d)[kCount], uint64_t a, uint64_t b, bool adds) {
#define TRACER_WGMMA_OF(n)                           \
  if constexpr (precision == Precision::kBfloat16) { \
    TRACER_WGMMA_##n("k16.f32.bf16.bf16", ", 0, 0"); \
  } else if constexpr (precision == Precision::kFloat16) { \
    TRACER_WGMMA_##n("k16.f32.f16.f16", ", 0, 0");   \
  } else {                                           \
    TRACER_WGMMA_##n("k8.f32.tf32.tf32", "");        \
  }
  static_assert(kCount == 12 || kCount == 24 || kCount == 60 || kCount == 64);
  if constexpr (kCount == 12) {
    TRACER_WGMMA_OF(24)
  } else if constexpr (kCount == 24) {
    TRACER_WGMMA_OF(48)
  } else if constexpr (kCount == 60) {
    TRACER_WGMMA_OF(120)
  } else {
    TRACER_WGMMA_OF(128)
  }
#undef TRACER_WGMMA_OF
}
#undef TRACER_WGMMA_24
#undef TRACER_WGMMA_48
#undef TRACER_WGMMA_120
#undef TRACER_WGMMA_128

// ---- barriers and copies of a cluster ---------------------------------------------------------
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barriers_are_seen() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Whether a phase has ended; phases count 0, 1, 0, ..
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
// The same of all planes.
__device__ __forceinline__ void bring_planes(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   shared_address(to)),
               "l"(&map), "r"(column), "r"(row), "r"(0), "r"(shared_address(barrier))
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
#endif

}  // namespace
}  // namespace tracer::overrides::gru
