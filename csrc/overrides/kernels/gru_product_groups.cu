// x W' of the forward pass on sm_90a, for TF32 and the two-byte types: tiles of 128 x 128, half of the rows for each of two warp groups.
//
//            slabs of k: 0   1   2  ..      A thread of the first has the copy engine bring slab after slab of both operands
//   rows 0..  | warp group 0                (gru_warpgroups.cuh) to stages of shared memory, as soon as both warp groups have used what
//   rows 64.. | warp group 1                was there.
//
// Two blocks share a multiprocessor: one multiplies while the other stores its sums.
#include "gru_launch.cuh"
#include "gru_product_groups.h"
#include "gru_warpgroups.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kTile = 128, kThreads = 2 * 128, kStages = 3, kOperandBytes = kTile * kSlabBytes, kStageBytes = 2 * kOperandBytes;
constexpr int kBarrierBytes = 1024;  // of shared memory before the stages

struct GroupsProduct {
  CUtensorMap a, b[2];
  int m, n, slabs, b_split;
  const void* bias[2];
  void* c;
  int64_t c_stride;
};

template <Precision precision>
__global__ void __launch_bounds__(kThreads, 2) groups_product_kernel(const __grid_constant__ GroupsProduct p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Element<precision>;
  const int thread = int(threadIdx.x), warp = thread >> 5, lane = thread & 31, g = lane >> 2, q = lane & 3;
  const int first_m = int(blockIdx.y) * kTile, first_n = int(blockIdx.x) * kTile;
  uint64_t* filled = reinterpret_cast<uint64_t*>(block_shared());
  uint64_t* emptied = filled + kStages;
  char* stages = block_shared() + kBarrierBytes;
  if (thread == 0) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(filled + i, 1);
      barrier_init(emptied + i, 1);
    }
    barriers_are_seen();
  }
  __syncthreads();

  const int second = first_n >= p.b_split ? 1 : 0;
  auto bring = [&](int slab, int stage) {
    char* to = stages + stage * kStageBytes;
    bytes_expect(filled + stage, kStageBytes);
    bring_slab(to, p.a, slab * kSlab<precision>, first_m, filled + stage);
    bring_slab(to + kOperandBytes, p.b[second], slab * kSlab<precision>, first_n - second * p.b_split, filled + stage);
  };
  if (thread == 0) {
    for (int slab = 0; slab < kStages && slab < p.slabs; slab++) bring(slab, slab);
  }
  const int group = warp / 4;
  float sums[kTile / 2];
  int stage = 0, phase = 0, before = 0, before_phase = 0;
#pragma unroll 1
  for (int slab = 0; slab < p.slabs; slab++) {
    wait_for(filled + stage, phase);
    group_fence();
    const char* at = stages + stage * kStageBytes;
    const uint64_t a = slab_rows(at + group * 64 * kSlabBytes), b = slab_rows(at + kOperandBytes);
#pragma unroll
    for (int i = 0; i < kStepsOfSlab; i++) group_multiply<precision>(sums, further(a, i), further(b, i), slab + i > 0);
    group_commit();
    if (slab > 0) {  // the slab before this one is used
      group_wait<1>();
      if (thread == 128) arrive(emptied + before);
      if (thread == 0 && slab - 1 + kStages < p.slabs) {
        wait_for(emptied + before, before_phase);
        bring(slab - 1 + kStages, before);
      }
    }
    before = stage;
    before_phase = phase;
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  float2 bias[kTile / 8];
  const T* from = static_cast<const T*>(p.bias[second]);
#pragma unroll
  for (int i = 0; i < kTile / 8; i++) {
    const int n = first_n + 8 * i + 2 * q;
    const bool inside = from != nullptr && n < p.n;
    bias[i].x = inside ? to_float(from[n - second * p.b_split]) : 0.0f;
    bias[i].y = inside ? to_float(from[n + 1 - second * p.b_split]) : 0.0f;
  }
  group_wait<0>();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int m = first_m + warp * 16 + g + 8 * half;
    if (m >= p.m) continue;
    float* to = static_cast<float*>(p.c) + m * p.c_stride + first_n + 2 * q;
#pragma unroll
    for (int i = 0; i < kTile / 8; i++) {
      if (first_n + 8 * i + 2 * q < p.n)
        *reinterpret_cast<float2*>(to + 8 * i) = make_float2(sums[4 * i + 2 * half] + bias[i].x, sums[4 * i + 2 * half + 1] + bias[i].y);
    }
  }
#endif
}

template <Precision precision>
cudaError_t launch_precision(const GroupsProduct& arguments, cudaStream_t stream) {
  static Prepared prepared{0};
  Launch shape;
  shape.grid = dim3(unsigned((arguments.n + kTile - 1) / kTile), unsigned((arguments.m + kTile - 1) / kTile));
  shape.block = dim3(kThreads);
  shape.shared_bytes = kBarrierBytes + kStages * kStageBytes;
  shape.stream = stream;
  return launch(groups_product_kernel<precision>, shape, prepared, arguments);
}

}  // namespace

bool suits_groups(const Product& p) {
  const int64_t bytes = element_bytes(p.precision), most = 1 << 30;
  const auto pieces = [&](const void* pointer, int64_t stride) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride * bytes % 16 == 0;
  };
  const bool halves = p.b_split >= p.n || (p.b_split % kTile == 0 && pieces(p.b[1], p.b_stride[1]));
  return current_device().capability == 90 && p.precision != Precision::kFloat32 && p.layout == Product::Layout::kRowsByRows &&
         p.c_is_float && p.addend == nullptr && halves && pieces(p.a, p.a_stride) && pieces(p.b[0], p.b_stride[0]) && p.n % 2 == 0 &&
         p.c_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.c) % 8 == 0 && p.m < most && p.n < most && p.k < most &&
         (p.m + kTile - 1) / kTile * ((p.n + kTile - 1) / kTile) >= current_device().processors / 2;
}

cudaError_t launch_groups_product(const Product& p, cudaStream_t stream) {
  GroupsProduct arguments;
  const int64_t first = p.b_split < p.n ? p.b_split : p.n;
  const bool made = make_slab_map(arguments.a, p.precision, p.a, p.k, p.m, p.a_stride, kTile) &&
                    make_slab_map(arguments.b[0], p.precision, p.b[0], p.k, first, p.b_stride[0], kTile) &&
                    (first == p.n || make_slab_map(arguments.b[1], p.precision, p.b[1], p.k, p.n - first, p.b_stride[1], kTile));
  if (!made) return cudaErrorNotSupported;
  const int slab = kSlabBytes / element_bytes(p.precision);
  arguments.m = int(p.m);
  arguments.n = int(p.n);
  arguments.slabs = int((p.k + slab - 1) / slab);
  arguments.b_split = int(first);
  arguments.bias[0] = p.bias[0];
  arguments.bias[1] = p.bias[1];
  arguments.c = p.c;
  arguments.c_stride = p.c_stride;
  switch (p.precision) {
    case Precision::kTf32:
      return launch_precision<Precision::kTf32>(arguments, stream);
    case Precision::kBfloat16:
      return launch_precision<Precision::kBfloat16>(arguments, stream);
    default:
      return launch_precision<Precision::kFloat16>(arguments, stream);
  }
}

}  // namespace tracer::overrides::gru
