// Tiles on tensor cores, with mma.sync: rows of the weight are its rows, columns of the input its columns.
#pragma once

#include "mm_tile.cuh"

namespace tracer::overrides {

// A step is 32 bytes of the inner dimension: 8 fp32 or 16 two-byte elements.
constexpr int kStepsOfStage = kStageBytes / 32;

// ---- what is done with the fragments of a step ------------------------------------------------
struct Bfloat16 {
  using T = __nv_bfloat16;
  static constexpr bool kSplits = false, kRepairs = false;
  __device__ static void prepare(uint32_t&) {}
  __device__ static void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_bf16(sum, a, b); }
};

struct Half {
  using T = __half;
  static constexpr bool kSplits = false, kRepairs = false;
  __device__ static void prepare(uint32_t&) {}
  __device__ static void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_f16(sum, a, b); }
};

struct Tf32 {
  using T = float;
  static constexpr bool kSplits = false, kRepairs = false;
  __device__ static void prepare(uint32_t& word) { word = round_to_tf32(word); }
  __device__ static void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_tf32(sum, a, b); }
};

// fp32 as the sum of two TF32 numbers: big, the nearest one, and small, what is left (its last bits are dropped, an error
// of at most 2^-22 of the element). Of the four products small x small is left out, an error of 2^-22 of the product.
// Tensor cores round sums toward zero, so they sum the 16 products of two steps, the small ones first, and FADD adds those.
// Where an operand is not finite, or a sum overflows, the parts give NaN: such sums are computed again (kRepairs).
struct Tf32x3 {
  using T = float;
  static constexpr bool kSplits = true, kRepairs = true;
  __device__ static void split(uint32_t word, uint32_t& big, uint32_t& small) {
    big = (word + 0x1000u) & 0xffffe000u;
    small = __float_as_uint(__uint_as_float(word) - __uint_as_float(big));
  }
};

// Warps of kWarpRows x kWarpColumns, Tile::kParts of them for each such piece of the tile.
template <class Element, int kWarpRows, int kWarpColumns>
struct TensorMath {
  using T = typename Element::T;
  static constexpr bool kRepairs = Element::kRepairs;
  template <class Tile>
  static constexpr int blocks_at_once() {
    return Tile::kThreads == 128 ? 3 : 2;
  }

  template <class Tile, bool kAcross>
  struct Accumulator {
    static constexpr int kRowPieces = kWarpRows / 16, kColumnPieces = kWarpColumns / 8;
    static constexpr int kWarpsDown = Tile::kRows / kWarpRows, kWarpsAcross = Tile::kColumns / kWarpColumns;
    static_assert(Tile::kThreads == kWarpsDown * kWarpsAcross * Tile::kParts * 32, "a warp for each piece and part");
    static_assert(kStepsOfStage % Tile::kParts == 0, "parts share the steps of a stage evenly");
    static constexpr int kWeightPitch = WeightTile<T, Tile::kRows, kAcross>::kPitchBytes;

    float sums[kRowPieces][kColumnPieces][4] = {};

    __device__ static int part_of(int thread) { return thread / 32 / (kWarpsDown * kWarpsAcross); }
    __device__ static int row_of(int thread) { return thread / 32 % kWarpsDown * kWarpRows; }
    __device__ static int column_of(int thread) { return thread / 32 / kWarpsDown % kWarpsAcross * kWarpColumns; }

    __device__ static void load_weight(uint32_t (&a)[4], const char* tile, int row, int step, int lane) {
      const int matrix = lane / 8, i = lane % 8;
      if constexpr (!kAcross) {
        load_matrices(a, tile + (row + matrix % 2 * 8 + i) * kWeightPitch + step * 32 + matrix / 2 * 16);
      } else if constexpr (sizeof(T) == 2) {
        load_matrices_transposed(a, tile + (step * 16 + matrix / 2 * 8 + i) * kWeightPitch + (row + matrix % 2 * 8) * 2);
      } else {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          a[j] = *reinterpret_cast<const uint32_t*>(tile + (step * 8 + t + j / 2 * 4) * kWeightPitch + (row + g + j % 2 * 8) * 4);
      }
    }

    // Two neighbouring pieces of 8 columns at once.
    __device__ static void load_input(uint32_t (&b)[2][2], const char* tile, int column, int step, int lane) {
      const int matrix = lane / 8, i = lane % 8;
      uint32_t words[4];
      load_matrices(words, tile + (column + matrix / 2 * 8 + i) * kPitch + step * 32 + matrix % 2 * 16);
      b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
    }
    __device__ static void load_input(uint32_t (&b)[1][2], const char* tile, int column, int step, int lane) {
      const int matrix = lane / 8 % 2, i = lane % 8;
      load_matrices(b[0], tile + (column + i) * kPitch + step * 32 + matrix * 16);
    }

    // The words of a fragment as they are multiplied; `small` is filled where they are split.
    template <int kWords>
    __device__ static void prepare(uint32_t (&words)[kWords], uint32_t (&small)[kWords]) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if constexpr (Element::kSplits)
          Element::split(words[i], words[i], small[i]);
        else
          Element::prepare(words[i]);
      }
    }

    __device__ void add(const char* weight, const char* input, int thread) {
      constexpr int kTogether = kColumnPieces > 1 ? 2 : 1;
      constexpr int kChain = Element::kSplits ? 2 : 1;  // steps that the tensor cores sum
      static_assert(kStepsOfStage / Tile::kParts % kChain == 0);
      const int lane = thread % 32, row = row_of(thread), column = column_of(thread), part = part_of(thread);
#pragma unroll
      for (int own = 0; own < kStepsOfStage / Tile::kParts; own += kChain) {
        uint32_t a[kChain][kRowPieces][4], a_small[kChain][kRowPieces][4];
#pragma unroll
        for (int s = 0; s < kChain; ++s)
#pragma unroll
          for (int r = 0; r < kRowPieces; ++r) {
            load_weight(a[s][r], weight, row + r * 16, (own + s) * Tile::kParts + part, lane);
            prepare(a[s][r], a_small[s][r]);
          }
#pragma unroll
        for (int c = 0; c < kColumnPieces; c += kTogether) {
          uint32_t b[kChain][kTogether][2], b_small[kChain][kTogether][2];
#pragma unroll
          for (int s = 0; s < kChain; ++s) {
            load_input(b[s], input, column + c * 8, (own + s) * Tile::kParts + part, lane);
#pragma unroll
            for (int j = 0; j < kTogether; ++j) prepare(b[s][j], b_small[s][j]);
          }
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
#pragma unroll
            for (int r = 0; r < kRowPieces; ++r) {
              if constexpr (Element::kSplits) {
                float chain[4] = {};
#pragma unroll
                for (int s = 0; s < kChain; ++s) {
                  mma_tf32(chain, a_small[s][r], b[s][j]);
                  mma_tf32(chain, a[s][r], b_small[s][j]);
                }
#pragma unroll
                for (int s = 0; s < kChain; ++s) mma_tf32(chain, a[s][r], b[s][j]);
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[r][c + j][i] += chain[i];
              } else {
                Element::multiply(sums[r][c + j], a[0][r], b[0][j]);
              }
            }
        }
      }
    }

    __device__ void store(float* all, int pitch, int thread) const {
      const int lane = thread % 32, g = lane / 4, t = lane % 4;
      float* mine = all + (part_of(thread) * Tile::kColumns + column_of(thread)) * pitch + row_of(thread);
#pragma unroll
      for (int r = 0; r < kRowPieces; ++r)
#pragma unroll
        for (int c = 0; c < kColumnPieces; ++c)
#pragma unroll
          for (int i = 0; i < 4; ++i) mine[(c * 8 + t * 2 + i % 2) * pitch + r * 16 + g + i / 2 * 8] = sums[r][c][i];
    }
  };
};

// The tiles; mm_plans.cpp names them too.
template <class Element>
cudaError_t launch_tensor_tile(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (plan.tile_rows * 1000 + plan.tile_columns) {
    case 64008:
      return launch_tile<TensorMath<Element, 16, 8>, Tile<64, 8, 128, 1, 6>>(mm, device, stream);
    case 32016:
      return launch_tile<TensorMath<Element, 16, 16>, Tile<32, 16, 128, 2, 6>>(mm, device, stream);
    case 64016:
      return launch_tile<TensorMath<Element, 16, 16>, Tile<64, 16, 128, 1, 6>>(mm, device, stream);
    case 64032:
      return launch_tile<TensorMath<Element, 32, 16>, Tile<64, 32, 128, 1, 4>>(mm, device, stream);
    case 64064:
      return launch_tile<TensorMath<Element, 32, 32>, Tile<64, 64, 128, 1, 4>>(mm, device, stream);
    case 128064:
      return launch_tile<TensorMath<Element, 32, 32>, Tile<128, 64, 256, 1, 3>>(mm, device, stream);
    case 64128:
      return launch_tile<TensorMath<Element, 32, 32>, Tile<64, 128, 256, 1, 3>>(mm, device, stream);
  }
  if constexpr (!Element::kSplits) switch (plan.tile_rows * 1000 + plan.tile_columns) {
      case 96064:
        return launch_along<TensorMath<Element, 48, 16>, Tile<96, 64, 256, 1, 4>>(mm, device, stream);
      case 96128:
        return launch_along<TensorMath<Element, 48, 32>, Tile<96, 128, 256, 1, 3>>(mm, device, stream);
    }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
