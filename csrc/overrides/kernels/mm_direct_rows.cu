// Few columns, a weight with inner stride 1: the weight goes from global memory straight into the fragments of mma.sync.
//
// A block computes 16 rows of the weight for all columns. Its warps share the inner dimension in blocks of 64 bytes, which
// they take in turns, so that together they read long runs of each row:
//
//            warp 0   warp 1   ..  warp 0
//   row 0  | 64 B   | 64 B   | .. | 64 B ..     lane 4 g + t of a warp holds piece t (16 bytes) of rows g and g + 8:
//   ..     |        |        |    |             words 0, 1 of a piece take part in one mma, words 2, 3 in the next.
//   row 15 | 64 B   | 64 B   | .. | 64 B ..     Which k a word means does not matter: the input's pieces are read the same way.
//
// No shared memory, no barrier, and kAhead blocks of loads on their way at once, until the warps add up their sums in order.
#include "mm_direct.cuh"
#include "mm_tensor.cuh"

namespace tracer::overrides {

namespace {

constexpr int kRows = 16;

// sums += the products of one piece of 16 rows and of 8 columns.
template <class Element>
__device__ __forceinline__ void multiply_pieces(float (&sums)[4], const uint4& low, const uint4& high, const uint4& right) {
  const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
  const uint32_t b[2][2] = {{right.x, right.y}, {right.z, right.w}};
  if constexpr (Element::kSplits) {
    uint32_t big[2][4], small[2][4], b_big[2][2], b_small[2][2];
    float chain[4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) Element::split(a[s][i], big[s][i], small[s][i]);
#pragma unroll
      for (int i = 0; i < 2; ++i) Element::split(b[s][i], b_big[s][i], b_small[s][i]);
      mma_tf32(chain, small[s], b_big[s]);
      mma_tf32(chain, big[s], b_small[s]);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) mma_tf32(chain, big[s], b_big[s]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += chain[i];
  } else {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint32_t left[4] = {a[s][0], a[s][1], a[s][2], a[s][3]}, other[2] = {b[s][0], b[s][1]};
#pragma unroll
      for (int i = 0; i < 4; ++i) Element::prepare(left[i]);
#pragma unroll
      for (int i = 0; i < 2; ++i) Element::prepare(other[i]);
      Element::multiply(sums, left, other);
    }
  }
}

template <class Element, int kTiles, int kAhead>
__global__ void __launch_bounds__(256, kTiles == 1 ? 2 : 1) mm_direct_rows(const __grid_constant__ Mm mm) {
  using T = typename Element::T;
  constexpr int kPiece = 16 / sizeof(T), kBlock = 4 * kPiece, kColumns = 8 * kTiles, kPitch = kRows + 4;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int warps = int(blockDim.x) / 32;
  const int64_t row = int64_t(blockIdx.x) * kRows;
  const int inner = int(mm.inner);
  const T* low_row = static_cast<const T*>(mm.weight) + (row + g) * mm.weight_row;
  const T* high_row = low_row + 8 * mm.weight_row;
  const bool low_inside = row + g < mm.rows, high_inside = row + g + 8 < mm.rows;
  const T* input = static_cast<const T*>(mm.input) + g * mm.input_column;

  float sums[kTiles][4] = {};
#pragma unroll 1
  for (int k = warp * kBlock + t * kPiece; k - t * kPiece < inner; k += kAhead * warps * kBlock) {
    uint4 low[kAhead], high[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = k + i * warps * kBlock;
      low[i] = load_if(low_row + at, low_inside && at < inner);
      high[i] = load_if(high_row + at, high_inside && at < inner);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = k + i * warps * kBlock;
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        uint4 right = make_uint4(0, 0, 0, 0);
        if (at < inner && g + 8 * c < mm.columns) right = __ldg(reinterpret_cast<const uint4*>(input + 8 * c * mm.input_column + at));
        multiply_pieces<Element>(sums[c], low[i], high[i], right);
      }
    }
  }

  auto* all = reinterpret_cast<float*>(block_shared());  // [warp][column][row]
  float* mine = all + warp * kColumns * kPitch;
#pragma unroll
  for (int c = 0; c < kTiles; ++c)
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[(8 * c + 2 * t + i % 2) * kPitch + g + i / 2 * 8] = sums[c][i];
  __syncthreads();
  for (int at = thread; at < kRows * kColumns; at += int(blockDim.x)) {
    const int r = at % kRows, c = at / kRows;
    if (row + r >= mm.rows || c >= mm.columns) continue;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += all[(w * kColumns + c) * kPitch + r];
    if (Element::kRepairs && !isfinite(sum)) sum = plain_sum<T>(mm, row + r, c);
    write_result<T>(mm, row + r, c, sum);
  }
}

template <class Element>
cudaError_t launch_of(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  const dim3 grid(unsigned((mm.rows + kRows - 1) / kRows));
  const int threads = 32 * plan.split;
  const size_t shared = size_t(8) * plan.tile_columns * (kRows + 4) * sizeof(float);
  switch (plan.tile_columns) {
    case 8:
      return launch<mm_direct_rows<Element, 1, 6>>(grid, threads, shared, 1, mm, device, stream);
    case 16:
      return launch<mm_direct_rows<Element, 2, 6>>(grid, threads, shared, 1, mm, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_direct_rows(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (mm.element) {
    case Element::kFloat:
      return mm.tf32 ? launch_of<Tf32>(mm, plan, device, stream) : launch_of<Tf32x3>(mm, plan, device, stream);
    case Element::kBfloat16:
      return launch_of<Bfloat16>(mm, plan, device, stream);
    case Element::kHalf:
      return launch_of<Half>(mm, plan, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
