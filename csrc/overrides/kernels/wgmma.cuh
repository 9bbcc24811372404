// Products of warp groups (wgmma), which only sm_90a has. The right operand lies in shared memory, the left one there or in registers.
//
// An operand is a row of slabs. A slab is 128 bytes of k of all rows, and begins at a multiple of 1024:
//
//   row 0  | 8 pieces of 16 bytes |      of row r, piece p lies at place p ^ (r & 7): "128-byte swizzle"
//   row 1  | ..
//
// A slab may also lie across: 128 bytes of 64 two-byte rows for each k, swizzled in the same way.
#pragma once

#include "device.cuh"
#include "tensor_map.h"

namespace tracer::overrides {

constexpr int kSlabBytes = 128;
constexpr int kStepsOfSlab = 4;  // a product takes 32 bytes of k

// Where byte `byte` of row `row` of a slab lies.
__host__ __device__ constexpr int in_slab(int row, int byte) { return row * kSlabBytes + ((byte / 16) ^ (row & 7)) * 16 + byte % 16; }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The rows from `at` on of a slab, for wgmma: groups of 8 rows are 1024 bytes apart, 128-byte swizzle.
__device__ __forceinline__ uint64_t slab_rows(const void* at) {
  return uint64_t(shared_address(at) >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// The same, `step` products further along k.
__device__ __forceinline__ uint64_t further(uint64_t rows, int step) { return rows + uint64_t(step * 2); }
// The same where the slab lies across: 16 k are 2048 bytes.
__device__ __forceinline__ uint64_t further_across(uint64_t rows, int step) { return rows + uint64_t(step * 128); }

__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kOpen committed groups of products are under way.
template <int kOpen>
__device__ __forceinline__ void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}

// The sums of a thread, as text and as operands.
#define TRACER_D4 "%0, %1, %2, %3"
#define TRACER_D8 TRACER_D4 ", %4, %5, %6, %7"
#define TRACER_D12 TRACER_D8 ", %8, %9, %10, %11"
#define TRACER_D16 TRACER_D12 ", %12, %13, %14, %15"
#define TRACER_D24 TRACER_D16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TRACER_D32 TRACER_D24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TRACER_D60 \
  TRACER_D32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
             "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59"
#define TRACER_D64 TRACER_D60 ", %60, %61, %62, %63"
#define TRACER_O4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TRACER_O8(i) TRACER_O4(i), TRACER_O4(i + 4)
#define TRACER_O12(i) TRACER_O8(i), TRACER_O4(i + 8)
#define TRACER_O16(i) TRACER_O8(i), TRACER_O8(i + 8)
#define TRACER_O24(i) TRACER_O16(i), TRACER_O8(i + 16)
#define TRACER_O32(i) TRACER_O16(i), TRACER_O16(i + 16)
#define TRACER_O60(i) TRACER_O32(i), TRACER_O16(i + 32), TRACER_O12(i + 48)
#define TRACER_O64(i) TRACER_O32(i), TRACER_O32(i + 32)

// `count` sums of a thread, products of `columns` = 2 count columns; the texts name the operands after the sums.
#define TRACER_WGMMA(count, columns, type, a_text, b_text, adds_text, ends, ...) \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_text ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns type " {" \
               TRACER_D##count "}, " a_text ", " b_text ", adds, 1, 1" ends ";\n}" \
               : TRACER_O##count(0) : __VA_ARGS__, "l"(b), "r"(int(adds)))
#define TRACER_WGMMA_SHARED(count, columns, a_text, b_text, adds_text) \
  if constexpr (kElement == MapElement::kTf32) { \
    TRACER_WGMMA(count, columns, "k8.f32.tf32.tf32", a_text, b_text, adds_text, "", "l"(a)); \
  } else if constexpr (kElement == MapElement::kBfloat16 && !kAcross) { \
    TRACER_WGMMA(count, columns, "k16.f32.bf16.bf16", a_text, b_text, adds_text, ", 0, 0", "l"(a)); \
  } else if constexpr (kElement == MapElement::kBfloat16) { \
    TRACER_WGMMA(count, columns, "k16.f32.bf16.bf16", a_text, b_text, adds_text, ", 1, 0", "l"(a)); \
  } else if constexpr (!kAcross) { \
    TRACER_WGMMA(count, columns, "k16.f32.f16.f16", a_text, b_text, adds_text, ", 0, 0", "l"(a)); \
  } else { \
    TRACER_WGMMA(count, columns, "k16.f32.f16.f16", a_text, b_text, adds_text, ", 1, 0", "l"(a)); \
  }
#define TRACER_WGMMA_REGISTERS(count, columns, a_text, b_text, adds_text) \
  TRACER_WGMMA(count, columns, "k8.f32.tf32.tf32", a_text, b_text, adds_text, "", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))

// d (64 rows of a, 2 * kCount rows of b) = a b', + d if `adds`. Thread t of the warp group holds, with g = t % 32 / 4 and q = t % 4,
// of each 8 columns the elements (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1) of the 16 rows from t / 32 * 16 on.
// kAcross: a lies across.
template <MapElement kElement, bool kAcross = false, int kCount>
__device__ __forceinline__ void group_multiply(float (&d)[kCount], uint64_t a, uint64_t b, bool adds) {
  static_assert(kElement != MapElement::kFloat && !(kElement == MapElement::kTf32 && kAcross));
  if constexpr (kCount == 4) {
    TRACER_WGMMA_SHARED(4, 8, "%4", "%5", "%6")
  } else if constexpr (kCount == 8) {
    TRACER_WGMMA_SHARED(8, 16, "%8", "%9", "%10")
  } else if constexpr (kCount == 12) {
    TRACER_WGMMA_SHARED(12, 24, "%12", "%13", "%14")
  } else if constexpr (kCount == 16) {
    TRACER_WGMMA_SHARED(16, 32, "%16", "%17", "%18")
  } else if constexpr (kCount == 24) {
    TRACER_WGMMA_SHARED(24, 48, "%24", "%25", "%26")
  } else if constexpr (kCount == 32) {
    TRACER_WGMMA_SHARED(32, 64, "%32", "%33", "%34")
  } else if constexpr (kCount == 60) {
    TRACER_WGMMA_SHARED(60, 120, "%60", "%61", "%62")
  } else {
    static_assert(kCount == 64);
    TRACER_WGMMA_SHARED(64, 128, "%64", "%65", "%66")
  }
}
// The same with TF32 and a in registers: with g and q as above, thread t holds (g, q), (g + 8, q), (g, q + 4), (g + 8, q + 4) of its 16
// rows.
template <int kCount>
__device__ __forceinline__ void group_multiply_tf32(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool adds) {
  if constexpr (kCount == 4) {
    TRACER_WGMMA_REGISTERS(4, 8, "{%4, %5, %6, %7}", "%8", "%9");
  } else if constexpr (kCount == 8) {
    TRACER_WGMMA_REGISTERS(8, 16, "{%8, %9, %10, %11}", "%12", "%13");
  } else if constexpr (kCount == 16) {
    TRACER_WGMMA_REGISTERS(16, 32, "{%16, %17, %18, %19}", "%20", "%21");
  } else if constexpr (kCount == 32) {
    TRACER_WGMMA_REGISTERS(32, 64, "{%32, %33, %34, %35}", "%36", "%37");
  } else {
    static_assert(kCount == 64);
    TRACER_WGMMA_REGISTERS(64, 128, "{%64, %65, %66, %67}", "%68", "%69");
  }
}
#undef TRACER_WGMMA
#undef TRACER_WGMMA_SHARED
#undef TRACER_WGMMA_REGISTERS
#endif

}  // namespace tracer::overrides
