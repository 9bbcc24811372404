// A GRU time step for many sequences on sm_90a, for TF32 and the two-byte types. A cluster owns 40 units and 64 or 128 sequences; its
// blocks share [x, h]:
//
//                         x: blocks 0 .. 5     h: blocks 6, 7     A block multiplies its slabs of k with r, z and n of the units. The
//   r, z, n of 40 units | slabs | slabs | .. | slabs | slabs |     copy engine brings as many at once as shared memory holds
//   sequences           |                    |               |     (gru_warpgroups.cuh). Then each block sends its sums of some of the
//                                                                  sequences to each other one, which adds its own to them and ends them.
//
// A block has slabs of x or of h alone, so its sums of n are the x part of n or its h part.
#include <algorithm>
#include <atomic>

#include "gru_cluster.cuh"
#include "gru_step.cuh"
#include "gru_step_groups.h"
#include "gru_warpgroups.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kUnits = 40, kColumns = 3 * kUnits, kThreads = 2 * 128 + 32, kLargest = 8, kSmallest = 6;
constexpr int kRow = kColumns + 16;  // of the sums in shared memory: a warp's rows begin in different banks
constexpr int kBarrierBytes = 1024;

struct GroupsStep {
  Step step;
  CUtensorMap weight[2][2], input[2][2];  // [of x, of h][direction]
  int cluster, x_blocks;                  // of the cluster; the others have h
  bool results_vector;
};

// A warp group for 64 sequences; where there are no more, the other one only helps to end the units. The last warp has the slabs brought.
template <int kSequences>
struct Rows {
  static constexpr int kStageBytes = (kColumns + kSequences) * kSlabBytes;
  static constexpr int kStages = kSequences == 128 ? 4 : 8;
  static constexpr int kSumsBytes = (kSequences + kLargest) * kRow * 4;  // the parts of all blocks are equal, so they end a little further
  static constexpr size_t kShared = kBarrierBytes + size_t(kStages) * kStageBytes + kSumsBytes;
  static_assert(kShared <= 227 * 1024 && kSumsBytes <= kStages * kStageBytes && kStageBytes % 1024 == 0);
};

template <Precision precision, int kSequences>
__global__ void __launch_bounds__(kThreads, 1) groups_step_kernel(const __grid_constant__ GroupsStep arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Element<precision>;
  using Shape = Rows<kSequences>;
  constexpr int kStages = Shape::kStages, kSums = kColumns / 2;
  const Step& step = arguments.step;
  const int rank = int(cluster_rank()), direction = int(blockIdx.z), thread = int(threadIdx.x), warp = thread >> 5, lane = thread & 31;
  const int cluster = arguments.cluster, first_unit = int(blockIdx.x) / cluster * kUnits, first_sequence = int(blockIdx.y) * kSequences;
  const bool from_x = rank < arguments.x_blocks;
  const int length = from_x ? step.input : step.hidden, slabs = (length + kSlab<precision> - 1) / kSlab<precision>;
  const int part = from_x ? rank : rank - arguments.x_blocks, parts = from_x ? arguments.x_blocks : cluster - arguments.x_blocks;
  const int begin = slabs * part / parts, end = slabs * (part + 1) / parts;
  uint64_t* filled = reinterpret_cast<uint64_t*>(block_shared());
  uint64_t* emptied = filled + kStages;
  uint64_t* received = emptied + kStages;
  char* stages = block_shared() + kBarrierBytes;
  float* sent = reinterpret_cast<float*>(stages);  // [sequence][r, z, n][unit], padded; where the stages were
  float* got = reinterpret_cast<float*>(stages + kStages * Shape::kStageBytes);  // [block][sequence][r, z, n][unit]
  const int own_rows = (kSequences + cluster - 1) / cluster, part_bytes = own_rows * kRow * int(sizeof(float));
  if (thread == 0) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(filled + i, 1);
      barrier_init(emptied + i, kSequences / 64);
    }
    barrier_init(received, 1);
    barriers_are_seen();
    bytes_expect(received, unsigned((cluster - 1) * part_bytes));
  }
  __syncthreads();  // the barriers are there
  cluster_arrive();

  // A thread ends four units of a sequence.
  constexpr int kQuads = kUnits / 4;
  const int row_of_part = thread / kQuads, own_sequence = rank * own_rows + row_of_part, own_unit = thread % kQuads * 4;
  static_assert((kSequences + kSmallest - 1) / kSmallest * kQuads <= kThreads);
  const bool ends = row_of_part < own_rows && own_sequence < kSequences;

  const int group = warp / 4;
  if (group < kSequences / 64) {
    float sums[kSums];
    int stage = 0, phase = 0, before = 0;
#pragma unroll 1
    for (int slab = begin; slab < end; slab++) {
      wait_for(filled + stage, phase);
      group_fence();
      const char* at = stages + stage * Shape::kStageBytes;
      const uint64_t a = slab_rows(at + kColumns * kSlabBytes + group * 64 * kSlabBytes), b = slab_rows(at);
#pragma unroll
      for (int i = 0; i < kStepsOfSlab; i++) group_multiply<precision>(sums, further(a, i), further(b, i), slab > begin || i > 0);
      group_commit();
      if (slab > begin) {
        group_wait<1>();
        if (thread % 128 == 0) arrive(emptied + before);
      }
      before = stage;
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
    group_wait<0>();
    // Everything that was brought to this block has been used by this warp group, and by the other one after this:
    asm volatile("bar.sync 1, %0;" ::"n"(kSequences * 2) : "memory");
    const int g = lane >> 2, q = lane & 3, row = warp * 16 + g;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      float* to = sent + row * kRow + i * 2 + 2 * q;
      const bool any = begin < end;  // where there are fewer slabs than blocks, some have none
      *reinterpret_cast<float2*>(to) = any ? make_float2(sums[i], sums[i + 1]) : float2();
      *reinterpret_cast<float2*>(to + 8 * kRow) = any ? make_float2(sums[i + 2], sums[i + 3]) : float2();
    }
  } else if (thread == kThreads - 32) {
    const int side = from_x ? 0 : 1;
    for (int slab = begin, stage = 0, phase = 1; slab < end; slab++) {
      wait_for(emptied + stage, phase);
      char* to = stages + stage * Shape::kStageBytes;
      bytes_expect(filled + stage, Shape::kStageBytes);
      bring_box(to, arguments.weight[side][direction], slab * kSlab<precision>, first_unit, 0, filled + stage);
      bring_slab(to + kColumns * kSlabBytes, arguments.input[side][direction], slab * kSlab<precision>, first_sequence, filled + stage);
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
  }
  copies_see();
  __syncthreads();
  cluster_wait();  // the barriers of all are there
  if (thread < cluster && thread != rank) {
    send(address_in(reinterpret_cast<char*>(got) + rank * part_bytes, unsigned(thread)),
         reinterpret_cast<char*>(sent) + thread * part_bytes, unsigned(part_bytes), address_in(received, unsigned(thread)));
  }
  // What the gates take, while the sums are on their way: before, it would have waited behind the slabs.
  Given<T> given[4];
  if (ends) {
#pragma unroll
    for (int i = 0; i < 4; i++) given[i] = load_given<T>(step, direction, first_sequence + own_sequence, first_unit + own_unit + i);
  }
  bytes_wait(received, 0);
  cluster_arrive();
  float sum[4][4] = {};  // of r, z, the h part of n, its x part
  if (ends) {
    const int place = row_of_part * kRow + own_unit;
#pragma unroll 1  // little code: it is run once
    for (int other = 0; other < cluster; other++) {
      const float* from = (other == rank ? sent : got) + other * own_rows * kRow + place;
      const auto add = [&](float (&to)[4], const float4& more, bool counts) {
        to[0] += counts ? more.x : 0.0f;
        to[1] += counts ? more.y : 0.0f;
        to[2] += counts ? more.z : 0.0f;
        to[3] += counts ? more.w : 0.0f;
      };
      const bool is_x = other < arguments.x_blocks;
      const float4 n = *reinterpret_cast<const float4*>(from + 2 * kUnits);
      add(sum[0], *reinterpret_cast<const float4*>(from), true);
      add(sum[1], *reinterpret_cast<const float4*>(from + kUnits), true);
      add(sum[2], n, !is_x);
      add(sum[3], n, is_x);
    }
  }
  if (ends) finish_four<T>(step, arguments.results_vector, direction, first_sequence + own_sequence, first_unit + own_unit, given, sum);
  cluster_wait();  // all have received their sums: no block ends before what it sent has left
#endif
}

template <Precision precision, int kSequences>
Launch shape_of(const Step& step, int cluster) {
  Launch shape;
  shape.grid = dim3(unsigned((step.hidden + kUnits - 1) / kUnits * cluster), unsigned((step.batch + kSequences - 1) / kSequences),
                    unsigned(step.directions));
  shape.block = dim3(kThreads);
  shape.cluster = unsigned(cluster);
  shape.shared_bytes = Rows<kSequences>::kShared;
  return shape;
}

template <Precision precision, int kSequences>
Prepared prepared{0};

// The largest cluster with which all run at once; 0: there is none.
template <Precision precision, int kSequences>
int cluster_for(const Step& step) {
  static std::atomic<int> known[kLargest + 1] = {};  // how many run at once, + 1
  const int tiles = (step.hidden + kUnits - 1) / kUnits * ((step.batch + kSequences - 1) / kSequences) * step.directions;
  for (int cluster = kLargest; cluster >= kSmallest; cluster--) {
    int active = known[cluster].load(std::memory_order_relaxed) - 1;
    if (active < 0) {
      active = active_clusters(groups_step_kernel<precision, kSequences>, shape_of<precision, kSequences>(step, cluster),
                               prepared<precision, kSequences>);
      known[cluster].store(active + 1, std::memory_order_relaxed);
    }
    if (active >= tiles) return cluster;
  }
  return 0;
}

template <Precision precision, int kSequences>
cudaError_t launch_sequences(const Step& step, cudaStream_t stream) {
  GroupsStep arguments;
  arguments.step = step;
  for (int d = 0; d < step.directions; d++) {
    const bool made =
        make_slab_map(arguments.weight[0][d], precision, step.w_ih[d], step.input, step.hidden, step.input, kUnits, 3, step.hidden) &&
        make_slab_map(arguments.weight[1][d], precision, step.w_hh[d], step.hidden, step.hidden, step.hidden, kUnits, 3, step.hidden) &&
        make_slab_map(arguments.input[0][d], precision, step.x[d], step.input, step.batch, step.x_stride, kSequences) &&
        make_slab_map(arguments.input[1][d], precision, step.h[d], step.hidden, step.batch, step.h_stride, kSequences);
    if (!made) return cudaErrorNotSupported;
  }
  const int cluster = arguments.cluster = cluster_for<precision, kSequences>(step);
  const auto most = [&](int x_blocks) {  // slabs of a block
    const auto share = [](int elements, int blocks) {
      return ((elements + kSlab<precision> - 1) / kSlab<precision> + blocks - 1) / blocks;
    };
    return std::max(share(step.input, x_blocks), share(step.hidden, cluster - x_blocks));
  };
  arguments.x_blocks = 1;
  for (int x_blocks = 2; x_blocks < cluster; x_blocks++) {
    if (most(x_blocks) < most(arguments.x_blocks)) arguments.x_blocks = x_blocks;
  }
  arguments.results_vector = step_results_vector(step);
  Launch shape = shape_of<precision, kSequences>(step, cluster);
  shape.stream = stream;
  return launch(groups_step_kernel<precision, kSequences>, shape, prepared<precision, kSequences>, arguments);
}

template <typename Function>
auto with_kernel(const Step& step, Function&& function) {
  return with_precision(step.precision, [&](auto p) {  // kFloat32 never comes here: see suits_groups()
    constexpr Precision precision = p() == Precision::kFloat32 ? Precision::kTf32 : p();
    return step.batch > 64 ? function(std::integral_constant<Precision, precision>(), std::integral_constant<int, 128>())
                           : function(std::integral_constant<Precision, precision>(), std::integral_constant<int, 64>());
  });
}

}  // namespace

bool suits_groups(const Step& step) {
  const int64_t bytes = element_bytes(step.precision);
  bool all = current_device().capability == 90 && step.precision != Precision::kFloat32;
  for (int d = 0; d < step.directions; d++) all = all && step.x[d] != nullptr;
  return all && aligned(step.x, step.directions, step.x_stride * bytes) && aligned(step.h, step.directions, step.h_stride * bytes) &&
         aligned(step.w_ih, step.directions, step.input * bytes) && aligned(step.w_hh, step.directions, step.hidden * bytes) &&
         with_kernel(step, [&](auto precision, auto sequences) { return cluster_for<precision(), sequences()>(step); }) != 0;
}

cudaError_t launch_groups_step(const Step& step, cudaStream_t stream) {
  return with_kernel(step, [&](auto precision, auto sequences) { return launch_sequences<precision(), sequences()>(step, stream); });
}

}  // namespace tracer::overrides::gru
