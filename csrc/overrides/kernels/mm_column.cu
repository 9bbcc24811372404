// The weight with row stride 1: a thread holds as many rows as 16 bytes of it, warps and blocks of a cluster share the
// inner dimension.
#include "device.cuh"
#include "mm.h"

namespace tracer::overrides {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <class T, int kVector, int kColumns>
__global__ void __launch_bounds__(kThreads) mm_column(const __grid_constant__ Mm mm) {
  constexpr int kRows = 32 * kVector;  // of a block
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = int(cluster_rank());
  const int64_t first = int64_t(blockIdx.x) * kRows;
  const int64_t row = first + lane * kVector;
  float values[kColumns][kVector] = {};
  if (row < mm.rows) {
    const T* weight = static_cast<const T*>(mm.weight) + row;
    const T* input[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) input[c] = static_cast<const T*>(mm.input) + (c < mm.columns ? c : mm.columns - 1) * mm.input_column;
#pragma unroll 4
    for (int64_t k = rank * kWarps + warp; k < mm.inner; k += mm.split * kWarps) {
      float w[kVector];
      if constexpr (kVector == 1) {
        w[0] = to_float(__ldg(weight + k * mm.weight_inner));
      } else {
        uint4 words = load_once(reinterpret_cast<const uint4*>(weight + k * mm.weight_inner));
        const T* elements = reinterpret_cast<const T*>(&words);
#pragma unroll
        for (int i = 0; i < kVector; ++i) w[i] = to_float(elements[i]);
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float x = to_float(__ldg(input[c] + k * mm.input_inner));
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[c][i] += w[i] * x;
      }
    }
  }
  auto* sums = reinterpret_cast<float*>(block_shared());  // [kWarps][kColumns][kRows]
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int i = 0; i < kVector; ++i) sums[(warp * kColumns + c) * kRows + lane * kVector + i] = values[c][i];
  if (mm.split > 1)
    cluster_barrier();
  else
    __syncthreads();
  for (int at = rank * kThreads + int(threadIdx.x); at < kColumns * kRows; at += mm.split * kThreads) {
    const int64_t r = first + at % kRows;
    const int c = at / kRows;
    if (r >= mm.rows || c >= mm.columns) continue;
    float sum = 0;
    for (int block = 0; block < mm.split; ++block) {
      const float* theirs = mm.split > 1 ? in_block(sums, uint32_t(block)) : sums;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += theirs[w * kColumns * kRows + at];
    }
    float value = mm.alpha * sum;
    if (mm.self) value += mm.beta * to_float(static_cast<const T*>(mm.self)[r * mm.self_row + c * mm.self_column]);
    static_cast<T*>(mm.out)[r * mm.out_row + c * mm.out_column] = from_float<T>(value);
  }
  if (mm.split > 1) cluster_barrier();  // no block ends while another reads its sums
}

template <class T, int kVector, int kColumns>
cudaError_t launch_vector(const Mm& mm, int device, cudaStream_t stream) {
  constexpr int kRows = 32 * kVector;
  dim3 grid(unsigned((mm.rows + kRows - 1) / kRows), 1, unsigned(mm.split));
  return launch<mm_column<T, kVector, kColumns>>(grid, kThreads, kWarps * kColumns * kRows * sizeof(float), mm.split, mm, device, stream);
}

template <class T, int kColumns>
cudaError_t launch_tile(const Mm& mm, int device, cudaStream_t stream) {
  return mm.weight_vectors ? launch_vector<T, 16 / sizeof(T), kColumns>(mm, device, stream)
                           : launch_vector<T, 1, kColumns>(mm, device, stream);
}

template <class T>
cudaError_t launch_of(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (plan.tile_columns) {
    case 1:
      return launch_tile<T, 1>(mm, device, stream);
    case 2:
      return launch_tile<T, 2>(mm, device, stream);
    case 4:
      return launch_tile<T, 4>(mm, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

const std::vector<TileSize>& column_tiles() {
  static const auto& tiles = *new std::vector<TileSize>{{0, 1}, {0, 2}, {0, 4}};
  return tiles;
}

cudaError_t launch_column(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
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
