// A GRU time step for one or two sequences: a block computes four units.
//
//                 chunk 0 of [x, h]  chunk 1  ..      The warps take the chunks in turns: each thread multiplies 16 bytes of the
//   12 gate rows | warp 0           | warp 1 | ..     twelve gate rows, all of them on their way at once, in float32. The lanes add
//                                                     up by shuffles, the warps through shared memory.
#pragma once

#include "gru_step.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kRowUnits = 4;
// As many threads as [x, h] of 2048 elements has pieces.
template <Precision precision>
constexpr int kRowThreads = 2048 / kPiece<precision>;

template <Precision precision>
__device__ __forceinline__ void values_of(const uint4& piece, float (&values)[kPiece<precision>]) {
  const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(Element<precision>) == 4) {
      values[i] = __uint_as_float(words[i]);
    } else if constexpr (precision == Precision::kBfloat16) {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      values[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] & 0xffffu)));
      values[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
    }
  }
}

// The sum over all lanes of sums[lane / (32 / kCount)]; kCount is a power of two. At each distance a lane keeps half of the sums and
// gives the other half away.
template <int kCount, int kDistance = 16>
__device__ __forceinline__ float sum_of_lanes(float (&sums)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = sums[0];
#pragma unroll
    for (int distance = kDistance; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  } else {
    const bool upper = lane & kDistance;
    float kept[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; i++) {
      const float given = upper ? sums[i] : sums[i + kCount / 2];
      kept[i] = (upper ? sums[i + kCount / 2] : sums[i]) + __shfl_xor_sync(0xffffffffu, given, kDistance);
    }
    return sum_of_lanes<kCount / 2, kDistance / 2>(kept, lane);
  }
}

template <Precision precision, int kSequences>
__global__ void __launch_bounds__(kRowThreads<precision>) row_kernel(StepArguments arguments) {
  using T = Element<precision>;
  constexpr int kThreads = kRowThreads<precision>, kWarps = kThreads / 32, kGateRows = 3 * kRowUnits;
  constexpr int kSums = 4 * kRowUnits * kSequences;  // [sequence][r, z, h part of n, x part of n][unit]: 16 or 32
  const Step& step = arguments.step;
  const int first_unit = int(blockIdx.x) * kRowUnits, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
  float* partial = reinterpret_cast<float*>(block_shared());  // [warp][kSums]

  // The lanes of the first warp that end the computation: one for each unit and sequence.
  const int last_sequence = first_sequence + lane / 16, last_unit = first_unit + lane % 16;
  const bool ends = warp == 0 && lane < kSums && lane % 16 < kRowUnits;
  Given<T> given;
  if (ends) given = load_given<T>(step, direction, last_sequence, last_unit);

  float sums[kSums] = {};
  const Chunks chunks(step, 32 * kPiece<precision>);  // a chunk for each warp
  for (int chunk = warp; chunk < chunks.all; chunk += kWarps) {
    const bool from_x = chunk < chunks.x;
    const Side<T> side(arguments, direction, from_x);
    const int k = ((from_x ? chunk : chunk - chunks.x) * 32 + lane) * kPiece<precision>;
    uint4 weight[kGateRows], input[kSequences];
#pragma unroll
    for (int s = 0; s < kSequences; s++) {
      const T* row = first_sequence + s < step.batch ? side.input + (first_sequence + s) * side.stride : nullptr;
      input[s] = load_piece(row, k, side.length, side.input_vector);
    }
    if (side.weight_vector) {
#pragma unroll
      for (int i = 0; i < kGateRows; i++) {
        const int unit = first_unit + i % kRowUnits;
        const T* row = side.weight + (int64_t(i / kRowUnits) * step.hidden + unit) * side.length;
        weight[i] = make_uint4(0, 0, 0, 0);
        if (unit < step.hidden && k < side.length) weight[i] = load_once(reinterpret_cast<const uint4*>(row + k));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kGateRows; i++) {
        const int unit = first_unit + i % kRowUnits;
        const T* row = side.weight + (int64_t(i / kRowUnits) * step.hidden + unit) * side.length;
        weight[i] = load_piece(unit < step.hidden ? row : nullptr, k, side.length, false);
      }
    }
#pragma unroll
    for (int i = 0; i < kGateRows; i++) {
      float w[kPiece<precision>];
      values_of<precision>(weight[i], w);
#pragma unroll
      for (int s = 0; s < kSequences; s++) {
        float value[kPiece<precision>], sum = 0;
        values_of<precision>(input[s], value);
#pragma unroll
        for (int j = 0; j < kPiece<precision>; j++) sum = fmaf(w[j], value[j], sum);
        float* to = sums + s * 4 * kRowUnits;
        if (i < 2 * kRowUnits || !from_x) {
          to[i] += sum;
        } else {
          to[i + kRowUnits] += sum;
        }
      }
    }
  }
  __syncwarp();
  const float sum = sum_of_lanes(sums, lane);
  if (lane % (32 / kSums) == 0) partial[warp * kSums + lane / (32 / kSums)] = sum;
  __syncthreads();
  if (warp != 0) return;
  float total = 0;
  if (lane < kSums) {
#pragma unroll
    for (int w = 0; w < kWarps; w++) total += partial[w * kSums + lane];
  }
  float last[4];
#pragma unroll
  for (int i = 0; i < 4; i++) last[i] = __shfl_sync(0xffffffffu, total, (lane & 16) + i * kRowUnits + lane % kRowUnits);
  if (ends) finish<T>(step, direction, last_sequence, last_unit, given, last);
}

template <Precision precision, int kSequences>
cudaError_t launch_rows(const StepArguments& arguments, cudaStream_t stream) {
  static Prepared prepared{0};
  const Step& step = arguments.step;
  Launch shape;
  shape.grid = dim3((step.hidden + kRowUnits - 1) / kRowUnits, (step.batch + kSequences - 1) / kSequences, step.directions);
  shape.block = dim3(kRowThreads<precision>);
  shape.shared_bytes = sizeof(float) * kRowThreads<precision> / 32 * 4 * kRowUnits * kSequences;
  shape.stream = stream;
  return launch(row_kernel<precision, kSequences>, shape, prepared, arguments);
}

}  // namespace
}  // namespace tracer::overrides::gru
