// A warp for each group of rows of the weight: dot products with all columns of the input, which are few.
#include <algorithm>

#include "device.cuh"
#include "mm.h"

namespace tracer::overrides {

namespace {

constexpr int kMostThreads = 256;
// Many sums take many registers, and a multiprocessor holds few such blocks: small ones are spread more evenly.
constexpr int warps_of_block(int values) { return values >= 16 ? 2 : kMostThreads / 32; }

// kVector elements from `pointer` on, as fp32.
template <int kVector, class T>
__device__ __forceinline__ void read(float (&out)[kVector], const T* pointer, bool once) {
  if constexpr (kVector == 1) {
    out[0] = to_float(__ldg(pointer));
  } else {
    static_assert(kVector * sizeof(T) == 16, "one load of 16 bytes");
    auto* vector = reinterpret_cast<const uint4*>(pointer);
    uint4 words = once ? load_once(vector) : __ldg(vector);
    const T* elements = reinterpret_cast<const T*>(&words);
#pragma unroll
    for (int i = 0; i < kVector; ++i) out[i] = to_float(elements[i]);
  }
}

// Sums kCount values over the lanes of a warp, each lane ending with the sums of count/32 of them (of one, where there
// are fewer than 32), from `first` on. Always in the same order.
template <int kCount>
__device__ __forceinline__ void sum_over_lanes(float (&values)[kCount], int lane, int& first) {
  first = 0;
  int count = kCount;
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) {
    if (count > 1) {
      count /= 2;
      bool upper = lane & step;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i >= count) break;
        float keep = upper ? values[i + count] : values[i];
        float give = upper ? values[i] : values[i + count];
        values[i] = keep + __shfl_xor_sync(0xffffffffu, give, step);
      }
      first += upper ? count : 0;
    } else {
      values[0] += __shfl_xor_sync(0xffffffffu, values[0], step);
    }
  }
}

// Blocks that a multiprocessor holds, so far as the sums of a thread leave registers.
constexpr int blocks_for(int values) { return values <= 4 ? 3 : values <= 32 ? 2 : 1; }

// mm.split warps of a block share the inner dimension of the same rows.
template <class T, int kVector, int kRows, int kColumns>
__global__ void __launch_bounds__(kMostThreads, blocks_for(kRows* kColumns)) mm_dot(const __grid_constant__ Mm mm) {
  constexpr int kValues = kRows * kColumns;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = warp % mm.split, groups = int(blockDim.x) / 32 / mm.split;
  const int64_t row = (int64_t(blockIdx.x) * groups + warp / mm.split) * kRows;
  float values[kValues] = {};
  if (row < mm.rows) {
    const T* weight[kRows];
    const T* input[kColumns];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      weight[r] = static_cast<const T*>(mm.weight) + (row + r < mm.rows ? row + r : mm.rows - 1) * mm.weight_row;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) input[c] = static_cast<const T*>(mm.input) + (c < mm.columns ? c : mm.columns - 1) * mm.input_column;
    const int64_t step = int64_t(mm.split) * 32 * kVector;
#pragma unroll 2
    for (int64_t k = int64_t(part * 32 + lane) * kVector; k < mm.inner; k += step) {
      float w[kRows][kVector];
#pragma unroll
      for (int r = 0; r < kRows; ++r) read<kVector>(w[r], weight[r] + k, true);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float x[kVector];
        if (kVector == 1 || mm.input_vectors) {
          read<kVector>(x, input[c] + k * mm.input_inner, false);
        } else {
#pragma unroll
          for (int i = 0; i < kVector; ++i) x[i] = to_float(__ldg(input[c] + (k + i) * mm.input_inner));
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int i = 0; i < kVector; ++i) values[r * kColumns + c] += w[r][i] * x[i];
      }
    }
  }
  int first;
  sum_over_lanes(values, lane, first);
  constexpr int kLeft = kValues > 32 ? kValues / 32 : 1;
  constexpr int kSame = kValues < 32 ? 32 / kValues : 1;  // lanes that hold the same sum
  if (mm.split > 1) {
    auto* sums = reinterpret_cast<float*>(block_shared());  // [warp][kValues]
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      if (lane % kSame == 0) sums[warp * kValues + first + i] = values[i];
    __syncthreads();
    if (part) return;
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      for (int p = 1; p < mm.split; ++p) values[i] += sums[(warp + p) * kValues + first + i];
  }
  if (lane % kSame) return;
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int64_t r = row + (first + i) / kColumns;
    const int c = (first + i) % kColumns;
    if (r >= mm.rows || c >= mm.columns) continue;
    float value = mm.alpha * values[i];
    if (mm.self) value += mm.beta * to_float(static_cast<const T*>(mm.self)[r * mm.self_row + c * mm.self_column]);
    static_cast<T*>(mm.out)[r * mm.out_row + c * mm.out_column] = from_float<T>(value);
  }
}

template <class T, int kRows, int kColumns>
cudaError_t launch_tile(const Mm& mm, int device, cudaStream_t stream) {
  const int warps = std::max(warps_of_block(kRows * kColumns), mm.split), rows = kRows * (warps / mm.split);
  dim3 grid(unsigned((mm.rows + rows - 1) / rows));
  size_t shared = size_t(warps) * kRows * kColumns * sizeof(float);
  return mm.weight_vectors ? launch<mm_dot<T, 16 / sizeof(T), kRows, kColumns>>(grid, warps * 32, shared, 1, mm, device, stream)
                           : launch<mm_dot<T, 1, kRows, kColumns>>(grid, warps * 32, shared, 1, mm, device, stream);
}

template <class T>
cudaError_t launch_of(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (plan.tile_rows * 100 + plan.tile_columns) {
    case 101:
      return launch_tile<T, 1, 1>(mm, device, stream);
    case 201:
      return launch_tile<T, 2, 1>(mm, device, stream);
    case 401:
      return launch_tile<T, 4, 1>(mm, device, stream);
    case 202:
      return launch_tile<T, 2, 2>(mm, device, stream);
    case 402:
      return launch_tile<T, 4, 2>(mm, device, stream);
    case 204:
      return launch_tile<T, 2, 4>(mm, device, stream);
    case 404:
      return launch_tile<T, 4, 4>(mm, device, stream);
    case 408:
      return launch_tile<T, 4, 8>(mm, device, stream);
  }
  if constexpr (sizeof(T) == 4) switch (plan.tile_rows * 100 + plan.tile_columns) {
      case 208:
        return launch_tile<T, 2, 8>(mm, device, stream);
      case 808:
        return launch_tile<T, 8, 8>(mm, device, stream);
      case 416:
        return launch_tile<T, 4, 16>(mm, device, stream);
    }
  return cudaErrorInvalidValue;
}

}  // namespace

const std::vector<TileSize>& dot_tiles(Element element) {
  static const auto& two_bytes = *new std::vector<TileSize>{{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 2}, {2, 4}, {4, 4}, {4, 8}};
  static const auto& four_bytes =
      *new std::vector<TileSize>{{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 2}, {2, 4}, {4, 4}, {4, 8}, {2, 8}, {8, 8}, {4, 16}};
  return element == Element::kFloat ? four_bytes : two_bytes;
}

cudaError_t launch_dot(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (mm.element) {
    case Element::kFloat:
      return launch_of<float>(mm, plan, device, stream);
    case Element::kBfloat16:
      return launch_of<__nv_bfloat16>(mm, plan, device, stream);
    case Element::kHalf:
      return launch_of<__half>(mm, plan, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
