// Tiles of a product through shared memory: loading, the loop over the inner dimension, and the ordered sum at its end.
// What is done with a stage of tiles is the Math's (mm_ffma.cu, mm_tensor.cuh).
#pragma once

#include "device.cuh"
#include "mm.h"
#include "mm_sums.cuh"

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

// Copies the parts of an [outer, inner] matrix, kOuter rows of kInner elements, into rows of kPitchBytes; zeros outside the
// matrix. Parts follow each other along the outer (kAlongOuter) or the inner dimension. What a thread copies of every part
// is worked out once: in a stage an address costs one addition.
template <class T, int kOuter, int kInner, int kPitchBytes, int kThreads, bool kAlongOuter>
class VectorCopies {
 public:
  // From the part that begins at (outer, inner) on. The inner stride is 1, and rows begin at multiples of 16 bytes; the
  // stride of a single row may be anything, so that it is given as 0.
  __device__ VectorCopies(const T* matrix, int outer, int inner, int outers, int inners, int64_t outer_stride)
      : outer_(outer + int(threadIdx.x) / kPieces),
        inner_(inner + int(threadIdx.x) % kPieces * kElements),
        outers_(outers),
        inners_(inners),
        between_(kRowsOfThreads * outer_stride * int64_t(sizeof(T))),
        part_(kAlongOuter ? kOuter * outer_stride * int64_t(sizeof(T)) : kInner * int64_t(sizeof(T))),
        from_(reinterpret_cast<const char*>(matrix + outer_ * outer_stride + inner_)),
        to_(int(threadIdx.x) / kPieces * kPitchBytes + int(threadIdx.x) % kPieces * 16) {}

  __device__ void load_next(char* tile) {
    const int left = inners_ - inner_;  // elements of the row; those beyond its end are not read
    const int bytes = left >= kElements ? 16 : left > 0 ? left * int(sizeof(T)) : 0;
    const char* from = from_;
    char* to = tile + to_;
#pragma unroll
    for (int copy = 0; copy < kEach; ++copy) {
      if (kCopies % kThreads && copy * kThreads + int(threadIdx.x) >= kCopies) break;
      copy_async_16(to + copy * kRowsOfThreads * kPitchBytes, from, outer_ + copy * kRowsOfThreads < outers_ ? bytes : 0);
      from += between_;
    }
    from_ += part_;
    (kAlongOuter ? outer_ : inner_) += kAlongOuter ? kOuter : kInner;
  }

 private:
  static constexpr int kElements = 16 / sizeof(T), kPieces = kInner / kElements, kCopies = kOuter * kPieces;
  static constexpr int kEach = (kCopies + kThreads - 1) / kThreads, kRowsOfThreads = kThreads / kPieces;
  static_assert(kThreads % kPieces == 0, "a thread copies the same piece of every row");
  int outer_, inner_, outers_, inners_;
  int64_t between_, part_;
  const char* from_;
  int to_;
};

// The same element by element: the part that begins at (outer, inner).
template <class T, int kOuter, int kInner, int kPitchBytes, int kThreads>
__device__ __forceinline__ void load_elements(char* tile, const T* matrix, int64_t outer, int64_t inner, int64_t outers, int64_t inners,
                                              int64_t outer_stride, int64_t inner_stride) {
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

template <class Math, class Tile, bool kAcross>
struct Shared {
  using T = typename Math::T;
  using Weight = WeightTile<T, Tile::kRows, kAcross>;
  static constexpr int kInputBytes = Tile::kColumns * kPitch;
  static constexpr int kBytesOfStage = Weight::kBytes + kInputBytes;
  // The sums: [part][column][row]; the pitch puts what a warp's fragments hold into different banks.
  static constexpr int kSumPitch = sum_pitch(Tile::kRows);
  static constexpr int kSumBytes = Tile::kParts * Tile::kColumns * kSumPitch * int(sizeof(float));
  static constexpr int kStagesBytes = Tile::kStages * kBytesOfStage;
  static constexpr int kBytes = kSumBytes > kStagesBytes ? kSumBytes : kStagesBytes;
};

// Math: T; kRepairs; blocks_at_once<Tile>() that the registers must leave room for; Accumulator with add(weight tile, input tile,
// thread) and store(sums, thread).
// kVectors: both operands are read so, and the other ways are left out.
template <class Math, class Tile, bool kAcross, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, Math::template blocks_at_once<Tile>()) mm_tile(const __grid_constant__ Mm mm) {
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

  const T* weight = static_cast<const T*>(mm.weight);
  const T* input = static_cast<const T*>(mm.input);
  constexpr int kWeightOuter = kAcross ? kSteps : Tile::kRows, kWeightInner = kAcross ? Tile::kRows : kSteps;
  const int64_t weight_lines = kAcross ? mm.inner : mm.rows;
  const int64_t weight_stride = weight_lines == 1 ? 0 : kAcross ? mm.weight_inner : mm.weight_row;
  const int first = begin * kSteps;  // of the inner dimension, which fits an int (mm_plans.cpp)
  VectorCopies<T, kWeightOuter, kWeightInner, Weight::kPitchBytes, Tile::kThreads, kAcross> weight_copies(
      weight, kAcross ? first : int(row), kAcross ? int(row) : first, int(weight_lines), int(kAcross ? mm.rows : mm.inner), weight_stride);
  VectorCopies<T, Tile::kColumns, kSteps, kPitch, Tile::kThreads, false> input_copies(input, int(column), first, int(mm.columns),
                                                                                      int(mm.inner), mm.columns == 1 ? 0 : mm.input_column);
  auto load = [&](int stage, char* place) {
    const int64_t k = int64_t(stage) * kSteps;
    if (kVectors || mm.weight_vectors)
      weight_copies.load_next(place);
    else if constexpr (kAcross)
      load_elements<T, kSteps, Tile::kRows, Weight::kPitchBytes, Tile::kThreads>(place, weight, k, row, mm.inner, mm.rows, mm.weight_inner,
                                                                                 1);
    else
      load_elements<T, Tile::kRows, kSteps, Weight::kPitchBytes, Tile::kThreads>(place, weight, row, k, mm.rows, mm.inner, mm.weight_row,
                                                                                 1);
    if (kVectors || mm.input_vectors)
      input_copies.load_next(place + Weight::kBytes);
    else
      load_elements<T, Tile::kColumns, kSteps, kPitch, Tile::kThreads>(place + Weight::kBytes, input, column, k, mm.columns, mm.inner,
                                                                       mm.input_column, mm.input_inner);
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
  finish<T, Math::kRepairs, Tile::kRows, Tile::kColumns, Tile::kParts, Tile::kThreads>(mm, sums, row, column, rank, thread);
  if (mm.split > 1) cluster_barrier();  // no block ends while another reads its sums
}

template <class Math, class Tile, bool kAcross>
cudaError_t launch_layout(const Mm& mm, int device, cudaStream_t stream) {
  constexpr size_t shared = Shared<Math, Tile, kAcross>::kBytes;
  dim3 grid(unsigned((mm.rows + Tile::kRows - 1) / Tile::kRows), unsigned((mm.columns + Tile::kColumns - 1) / Tile::kColumns),
            unsigned(mm.split));
  if (mm.weight_vectors && mm.input_vectors)
    return launch<mm_tile<Math, Tile, kAcross, true>>(grid, Tile::kThreads, shared, mm.split, mm, device, stream);
  return launch<mm_tile<Math, Tile, kAcross, false>>(grid, Tile::kThreads, shared, mm.split, mm, device, stream);
}

// A tile for weights with inner stride 1 alone.
template <class Math, class Tile>
cudaError_t launch_along(const Mm& mm, int device, cudaStream_t stream) {
  return inner_major(mm) ? launch_layout<Math, Tile, false>(mm, device, stream) : cudaErrorInvalidValue;
}

template <class Math, class Tile>
cudaError_t launch_tile(const Mm& mm, int device, cudaStream_t stream) {
  return inner_major(mm) ? launch_layout<Math, Tile, false>(mm, device, stream) : launch_layout<Math, Tile, true>(mm, device, stream);
}

}  // namespace tracer::overrides
