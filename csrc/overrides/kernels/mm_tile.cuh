// Tiles of a product through shared memory: loading, the loop over the inner dimension, and the ordered sum at its end.
// What is done with a stage of tiles is the Math's (mm_ffma.cu, mm_tensor.cuh).
#pragma once

#include "device.cuh"
#include "mm.h"

namespace tracer::overrides {

constexpr int kStageBytes = 128;  // of the inner dimension, of each row and column
constexpr int kPitch = kStageBytes + 16;  // of a row in shared memory: 8 rows apart, 16 bytes lie in different banks

// kParts groups of threads share the inner dimension of a stage.
template <int kRows_, int kColumns_, int kThreads_, int kParts_, int kStages_>
struct Tile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kThreads = kThreads_, kParts = kParts_, kStages = kStages_;
};

// A stage of the weight: rows of kStageBytes, or, where its row stride is 1 (kAcross), a row for each step of the inner
// dimension.
template <class T, int kRows, bool kAcross>
struct WeightTile {
  static constexpr int kSteps = kStageBytes / sizeof(T);
  // Across, the words that a quarter of a warp reads lie in different banks.
  static constexpr int kPitchBytes = kAcross ? kRows * sizeof(T) + (sizeof(T) == 4 ? 32 : 16) : kPitch;
  static constexpr int kBytes = (kAcross ? kSteps : kRows) * kPitchBytes;
};

// The part of the [outer, inner] matrix that begins at (outer, inner), into rows of kPitchBytes, zeros outside the matrix.
// kOuter rows of kInner elements; `inner_stride` is 1 with vectors.
template <class T, int kOuter, int kInner, int kPitchBytes, int kThreads>
__device__ __forceinline__ void load_tile(char* tile, const T* matrix, int64_t outer, int64_t inner, int64_t outers, int64_t inners,
                                          int64_t outer_stride, int64_t inner_stride, bool vectors) {
  if (vectors) {
    constexpr int kElements = 16 / sizeof(T), kPieces = kInner / kElements, kCopies = kOuter * kPieces;
#pragma unroll
    for (int first = 0; first < kCopies; first += kThreads) {
      const int copy = first + int(threadIdx.x);
      if (kCopies % kThreads && copy >= kCopies) break;
      const int64_t o = outer + copy / kPieces, i = inner + copy % kPieces * kElements;
      const int64_t left = (inners - i) * int64_t(sizeof(T));
      const int bytes = o < outers && left > 0 ? (left < 16 ? int(left) : 16) : 0;
      copy_async_16(tile + copy / kPieces * kPitchBytes + copy % kPieces * 16, bytes ? matrix + o * outer_stride + i : matrix, bytes);
    }
    return;
  }
  constexpr int kCopies = kOuter * kInner;
  const bool down = inner_stride != 1 && outer_stride == 1;  // neighbouring threads read neighbouring addresses
#pragma unroll 4
  for (int copy = int(threadIdx.x); copy < kCopies; copy += kThreads) {
    const int to = down ? copy % kOuter : copy / kInner, ti = down ? copy / kOuter : copy % kInner;
    const int64_t o = outer + to, i = inner + ti;
    const bool inside = o < outers && i < inners;
    const T* from = inside ? matrix + o * outer_stride + i * inner_stride : matrix;
    char* to_shared = tile + to * kPitchBytes + ti * int(sizeof(T));
    if constexpr (sizeof(T) == 4)
      copy_async_4(to_shared, from, inside ? 4 : 0);
    else
      *reinterpret_cast<T*>(to_shared) = inside ? __ldg(from) : from_float<T>(0.0f);
  }
}

// One sum in the order of the inner dimension, with FMA: for sums that three TF32 products cannot give (see Math::kRepairs).
template <class T>
__device__ __noinline__ float plain_sum(const Mm& mm, int64_t row, int64_t column) {
  const T* weight = static_cast<const T*>(mm.weight) + row * mm.weight_row;
  const T* input = static_cast<const T*>(mm.input) + column * mm.input_column;
  float sum = 0;
  for (int64_t k = 0; k < mm.inner; ++k) sum = fmaf(to_float(weight[k * mm.weight_inner]), to_float(input[k * mm.input_inner]), sum);
  return sum;
}

template <class Math, class Tile, bool kAcross>
struct Shared {
  using T = typename Math::T;
  using Weight = WeightTile<T, Tile::kRows, kAcross>;
  static constexpr int kInputBytes = Tile::kColumns * kPitch;
  static constexpr int kBytesOfStage = Weight::kBytes + kInputBytes;
  // The sums: [part][column][row]; the pitch puts what a warp's fragments hold into different banks.
  static constexpr int kSumPitch = Tile::kRows + 4;
  static constexpr int kSumBytes = Tile::kParts * Tile::kColumns * kSumPitch * int(sizeof(float));
  static constexpr int kStagesBytes = Tile::kStages * kBytesOfStage;
  static constexpr int kBytes = kSumBytes > kStagesBytes ? kSumBytes : kStagesBytes;
};

// Math: T; kRepairs; Accumulator with add(weight tile, input tile, thread) and store(sums, thread).
template <class Math, class Tile, bool kAcross>
__global__ void __launch_bounds__(Tile::kThreads) mm_tile(const __grid_constant__ Mm mm) {
  using T = typename Math::T;
  using Layout = Shared<Math, Tile, kAcross>;
  using Weight = typename Layout::Weight;
  constexpr int kSteps = kStageBytes / sizeof(T);
  char* shared = block_shared();
  const int thread = int(threadIdx.x);
  const int rank = int(cluster_rank());
  const int64_t row = int64_t(blockIdx.x) * Tile::kRows, column = int64_t(blockIdx.y) * Tile::kColumns;
  const int64_t stages = (mm.inner + kSteps - 1) / kSteps;
  const int begin = int(stages * rank / mm.split), end = int(stages * (rank + 1) / mm.split);

  auto load = [&](int stage, char* place) {
    const int64_t k = int64_t(stage) * kSteps;
    auto* weight = static_cast<const T*>(mm.weight);
    if constexpr (kAcross)
      load_tile<T, kSteps, Tile::kRows, Weight::kPitchBytes, Tile::kThreads>(place, weight, k, row, mm.inner, mm.rows, mm.weight_inner, 1,
                                                                             mm.weight_vectors);
    else
      load_tile<T, Tile::kRows, kSteps, Weight::kPitchBytes, Tile::kThreads>(place, weight, row, k, mm.rows, mm.inner, mm.weight_row, 1,
                                                                             mm.weight_vectors);
    load_tile<T, Tile::kColumns, kSteps, kPitch, Tile::kThreads>(place + Weight::kBytes, static_cast<const T*>(mm.input), column, k,
                                                                 mm.columns, mm.inner, mm.input_column, mm.input_inner, mm.input_vectors);
  };

  typename Math::template Accumulator<Tile, kAcross> accumulator;
  // Loads are kStages - 1 stages ahead, and so begin before the sums.
  int loads = 0, adds = 0;  // places in the ring
#pragma unroll 1
  for (int stage = begin - (Tile::kStages - 1); stage < end; ++stage) {
    if (stage >= begin) {
      copy_async_wait<Tile::kStages - 2>();
      __syncthreads();  // this stage is there, and nobody reads the one before it any more
    }
    if (stage + Tile::kStages - 1 < end) load(stage + Tile::kStages - 1, shared + loads * Layout::kBytesOfStage);
    copy_async_commit();
    loads = loads + 1 == Tile::kStages ? 0 : loads + 1;
    if (stage < begin) continue;
    const char* place = shared + adds * Layout::kBytesOfStage;
    accumulator.add(place, place + Weight::kBytes, thread);
    adds = adds + 1 == Tile::kStages ? 0 : adds + 1;
  }
  copy_async_wait<0>();
  __syncthreads();

  auto* sums = reinterpret_cast<float*>(shared);
  accumulator.store(sums, Layout::kSumPitch, thread);
  if (mm.split > 1)
    cluster_barrier();
  else
    __syncthreads();
  const bool down = mm.out_row == 1;  // neighbouring threads write neighbouring addresses
  for (int at = rank * Tile::kThreads + thread; at < Tile::kRows * Tile::kColumns; at += mm.split * Tile::kThreads) {
    const int r = down ? at % Tile::kRows : at / Tile::kColumns, c = down ? at / Tile::kRows : at % Tile::kColumns;
    if (row + r >= mm.rows || column + c >= mm.columns) continue;
    float sum = 0;
    for (int block = 0; block < mm.split; ++block) {
      const float* theirs = mm.split > 1 ? in_block(sums, uint32_t(block)) : sums;
#pragma unroll
      for (int part = 0; part < Tile::kParts; ++part) sum += theirs[(part * Tile::kColumns + c) * Layout::kSumPitch + r];
    }
    if (Math::kRepairs && !isfinite(sum)) sum = plain_sum<T>(mm, row + r, column + c);
    float value = mm.alpha * sum;
    if (mm.self) value += mm.beta * to_float(static_cast<const T*>(mm.self)[(row + r) * mm.self_row + (column + c) * mm.self_column]);
    static_cast<T*>(mm.out)[(row + r) * mm.out_row + (column + c) * mm.out_column] = from_float<T>(value);
  }
  if (mm.split > 1) cluster_barrier();  // no block ends while another reads its sums
}

template <class Math, class Tile>
cudaError_t launch_tile(const Mm& mm, int device, cudaStream_t stream) {
  dim3 grid(unsigned((mm.rows + Tile::kRows - 1) / Tile::kRows), unsigned((mm.columns + Tile::kColumns - 1) / Tile::kColumns),
            unsigned(mm.split));
  if (inner_major(mm))
    return launch<mm_tile<Math, Tile, false>>(grid, Tile::kThreads, Shared<Math, Tile, false>::kBytes, mm.split, mm, device, stream);
  return launch<mm_tile<Math, Tile, true>>(grid, Tile::kThreads, Shared<Math, Tile, true>::kBytes, mm.split, mm, device, stream);
}

}  // namespace tracer::overrides
