// Few columns of fp32, a weight with row stride 1: each lane reads 16 bytes of the weight's rows at one k, straight into registers.
//
// A block computes 32 rows of the weight, 128 bytes of each k. A lane reads piece l % 8 of the four k from 4 (l / 8) on:
//
//            piece 0   1   ..  7
//   k ..+3   lane 0    1   ..  7        The warps take groups of 16 k in turns; a lane's input is one float4. At the end the four
//   k+4..+7  lane 8    9   .. 15        lanes of a piece add up, then the warps, always in the same order.
//   ..
//
// Loads of the next groups are on their way while these are multiplied (FMA).
#include "mm_direct.cuh"

namespace tracer::overrides {

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kRows = 32;

template <int kColumns, int kAhead>
__global__ void __launch_bounds__(kThreads, 1) mm_direct_columns(const __grid_constant__ Mm mm) {
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32, piece = lane % 8;
  const int64_t row = int64_t(blockIdx.x) * kRows;
  const int inner = int(mm.inner);
  const bool inside = row + piece * 4 < mm.rows;
  const float* weight = static_cast<const float*>(mm.weight) + row + piece * 4;
  const float* input = static_cast<const float*>(mm.input);
  struct Group {
    uint4 w[4];
    float4 x[kColumns];
  };
  Group groups[kAhead];
  auto load = [&](Group& group, int k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) group.w[j] = load_if(weight + int64_t(k + j) * mm.weight_inner, inside && k < inner);
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      group.x[c] =
          k < inner && c < mm.columns ? __ldg(reinterpret_cast<const float4*>(input + c * mm.input_column + k)) : make_float4(0, 0, 0, 0);
  };
  constexpr int kStep = kWarps * 16;  // of k between a warp's groups
  int k = warp * 16 + lane / 8 * 4;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(groups[i], k + i * kStep);
  float sums[kColumns][4] = {};
#pragma unroll 1
  for (; k - lane / 8 * 4 < inner; k += kAhead * kStep) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const Group now = groups[i];
      load(groups[i], k + (kAhead + i) * kStep);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float x[4] = {now.x[c].x, now.x[c].y, now.x[c].z, now.x[c].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[c][0] = fmaf(__uint_as_float(now.w[j].x), x[j], sums[c][0]);
          sums[c][1] = fmaf(__uint_as_float(now.w[j].y), x[j], sums[c][1]);
          sums[c][2] = fmaf(__uint_as_float(now.w[j].z), x[j], sums[c][2]);
          sums[c][3] = fmaf(__uint_as_float(now.w[j].w), x[j], sums[c][3]);
        }
      }
    }
  }
  auto* all = reinterpret_cast<float*>(block_shared());  // [warp][column][row]
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[c][i] += __shfl_xor_sync(0xffffffffu, sums[c][i], 8);
      sums[c][i] += __shfl_xor_sync(0xffffffffu, sums[c][i], 16);
    }
    if (lane < 8)
      *reinterpret_cast<float4*>(all + (warp * kColumns + c) * kRows + lane * 4) =
          make_float4(sums[c][0], sums[c][1], sums[c][2], sums[c][3]);
  }
  __syncthreads();
  if (thread >= kRows * kColumns) return;
  const int r = thread % kRows, c = thread / kRows;
  if (row + r >= mm.rows || c >= mm.columns) return;
  float sum = all[thread];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += all[w * kRows * kColumns + thread];
  write_result<float>(mm, row + r, c, sum);
}

template <int kColumns, int kAhead>
cudaError_t launch_columns(const Mm& mm, int device, cudaStream_t stream) {
  const dim3 grid(unsigned((mm.rows + kRows - 1) / kRows));
  const size_t shared = size_t(kWarps) * kRows * kColumns * sizeof(float);
  return launch<mm_direct_columns<kColumns, kAhead>>(grid, kThreads, shared, 1, mm, device, stream);
}

}  // namespace

cudaError_t launch_direct_columns(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (plan.tile_columns) {
    case 1:
      return launch_columns<1, 4>(mm, device, stream);
    case 2:
      return launch_columns<2, 3>(mm, device, stream);
    case 4:
      return launch_columns<4, 3>(mm, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
