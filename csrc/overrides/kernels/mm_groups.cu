// Products on sm_90a by warp groups (wgmma), with slabs that the copy engine brings (copy_engine.cuh, wgmma.cuh).
//
//                slabs of k: 0   1   2   3   4  ..       A block computes 64 rows of the weight for all columns. One thread has the copy
//   64 rows of the weight  | a | b | a | b | a | ..      engine bring stage after stage of both operands, many of them ahead. Warp groups
//   columns of the input   | a | b | a | b | a | ..      a, b, .. take them in turns, and their sums are added in order at the end, those
//                                                        of the blocks of a cluster too.
//
// A stage is one slab. Where a two-byte weight lies across it is up to four, since one copy brings so much of the weight, and each copy
// costs the thread that starts it some 200 cycles.
//
// Strict fp32 is three TF32 products, as in mm_tensor.cuh: the weight goes through registers, where it is split; of the input a warp for
// each group puts what TF32 leaves out beside it. TF32 operands that lie across, which wgmma does not take from shared memory, go through
// registers as well.
#include <type_traits>

#include "copy_engine.cuh"
#include "mm_sums.cuh"
#include "wgmma.cuh"

namespace tracer::overrides {
namespace {

constexpr int kRows = 64, kBarrierBytes = 1024, kWeightBytes = kRows * kSlabBytes;

struct Arguments {
  CUtensorMap weight, input;
  Mm mm;
};

template <MapElement kElement_, bool kAcross_, int kColumns_>
struct Shape {
  static constexpr MapElement kElement = kElement_;
  using T = std::conditional_t<kElement == MapElement::kBfloat16, __nv_bfloat16,
                               std::conditional_t<kElement == MapElement::kHalf, __half, float>>;
  static constexpr bool kAcross = kAcross_, kStrict = kElement == MapElement::kFloat;
  static constexpr bool kRegisters = kStrict || (kElement == MapElement::kTf32 && kAcross);  // the weight goes through them
  static constexpr int kColumns = kColumns_, kGroups = kStrict && kColumns < 128 ? 3 : 2;
  static constexpr int kSlab = kSlabBytes / int(sizeof(T));
  static constexpr int kSlabs = !kAcross || sizeof(T) == 4 || kColumns > 64 ? 1 : kColumns == 64 ? 2 : 4;  // of a stage
  static constexpr int kSumThreads = kGroups * 128, kThreads = kSumThreads + 32 + (kStrict ? 32 * kGroups : 0);
  static constexpr int kInputBytes = kColumns * kSlabBytes, kInputAt = kSlabs * kWeightBytes;  // in a stage
  static constexpr int kRestAt = kInputAt + kSlabs * kInputBytes;  // what TF32 leaves out of the input
  static constexpr int kStageBytes = kRestAt + (kStrict ? kInputBytes : 0);
  // A group takes the same stages of the ring again and again, and so never meets a phase that another has not ended.
  static constexpr int kFit = (216 * 1024 - kBarrierBytes) / kStageBytes, kStages = (kFit < 24 ? kFit : 24) / kGroups * kGroups;
  static constexpr int kBytes = kBarrierBytes + kStages * kStageBytes;
  static_assert(kStages >= 2 * kGroups);
  static_assert(kGroups * kColumns * sum_pitch(kRows) * int(sizeof(float)) <= kStages * kStageBytes);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// What TF32 leaves out of a slab of the input, at the same places of `rest`. The tensor cores drop those bits of the input themselves.
template <int kColumns>
__device__ __forceinline__ void split_input(const char* input, char* rest, int lane) {
  constexpr int kPieces = kColumns * kSlabBytes / 16 / 32, kBatch = kPieces < 8 ? kPieces : 8;
#pragma unroll 1
  for (int first = 0; first < kPieces; first += kBatch) {
    uint4 words[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; j++) words[j] = *reinterpret_cast<const uint4*>(input + ((first + j) * 32 + lane) * 16);
#pragma unroll
    for (int j = 0; j < kBatch; j++) {
      uint32_t* word[4] = {&words[j].x, &words[j].y, &words[j].z, &words[j].w};
#pragma unroll
      for (int i = 0; i < 4; i++) *word[i] = __float_as_uint(__uint_as_float(*word[i]) - __uint_as_float(*word[i] & 0xffffe000u));
      *reinterpret_cast<uint4*>(rest + ((first + j) * 32 + lane) * 16) = words[j];
    }
  }
}

// What this thread holds of the weight in step `step` of a slab (wgmma.cuh). Across, 32 rows are a slab of their own.
template <bool kAcross>
__device__ __forceinline__ void load_weight(uint32_t (&a)[4], const char* weight, int row, int step, int q) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = row + i % 2 * 8, k = step * 8 + q + i / 2 * 4;
    const int at = kAcross ? r / 32 * (kWeightBytes / 2) + in_slab(k, r % 32 * 4) : in_slab(r, k * 4);
    a[i] = *reinterpret_cast<const uint32_t*>(weight + at);
  }
}
// TF32 of what a thread holds, and what that leaves out.
__device__ __forceinline__ void split_weight(uint32_t (&a)[4], uint32_t (&rest)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float whole = __uint_as_float(a[i]);
    a[i] = round_to_tf32(a[i]);
    rest[i] = __float_as_uint(whole - __uint_as_float(a[i]));
  }
}

// For the one thread that starts the copies. What lies outside the operands comes as zeros.
template <class Shape>
__device__ __forceinline__ void bring_stages(const Arguments& arguments, char* stages, uint64_t* filled, uint64_t* emptied, int begin,
                                             int count, int row, int column) {
  constexpr int kBytes = Shape::kSlabs * (kWeightBytes + Shape::kInputBytes);
  int stage = 0, phase = 1;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    if (i >= Shape::kStages) wait_for(emptied + stage, phase);
    const int k = (begin + i) * Shape::kSlabs * Shape::kSlab;
    char* to = stages + stage * Shape::kStageBytes;
    bytes_expect(filled + stage, kBytes);
    if constexpr (!Shape::kAcross) {
      bring_slab(to, arguments.weight, k, row, filled + stage);
    } else {
      bring_slab(to, arguments.weight, row, k, filled + stage);
      if constexpr (sizeof(typename Shape::T) == 4) bring_slab(to + kWeightBytes / 2, arguments.weight, row + kRows / 2, k, filled + stage);
    }
#pragma unroll
    for (int slab = 0; slab < Shape::kSlabs; slab++)
      bring_slab(to + Shape::kInputAt + slab * Shape::kInputBytes, arguments.input, k + slab * Shape::kSlab, column, filled + stage);
    if (++stage == Shape::kStages) stage = 0, phase ^= 1;
  }
}
#endif

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) mm_groups_kernel(const __grid_constant__ Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const Mm& mm = arguments.mm;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
  const int group = warp / 4, rank = int(cluster_rank());
  const int64_t row = int64_t(blockIdx.x) * kRows, column = int64_t(blockIdx.y) * Shape::kColumns;
  const int64_t all_stages = (mm.inner + Shape::kSlabs * Shape::kSlab - 1) / (Shape::kSlabs * Shape::kSlab);
  const int begin = int(all_stages * rank / mm.split), count = int(all_stages * (rank + 1) / mm.split) - begin;
  auto* filled = reinterpret_cast<uint64_t*>(block_shared());
  uint64_t *split = filled + Shape::kStages, *emptied = split + Shape::kStages;
  char* stages = block_shared() + kBarrierBytes;
  if (thread == 0) {
    for (int i = 0; i < Shape::kStages; i++) {
      barrier_init(filled + i, 1);
      barrier_init(split + i, 1);
      barrier_init(emptied + i, 4);  // the warps of the group that took it
    }
    barriers_are_seen();
  }
  __syncthreads();

  constexpr int kCount = Shape::kColumns / 2;
  float sums[kCount] = {};
  if (warp == Shape::kGroups * 4) {
    if (lane == 0) bring_stages<Shape>(arguments, stages, filled, emptied, begin, count, int(row), int(column));
    __syncwarp();
  } else if (group == Shape::kGroups) {
    for (int i = warp - Shape::kGroups * 4 - 1; i < count; i += Shape::kGroups) {
      const int stage = i % Shape::kStages;
      wait_for(filled + stage, i / Shape::kStages & 1);
      char* at = stages + stage * Shape::kStageBytes;
      split_input<Shape::kColumns>(at + Shape::kInputAt, at + Shape::kRestAt, lane);
      copies_see();
      __syncwarp();
      if (lane == 0) arrive(split + stage);
    }
  } else {
    int before = -1;
#pragma unroll 1
    for (int i = group; i < count; i += Shape::kGroups) {
      const int stage = i % Shape::kStages, phase = i / Shape::kStages & 1;
      const char* at = stages + stage * Shape::kStageBytes;
      wait_for(filled + stage, phase);
      if constexpr (!Shape::kRegisters) {
        group_fence();
#pragma unroll
        for (int slab = 0; slab < Shape::kSlabs; slab++) {
          const uint64_t a = slab_rows(at + slab * kWeightBytes), b = slab_rows(at + Shape::kInputAt + slab * Shape::kInputBytes);
#pragma unroll
          for (int s = 0; s < kStepsOfSlab; s++)
            group_multiply<Shape::kElement, Shape::kAcross>(sums, Shape::kAcross ? further_across(a, s) : further(a, s), further(b, s),
                                                            true);
        }
        group_commit();
        if (before >= 0) {
          group_wait<1>();
          if (lane == 0) arrive(emptied + before);
        }
        before = stage;
      } else {
        uint32_t a[kStepsOfSlab][4];
#pragma unroll
        for (int s = 0; s < kStepsOfSlab; s++) load_weight<Shape::kAcross>(a[s], at, warp % 4 * 16 + g, s, q);
        const uint64_t b = slab_rows(at + Shape::kInputAt);
        uint32_t rest[kStepsOfSlab][4];
#pragma unroll
        for (int s = 0; s < kStepsOfSlab; s++) split_weight(a[s], rest[s]);
        if constexpr (Shape::kStrict) {
          // The tensor cores round sums toward zero, so they sum the products of one slab, the small ones first.
          float chain[kCount];
          const uint64_t b_rest = slab_rows(at + Shape::kRestAt);
          wait_for(split + stage, phase);
          group_fence();
#pragma unroll
          for (int s = 0; s < kStepsOfSlab; s++) {
            group_multiply_tf32(chain, rest[s], further(b, s), s > 0);
            group_multiply_tf32(chain, a[s], further(b_rest, s), true);
          }
#pragma unroll
          for (int s = 0; s < kStepsOfSlab; s++) group_multiply_tf32(chain, a[s], further(b, s), true);
          group_commit();
          group_wait<0>();
#pragma unroll
          for (int j = 0; j < kCount; j++) sums[j] += chain[j];
        } else {
          group_fence();
#pragma unroll
          for (int s = 0; s < kStepsOfSlab; s++) group_multiply_tf32(sums, a[s], further(b, s), true);
          group_commit();
          group_wait<0>();
        }
        if (lane == 0) arrive(emptied + stage);
      }
    }
    if constexpr (!Shape::kRegisters) group_wait<0>();
  }
  __syncthreads();  // nobody reads a slab any more
  auto* all = reinterpret_cast<float*>(stages);
  if (group < Shape::kGroups) {
    float* mine = all + group * Shape::kColumns * sum_pitch(kRows) + warp % 4 * 16 + g;
#pragma unroll
    for (int i = 0; i < kCount; i++) mine[(i / 4 * 8 + 2 * q + i % 2) * sum_pitch(kRows) + i % 4 / 2 * 8] = sums[i];
  }
  if (mm.split > 1)
    cluster_barrier();
  else
    __syncthreads();
  if (group < Shape::kGroups) {
    finish<typename Shape::T, Shape::kStrict, kRows, Shape::kColumns, Shape::kGroups, Shape::kSumThreads>(mm, all, row, column, rank,
                                                                                                          thread);
  }
  if (mm.split > 1) cluster_barrier();  // no block ends while another reads its sums
#endif
}

template <class Shape>
cudaError_t launch_shape(const Mm& mm, int device, cudaStream_t stream) {
  Arguments arguments;
  arguments.mm = mm;
  constexpr int kSlab = Shape::kSlab;
  // What goes through registers is rounded there.
  constexpr MapElement kWeight = Shape::kRegisters ? MapElement::kFloat : Shape::kElement;
  // Lines of `length` elements; the stride of a single one may be anything.
  const auto lines = [](int64_t length, int64_t count, int64_t stride, int box) {
    return MapShape{{length, count, 1}, {count > 1 ? stride : (length + kSlab - 1) / kSlab * kSlab, 0}, {kSlab, box, 1}};
  };
  const MapShape input = lines(mm.inner, mm.columns, mm.input_column, Shape::kColumns);
  const MapShape weight =
      Shape::kAcross ? lines(mm.rows, mm.inner, mm.weight_inner, Shape::kSlabs * kSlab) : lines(mm.inner, mm.rows, mm.weight_row, kRows);
  if (!make_tensor_map(arguments.input, Shape::kElement, mm.input, input) || !make_tensor_map(arguments.weight, kWeight, mm.weight, weight))
    return cudaErrorNotSupported;
  const dim3 grid(unsigned((mm.rows + kRows - 1) / kRows), unsigned((mm.columns + Shape::kColumns - 1) / Shape::kColumns),
                  unsigned(mm.split));
  return launch<mm_groups_kernel<Shape>>(grid, Shape::kThreads, Shape::kBytes, mm.split, arguments, device, stream);
}

template <MapElement kElement, bool kAcross>
cudaError_t launch_columns(const Mm& mm, int columns, int device, cudaStream_t stream) {
  switch (columns) {
    case 8:
      return launch_shape<Shape<kElement, kAcross, 8>>(mm, device, stream);
    case 16:
      return launch_shape<Shape<kElement, kAcross, 16>>(mm, device, stream);
    case 32:
      return launch_shape<Shape<kElement, kAcross, 32>>(mm, device, stream);
    case 64:
      return launch_shape<Shape<kElement, kAcross, 64>>(mm, device, stream);
    case 128:
      return launch_shape<Shape<kElement, kAcross, 128>>(mm, device, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

template <MapElement kElement>
cudaError_t launch_element(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  return inner_major(mm) ? launch_columns<kElement, false>(mm, plan.tile_columns, device, stream)
                         : launch_columns<kElement, true>(mm, plan.tile_columns, device, stream);
}

}  // namespace

const std::vector<TileSize>& groups_tiles() {
  static const auto& all = *new std::vector<TileSize>{{kRows, 8}, {kRows, 16}, {kRows, 32}, {kRows, 64}, {kRows, 128}};
  return all;
}

cudaError_t launch_groups(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  switch (mm.element) {
    case Element::kFloat:
      return mm.tf32 ? launch_element<MapElement::kTf32>(mm, plan, device, stream)
                     : launch_element<MapElement::kFloat>(mm, plan, device, stream);
    case Element::kBfloat16:
      return launch_element<MapElement::kBfloat16>(mm, plan, device, stream);
    case Element::kHalf:
      return launch_element<MapElement::kHalf>(mm, plan, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tracer::overrides
