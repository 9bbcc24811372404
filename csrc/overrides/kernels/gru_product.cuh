// How the operands of a product (gru_product.cu) lie in shared memory: in slices of 128 bytes along k, each as it lies in memory.
//
//        k contiguous                      k across (the rows of memory are values of k)
//   row 0  | 8 pieces of 16 bytes |        k 0    | the tile's 128 or 64 elements | 16 or 32 bytes of padding
//   row 1  | pieces, each at p ^ 1|        k 1    | ..
//   ..                                     ..
//
// In both, the 8 rows that a fragment is read from lie in different banks.
#pragma once

#include "gru_launch.cuh"
#include "gru_numbers.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kSliceBytes = 128, kStages = 3;
__host__ __device__ constexpr int threads_of(int tile_n) { return tile_n * 2; }
template <typename T>
constexpr int kSlice = kSliceBytes / int(sizeof(T));  // elements along k

// A slice of an operand in shared memory, `extent` rows or columns of the matrix wide.
template <typename T, bool k_contiguous, int extent>
struct Tile {
  static constexpr int kRows = k_contiguous ? extent : kSlice<T>, kColumns = k_contiguous ? kSlice<T> : extent;
  static constexpr int kPitch = k_contiguous ? kSliceBytes : extent * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);
  static constexpr int kBytes = kRows * kPitch;
  static_assert(kBytes % 128 == 0);
  // Where a piece of 16 bytes lies.
  __device__ __forceinline__ static int at(int row, int piece) { return row * kPitch + (k_contiguous ? (piece ^ (row & 7)) : piece) * 16; }
};

// Row `row` of an operand in memory.
struct Rows {
  const void* first;
  const void* second;
  int64_t first_stride, second_stride, split;
  template <typename T>
  __device__ __forceinline__ const T* row(int64_t row) const {
    return row < split ? static_cast<const T*>(first) + row * first_stride : static_cast<const T*>(second) + (row - split) * second_stride;
  }
};

// Starts the copy of the tile at (row, column) of an operand of rows x columns; zero outside.
template <int kThreads, typename T, bool k_contiguous, int extent>
__device__ __forceinline__ void fetch(char* tile, const Rows& operand, int64_t rows, int64_t columns, int64_t first_row,
                                      int64_t first_column, bool vector) {
  using Shape = Tile<T, k_contiguous, extent>;
  constexpr int kPerPiece = 16 / int(sizeof(T)), kPieces = Shape::kColumns / kPerPiece, kCount = Shape::kRows * kPieces;
  static_assert(kCount % kThreads == 0);
  auto valid_of = [&](int64_t row, int64_t column) {  // elements of a piece that are inside
    const int64_t left = row < rows ? columns - column : 0;
    return left <= 0 ? 0 : left < kPerPiece ? int(left) : kPerPiece;
  };
  if (vector && first_row + Shape::kRows <= operand.split) {  // all rows in one piece of memory: one address, and a step to the next
    constexpr int kRowsAtOnce = kThreads / kPieces;
    static_assert(kThreads % kPieces == 0);
    const int r = int(threadIdx.x) / kPieces, piece = int(threadIdx.x) % kPieces;
    const int64_t columns_left = columns - first_column - piece * kPerPiece;
    const int bytes = columns_left <= 0 ? 0 : columns_left < kPerPiece ? int(columns_left) * int(sizeof(T)) : 16;
    const int rows_left = int(rows - first_row < Shape::kRows ? rows - first_row : Shape::kRows);
    const int64_t step = kRowsAtOnce * operand.first_stride;
    const T* from = static_cast<const T*>(operand.first) + (first_row + r) * operand.first_stride + first_column + piece * kPerPiece;
#pragma unroll
    for (int i = 0; i < kCount / kThreads; i++) {
      const bool inside = r + i * kRowsAtOnce < rows_left && bytes > 0;
      copy_async_16(tile + Shape::at(r + i * kRowsAtOnce, piece), inside ? from : static_cast<const T*>(operand.first), inside ? bytes : 0);
      from += step;
    }
  } else if (vector) {
#pragma unroll 1
    for (int i = 0; i < kCount / kThreads; i++) {
      const int piece = int(threadIdx.x) + i * kThreads, r = piece / kPieces, c = piece % kPieces * kPerPiece;
      const int valid = valid_of(first_row + r, first_column + c);
      const T* from = valid > 0 ? operand.row<T>(first_row + r) + first_column + c : static_cast<const T*>(operand.first);
      copy_async_16(tile + Shape::at(r, piece % kPieces), from, valid * int(sizeof(T)));
    }
  } else {
    T zero;
    from_float(0.0f, zero);
#pragma unroll 1
    for (int piece = int(threadIdx.x); piece < kCount; piece += kThreads) {
      const int r = piece / kPieces, c = piece % kPieces * kPerPiece;
      const int valid = valid_of(first_row + r, first_column + c);
      const T* from = operand.row<T>(first_row + r) + first_column + c;
      T* to = reinterpret_cast<T*>(tile + Shape::at(r, piece % kPieces));
#pragma unroll
      for (int e = 0; e < kPerPiece; e++) to[e] = e < valid ? from[e] : zero;
    }
  }
}

// The fragment of 16 rows from `x` on of a, in step `step` of 32 bytes along k (across: of 8 fp32 or 16 two-byte elements).
template <typename T, bool k_contiguous, int extent>
__device__ __forceinline__ void load_left(unsigned (&words)[4], const char* tile, int x, int step, int lane) {
  using Shape = Tile<T, k_contiguous, extent>;
  const int matrix = lane / 8, i = lane % 8;
  if constexpr (k_contiguous) {
    load_matrices(words, tile + Shape::at(x + matrix % 2 * 8 + i, 2 * step + matrix / 2));
  } else if constexpr (sizeof(T) == 2) {
    load_matrices_transposed(words, tile + (step * 16 + matrix / 2 * 8 + i) * Shape::kPitch + (x + matrix % 2 * 8) * 2);
  } else {
    const int g = lane / 4, q = lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
      words[j] = *reinterpret_cast<const unsigned*>(tile + (step * 8 + q + j / 2 * 4) * Shape::kPitch + (x + g + j % 2 * 8) * 4);
  }
}

// Those of two neighbouring groups of 8 columns from `x` on of b.
template <typename T, bool k_contiguous, int extent>
__device__ __forceinline__ void load_right(unsigned (&words)[4], const char* tile, int x, int step, int lane) {
  using Shape = Tile<T, k_contiguous, extent>;
  const int matrix = lane / 8, i = lane % 8;
  if constexpr (k_contiguous) {
    load_matrices(words, tile + Shape::at(x + matrix / 2 * 8 + i, 2 * step + matrix % 2));
  } else if constexpr (sizeof(T) == 2) {
    load_matrices_transposed(words, tile + (step * 16 + matrix % 2 * 8 + i) * Shape::kPitch + (x + matrix / 2 * 8) * 2);
  } else {
    const int g = lane / 4, q = lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
      words[j] = *reinterpret_cast<const unsigned*>(tile + (step * 8 + q + j % 2 * 4) * Shape::kPitch + (x + g + j / 2 * 8) * 4);
  }
}

// The words of a fragment as the tensor cores take them.
template <Precision precision>
struct Fragment {
  unsigned words[4], rest[precision == Precision::kFloat32 ? 4 : 1];
  __device__ __forceinline__ void prepare() {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (precision == Precision::kFloat32) {
        rest[i] = lower_part(words[i]);
        words[i] = upper_part(words[i]);
      } else if constexpr (precision == Precision::kTf32) {
        words[i] = to_tf32(__uint_as_float(words[i]));
      }
    }
  }
};

}  // namespace
}  // namespace tracer::overrides::gru
