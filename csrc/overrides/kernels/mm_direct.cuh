// What the two kernels share that read the weight from global memory straight into registers (mm_direct_rows.cu and
// mm_direct_columns.cu): the ordered sum over warps and blocks, and the write of the result.
#pragma once

#include "device.cuh"
#include "mm.h"

namespace tracer::overrides {

template <class T>
__device__ __forceinline__ void write_result(const Mm& mm, int64_t row, int64_t column, float sum) {
  float value = mm.alpha * sum;
  if (mm.self) value += mm.beta * to_float(static_cast<const T*>(mm.self)[row * mm.self_row + column * mm.self_column]);
  static_cast<T*>(mm.out)[row * mm.out_row + column * mm.out_column] = from_float<T>(value);
}

}  // namespace tracer::overrides
