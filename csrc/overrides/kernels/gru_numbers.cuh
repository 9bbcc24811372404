// Element types, and products of 16-byte pieces on the tensor cores.
//
// A piece is 16 bytes of one row: 4 floats or 8 halves. Lane 4 g + q of a warp holds piece q of a 64-byte block of row g: the words
// 0, 1 of the piece take part in a first mma, the words 2, 3 in a second one. Which k a word means in an mma does not matter as
// long as both operands agree, so each lane reads 16 bytes at once and nothing is shuffled.
#pragma once

#include "gru.h"
#include "gru_instructions.cuh"

namespace tracer::overrides::gru {

template <Precision precision>
struct ElementOf {
  using Type = float;
};
template <>
struct ElementOf<Precision::kBfloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct ElementOf<Precision::kFloat16> {
  using Type = __half;
};
template <Precision precision>
using Element = typename ElementOf<precision>::Type;
template <Precision precision>
constexpr int kPiece = 16 / sizeof(Element<precision>);  // elements of a piece
template <Precision precision>
constexpr int kBlock = 4 * kPiece<precision>;            // elements of a 64-byte block

__device__ __forceinline__ void from_float(float value, float& to) { to = value; }
__device__ __forceinline__ void from_float(float value, __nv_bfloat16& to) { to = __float2bfloat16(value); }
__device__ __forceinline__ void from_float(float value, __half& to) { to = __float2half(value); }

// An element as the tensor cores take it: kTf32 rounds here, so that they need not truncate.
template <Precision precision>
__device__ __forceinline__ Element<precision> operand(float value) {
  Element<precision> result;
  if constexpr (precision == Precision::kTf32) {
    result = __uint_as_float(to_tf32(value));
  } else {
    from_float(value, result);
  }
  return result;
}
template <Precision precision>
__device__ __forceinline__ uint4 operand_piece(uint4 piece) {
  if constexpr (precision == Precision::kTf32) {
    piece.x = to_tf32(__uint_as_float(piece.x));
    piece.y = to_tf32(__uint_as_float(piece.y));
    piece.z = to_tf32(__uint_as_float(piece.z));
    piece.w = to_tf32(__uint_as_float(piece.w));
  }
  return piece;
}

// The elements k .. k + kPiece - 1 of a row of `length` elements; zero beyond it. `vector`: rows are 16-byte aligned.
template <typename T>
__device__ __forceinline__ uint4 load_piece(const T* row, int64_t k, int64_t length, bool vector) {
  constexpr int count = 16 / sizeof(T);
  if (row == nullptr || k >= length) return make_uint4(0, 0, 0, 0);
  if (vector && k + count <= length) return __ldg(reinterpret_cast<const uint4*>(row + k));
  union {
    uint4 piece;
    unsigned short halves[8];
    unsigned words[4];
  };
  piece = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < count; i++) {
    if (k + i < length) {
      if constexpr (sizeof(T) == 4) {
        words[i] = __ldg(reinterpret_cast<const unsigned*>(row) + k + i);
      } else {
        halves[i] = __ldg(reinterpret_cast<const unsigned short*>(row) + k + i);
      }
    }
  }
  return piece;
}

// A piece ready for mma. For kFloat32 a value is cut in two: its upper 11 significant bits, and the rest rounded to 11 bits.
template <Precision precision>
struct Split {
  unsigned words[4];
  __device__ __forceinline__ explicit Split(const uint4& piece) : words{piece.x, piece.y, piece.z, piece.w} {}
  __device__ __forceinline__ Split() {}
};
__device__ __forceinline__ unsigned upper_part(unsigned bits) { return bits & 0xffffe000u; }
__device__ __forceinline__ unsigned lower_part(unsigned bits) {
  return __float_as_uint(__uint_as_float(bits) - __uint_as_float(upper_part(bits))) + 0x1000u;
}
template <>
struct Split<Precision::kFloat32> {
  unsigned words[4], rest[4];
  __device__ __forceinline__ explicit Split(const uint4& piece)
      : words{upper_part(piece.x), upper_part(piece.y), upper_part(piece.z), upper_part(piece.w)},
        rest{lower_part(piece.x), lower_part(piece.y), lower_part(piece.z), lower_part(piece.w)} {}
  __device__ __forceinline__ Split() {}
};

template <Precision precision>
__device__ __forceinline__ void multiply_words(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (sizeof(Element<precision>) == 4) {
    mma_tf32(d, a, b);
  } else {
    mma_16bit(d, a, b, static_cast<Element<precision>*>(nullptr));
  }
}

// d (16 x 8) += a block of rows g (`low`) and g + 8 (`high`) of the left operand, times that of row g of the right one.
template <Precision precision>
__device__ __forceinline__ void multiply(float (&d)[4], const Split<precision>& low, const Split<precision>& high,
                                         const Split<precision>& right) {
  if constexpr (precision == Precision::kFloat32) {
    // The tensor cores truncate their sums: short sums from zero, small products first, added to d with rounding.
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const unsigned a[4] = {low.words[s], high.words[s], low.words[s + 1], high.words[s + 1]};
      const unsigned a_rest[4] = {low.rest[s], high.rest[s], low.rest[s + 1], high.rest[s + 1]};
      const unsigned b[2] = {right.words[s], right.words[s + 1]}, b_rest[2] = {right.rest[s], right.rest[s + 1]};
      mma_tf32(sum, a_rest, b);
      mma_tf32(sum, a, b_rest);
    }
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const unsigned a[4] = {low.words[s], high.words[s], low.words[s + 1], high.words[s + 1]};
      const unsigned b[2] = {right.words[s], right.words[s + 1]};
      mma_tf32(sum, a, b);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] += sum[i];
  } else {
#pragma unroll
    for (int s = 0; s < 4; s += 2) {
      const unsigned a[4] = {low.words[s], high.words[s], low.words[s + 1], high.words[s + 1]};
      const unsigned b[2] = {right.words[s], right.words[s + 1]};
      multiply_words<precision>(d, a, b);
    }
  }
}

__device__ __forceinline__ float sigmoid(float value) { return __fdividef(1.0f, 1.0f + expf(-value)); }

// An error of 2^-22 of 1: for results that are rounded to 11 bits.
__device__ __forceinline__ float quick_sigmoid(float value) { return __fdividef(1.0f, 1.0f + __expf(-value)); }
__device__ __forceinline__ float quick_tanh(float value) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * value)); }

struct Gates {
  float r, z, n;
};
// `x_*` and `h_*` with their biases.
__device__ __forceinline__ Gates quick_gates(float x_r, float x_z, float x_n, float h_r, float h_z, float h_n) {
  Gates g;
  g.r = quick_sigmoid(x_r + h_r);
  g.z = quick_sigmoid(x_z + h_z);
  g.n = quick_tanh(x_n + g.r * h_n);
  return g;
}
__device__ __forceinline__ Gates gates(float x_r, float x_z, float x_n, float h_r, float h_z, float h_n) {
  Gates g;
  g.r = sigmoid(x_r + h_r);
  g.z = sigmoid(x_z + h_z);
  g.n = tanhf(x_n + g.r * h_n);
  return g;
}
__device__ __forceinline__ float next_state(const Gates& g, float h) { return g.n + g.z * (h - g.n); }

struct GateGradients {
  float r, z, n, h_n;  // of the arguments of r, z, n, and of h W_hn' + b_hn
};
__device__ __forceinline__ GateGradients gate_gradients(float grad, float r, float z, float n, float h_n, float h) {
  GateGradients g;
  g.n = grad * (1.0f - z) * (1.0f - n * n);
  g.z = grad * (h - n) * z * (1.0f - z);
  g.h_n = g.n * r;
  g.r = g.n * h_n * r * (1.0f - r);
  return g;
}

}  // namespace tracer::overrides::gru
