// The end of a product: the sums that the parts and blocks of a tile left in shared memory become elements of the result.
#pragma once

#include "device.cuh"
#include "mm.h"

namespace tracer::overrides {

// The sums lie as [part][column][row]; the pitch of a column puts what a warp's fragments hold into different banks.
__host__ __device__ constexpr int sum_pitch(int rows) { return rows + 4; }

// One sum in the order of the inner dimension, with FMA: for sums that three TF32 products cannot give (kRepairs).
template <class T>
__device__ __noinline__ float plain_sum(const Mm& mm, int64_t row, int64_t column) {
  const T* weight = static_cast<const T*>(mm.weight) + row * mm.weight_row;
  const T* input = static_cast<const T*>(mm.input) + column * mm.input_column;
  float sum = 0;
  for (int64_t k = 0; k < mm.inner; ++k) sum = fmaf(to_float(weight[k * mm.weight_inner]), to_float(input[k * mm.input_inner]), sum);
  return sum;
}

// Each block of a cluster ends its share of a tile, a thread four rows of a column at a time; neighbouring threads write neighbouring
// addresses. All loads of kBatch of them come before what waits for them. For kThreads threads of each block.
template <class T, bool kRepairs, int kRows, int kColumns, int kParts, int kThreads>
__device__ __forceinline__ void finish(const Mm& mm, const float* sums, int64_t row, int64_t column, int rank, int thread) {
  constexpr int kBatch = 4, kQuads = kRows / 4, kUnits = kQuads * kColumns;
  const bool down = mm.out_row == 1;
  const int stride = mm.split * kThreads;
  for (int first = rank * kThreads + thread; first < kUnits; first += kBatch * stride) {
    float4 sum[kBatch] = {};
    int r[kBatch], c[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = first + i * stride;
      r[i] = (down ? at % kQuads : at / kColumns) * 4, c[i] = down ? at / kQuads : at % kColumns;
    }
    for (int block = 0; block < mm.split; ++block) {
      const float* theirs = mm.split > 1 ? in_block(sums, uint32_t(block)) : sums;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * stride >= kUnits) break;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const float4 more = *reinterpret_cast<const float4*>(theirs + (part * kColumns + c[i]) * sum_pitch(kRows) + r[i]);
          sum[i].x += more.x, sum[i].y += more.y, sum[i].z += more.z, sum[i].w += more.w;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * stride >= kUnits || column + c[i] >= mm.columns) continue;
      const float values[4] = {sum[i].x, sum[i].y, sum[i].z, sum[i].w};
      T* out = static_cast<T*>(mm.out) + (row + r[i]) * mm.out_row + (column + c[i]) * mm.out_column;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t at = row + r[i] + j;
        if (at >= mm.rows) break;
        float all = values[j];
        if (kRepairs && !isfinite(all)) all = plain_sum<T>(mm, at, column + c[i]);
        float value = mm.alpha * all;
        if (mm.self) value += mm.beta * to_float(static_cast<const T*>(mm.self)[at * mm.self_row + (column + c[i]) * mm.self_column]);
        out[j * mm.out_row] = from_float<T>(value);
      }
    }
  }
}

}  // namespace tracer::overrides
