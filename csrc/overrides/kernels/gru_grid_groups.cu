// The forward recurrence where W_hh fits into no cluster but into the whole GPU, for TF32 and the two-byte types: as in gru_grid.cu a
// block owns some hidden units for some sequences for all time steps. Here the rows of W_hh of its units stay in shared memory, and h
// comes to it slab by slab (gru_warpgroups.cuh) from a buffer in global memory, in which all blocks write their units as wgmma reads them.
//
//                     slabs of k: 0   1   2  ..          The last warp brings the slabs of h, some at a time, as soon as the blocks
//   h   64 sequences | warp group 0  ->                  that own their units have written them. A warp group multiplies its 64
//       64 sequences | warp group 1  ->                  sequences with r, z and n of the block's units, so a thread holds all that
//   W   r, z, n of 8 or 16 units                         the gates of an element need.
//
// All blocks run at once (a cooperative launch). Two buffers of h: who writes the one of step t + 2 has read all of t + 1, and so has
// everybody read t.
#include <algorithm>

#include "gru_cluster.cuh"
#include "gru_grid_groups.h"
#include "gru_warpgroups.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kGroupThreads = 128;  // of a warp group
constexpr int kMostStages = 16;     // slabs of h in shared memory

struct GroupsArguments {
  Forward forward;
  unsigned* counters;  // [group][slab], zero before the launch: how many blocks have written to a chunk, over all steps
  char* exchange;      // [group][2][slab][sequence][128 bytes]
  int direction, first_sequence, unit_blocks, slabs;
  int chunk, stages;   // slabs that are brought at once; chunks in shared memory
};

// 8 * kUnitGroups units and 64 * kWarpGroups sequences.
template <int kUnitGroups, int kWarpGroups>
struct Block {
  static constexpr int kUnits = 8 * kUnitGroups, kSequences = 64 * kWarpGroups, kThreads = kGroupThreads * kWarpGroups + 32;
  static constexpr int kWeightSlab = 3 * kUnits * kSlabBytes, kStateSlab = kSequences * kSlabBytes;
  static constexpr int kHead = 1024;  // of shared memory: barriers, then b_hh
  static_assert(2 * kMostStages * 8 + 3 * kUnits * 4 <= kHead && kWeightSlab % 1024 == 0);
};

template <Precision precision, int kUnitGroups, int kWarpGroups>
__global__ void __launch_bounds__(Block<kUnitGroups, kWarpGroups>::kThreads, 1)
    groups_kernel(const __grid_constant__ GroupsArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Element<precision>;
  using Shape = Block<kUnitGroups, kWarpGroups>;
  constexpr int kUnits = Shape::kUnits, kSequences = Shape::kSequences, kSums = 12 * kUnitGroups;
  const Forward& f = arguments.forward;
  const int thread = int(threadIdx.x), warp = thread >> 5, lane = thread & 31, g = lane >> 2, q = lane & 3;
  const int group = int(blockIdx.x) / arguments.unit_blocks, direction = arguments.direction, slabs = arguments.slabs;
  const int first_unit = int(blockIdx.x) % arguments.unit_blocks * kUnits, first_sequence = arguments.first_sequence + group * kSequences;
  unsigned* counters = arguments.counters + group * slabs;
  char* exchange = arguments.exchange + int64_t(group) * 2 * slabs * Shape::kStateSlab;

  char* shared = block_shared();  // its address is a multiple of 1024: there is no other shared memory
  uint64_t* filled = reinterpret_cast<uint64_t*>(shared);
  uint64_t* emptied = filled + kMostStages;
  float* bias = reinterpret_cast<float*>(emptied + kMostStages);  // [3][unit]
  char* weights = shared + Shape::kHead;                          // [slab][r, z, n][unit][128 bytes]
  char* states = weights + slabs * Shape::kWeightSlab;            // [stage][sequence][128 bytes]

  if (thread == 0) {
    for (int i = 0; i < arguments.stages; i++) {
      barrier_init(filled + i, 1);
      barrier_init(emptied + i, kWarpGroups);
    }
    barriers_are_seen();
  }
  const T* w_hh = static_cast<const T*>(f.w_hh[direction]);
#pragma unroll 8
  for (int i = thread; i < slabs * 3 * kUnits * 8; i += Shape::kThreads) {
    const int piece = i % 8, slab = i / 8 % slabs, row = i / 8 / slabs, unit = first_unit + row % kUnits;
    const uint4 words = load_if(
        w_hh + (int64_t(row / kUnits) * f.hidden + unit) * f.hidden + slab * kSlab<precision> + piece * kPiece<precision>, unit < f.hidden);
    *reinterpret_cast<uint4*>(weights + slab * Shape::kWeightSlab + in_slab(row, piece * 16)) = operand_piece<precision>(words);
  }
  const T* b_hh = static_cast<const T*>(f.b_hh[direction]);
  for (int i = thread; i < 3 * kUnits; i += Shape::kThreads) {
    const int unit = first_unit + i % kUnits;
    bias[i] = b_hh != nullptr && unit < f.hidden ? to_float(b_hh[i / kUnits * f.hidden + unit]) : 0.0f;
  }
  copies_see();
  __syncthreads();

  if (warp == 4 * kWarpGroups) {
    // A lane for each stage, which brings every chunk that goes there.
    const int chunk_bytes = arguments.chunk * Shape::kStateSlab, chunks = slabs / arguments.chunk;
    const bool apart = chunks == arguments.stages;  // else what is known of a step holds for all of its chunks
    const unsigned writers = unsigned(apart ? arguments.chunk * kSlab<precision> / kUnits : arguments.unit_blocks);
    const unsigned* counter = counters + (apart ? lane : 0);
    int known = -1;  // the last step whose h is there
    char* to = states + lane * chunk_bytes;
    int step = 0, chunk = lane, round = 0;  // of the next one
    bool more = lane < arguments.stages;
    while (__any_sync(0xffffffffu, more)) {
      bool ready = more && (round == 0 || phase_ended(emptied + lane, unsigned(round - 1) & 1));
      if (ready && known < step) {
        unsigned count;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
        ready = count >= unsigned(step + 1) * writers;
        if (ready) {
          memory_is_seen();
          known = step;
        }
      }
      if (ready) bytes_expect(filled + lane, unsigned(chunk_bytes));
      // One lane after the other, as the copy engine takes them anyway: racecheck thinks that all that are there start each copy.
      for (unsigned left = __ballot_sync(0xffffffffu, ready); left != 0; left &= left - 1) {
        if ((left & -left) == 1u << lane) {
          copy_bulk(to, exchange + int64_t(step & 1) * slabs * Shape::kStateSlab + int64_t(chunk) * chunk_bytes, unsigned(chunk_bytes),
                    filled + lane);
        }
      }
      if (!ready) continue;
      round++;
      chunk += arguments.stages;
      while (chunk >= chunks) chunk -= chunks, step++;
      more = step < f.steps;
    }
  } else {
    const int warp_group = warp / 4, own_row = 64 * warp_group + warp % 4 * 16 + g;  // and the one 8 further
    auto unit_of = [&](int u) { return 8 * u + 2 * q; };                             // and the next one
    auto inside = [&](int half) { return first_sequence + own_row + 8 * half < f.batch; };
    const int64_t gx_stride = int64_t(f.directions) * 3 * f.hidden, output_stride = int64_t(f.directions) * f.hidden;
    auto time_of = [&](int step) { return direction == 0 ? step : f.steps - 1 - step; };
    // Element e of a group of 8 units: sequence own_row + e / 2 * 8, unit unit_of() + e % 2.
    float state[kUnitGroups][4], gx[kUnitGroups][3][4];
    auto fetch_gates = [&](int step) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float* row = f.gx + (int64_t(time_of(step)) * f.batch + first_sequence + own_row + 8 * half) * gx_stride +
                           int64_t(direction) * 3 * f.hidden + first_unit;
#pragma unroll
        for (int u = 0; u < kUnitGroups; u++) {
#pragma unroll
          for (int gate = 0; gate < 3; gate++) {
            const float2 both = inside(half) ? __ldcs(reinterpret_cast<const float2*>(row + gate * f.hidden + unit_of(u))) : float2();
            gx[u][gate][2 * half] = both.x;
            gx[u][gate][2 * half + 1] = both.y;
          }
        }
      }
    };
    const int own_counter = slabs == arguments.chunk * arguments.stages ? first_unit * int(sizeof(T)) / (kSlabBytes * arguments.chunk) : 0;
    // The states as operands of the next step.
    auto pass_on = [&](int buffer) {
#pragma unroll
      for (int u = 0; u < kUnitGroups; u++) {
        const int byte = (first_unit + unit_of(u)) * int(sizeof(T));
        char* slab = exchange + int64_t(buffer * slabs + byte / kSlabBytes) * Shape::kStateSlab;
#pragma unroll
        for (int half = 0; half < 2; half++) {
          struct alignas(2 * sizeof(T)) {
            T of[2];
          } both = {operand<precision>(state[u][2 * half]), operand<precision>(state[u][2 * half + 1])};
          *reinterpret_cast<decltype(both)*>(slab + in_slab(own_row + 8 * half, byte % kSlabBytes)) = both;
        }
      }
      asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads * kWarpGroups) : "memory");
      if (thread == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counters + own_counter) : "memory");
      }
    };

    const T* hx = static_cast<const T*>(f.hx) + int64_t(direction) * f.batch * f.hidden;
    T* output = static_cast<T*>(f.output) + int64_t(direction) * f.hidden + first_unit;
#pragma unroll
    for (int u = 0; u < kUnitGroups; u++) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        state[u][e] =
            inside(e / 2) ? to_float(hx[int64_t(first_sequence + own_row + e / 2 * 8) * f.hidden + first_unit + unit_of(u) + e % 2]) : 0;
    }
    pass_on(0);
    fetch_gates(0);
    const uint64_t weight_rows = slab_rows(weights), state_rows = slab_rows(states + warp_group * 64 * kSlabBytes);
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int step = 0; step < f.steps; step++) {
      float sums[kSums];
      int before = 0;  // the stage that the products before the last ones read
#pragma unroll 1
      for (int slab = 0; slab < slabs;) {
        wait_for(filled + stage, parity);
        const bool first = slab == 0;
#pragma unroll 1
        for (int c = 0; c < arguments.chunk; c++, slab++) {
          group_fence();
          const uint64_t a = state_rows + uint64_t((stage * arguments.chunk + c) * (Shape::kStateSlab >> 4));
          const uint64_t b = weight_rows + uint64_t(slab * (Shape::kWeightSlab >> 4));
#pragma unroll
          for (int i = 0; i < kStepsOfSlab; i++) group_multiply<precision>(sums, further(a, i), further(b, i), slab + i > 0);
        }
        group_commit();
        if (!first) {
          group_wait<1>();
          if (thread % kGroupThreads == 0) arrive(emptied + before);
        }
        before = stage;
        if (++stage == arguments.stages) stage = 0, parity ^= 1;
      }
      group_wait<0>();
      if (thread % kGroupThreads == 0) arrive(emptied + before);

      const bool last = step + 1 == f.steps;
      Gates gate_values[kUnitGroups][4];
      float h_n[kUnitGroups][4];
#pragma unroll
      for (int u = 0; u < kUnitGroups; u++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          auto sum = [&](int gate) { return sums[4 * (gate * kUnitGroups + u) + e] + bias[gate * kUnits + unit_of(u) + e % 2]; };
          h_n[u][e] = sum(2);
          gate_values[u][e] = quick_gates(gx[u][0][e], gx[u][1][e], gx[u][2][e], sum(0), sum(1), h_n[u][e]);
          state[u][e] = next_state(gate_values[u][e], state[u][e]);
        }
      }
      if (!last) {
        pass_on((step + 1) & 1);
        fetch_gates(step + 1);
      }
#pragma unroll
      for (int u = 0; u < kUnitGroups; u++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (!inside(half)) continue;
          const int64_t sequence = first_sequence + own_row + 8 * half, row = int64_t(time_of(step)) * f.batch + sequence;
          struct alignas(2 * sizeof(T)) {
            T of[2];
          } both;
          from_float(state[u][2 * half], both.of[0]);
          from_float(state[u][2 * half + 1], both.of[1]);
          *reinterpret_cast<decltype(both)*>(output + row * output_stride + unit_of(u)) = both;
          if (last) {
            T* hy = static_cast<T*>(f.hy) + (int64_t(direction) * f.batch + sequence) * f.hidden + first_unit;
            *reinterpret_cast<decltype(both)*>(hy + unit_of(u)) = both;
          }
          if (f.reserve != nullptr) {
            float* to = f.reserve + (int64_t(direction) * f.steps * f.batch + row) * 4 * f.hidden + first_unit + unit_of(u);
            auto keep = [&](int part, float one, float other) {
              *reinterpret_cast<float2*>(to + int64_t(part) * f.hidden) = make_float2(one, other);
            };
            const Gates &one = gate_values[u][2 * half], &other = gate_values[u][2 * half + 1];
            keep(0, one.r, other.r);
            keep(1, one.z, other.z);
            keep(2, one.n, other.n);
            keep(3, h_n[u][2 * half], h_n[u][2 * half + 1]);
          }
        }
      }
    }
  }
#endif
}

template <Precision precision, int kUnitGroups, int kWarpGroups>
struct Kernel {
  using Shape = Block<kUnitGroups, kWarpGroups>;
  static inline Prepared prepared{0};

  static constexpr int kChunkBytes = (sizeof(Element<precision>) == 2 ? 64 : 32) * 1024;  // at most: smaller ones cost more for each byte
  struct Room {
    int slabs, chunk, stages;
    explicit Room(int hidden) : slabs(hidden / kSlab<precision>), chunk(kChunkBytes / Shape::kStateSlab) {
      while (slabs % chunk != 0) chunk /= 2;
      const int64_t left = int64_t(current_device().shared_bytes) - Shape::kHead - int64_t(slabs) * Shape::kWeightSlab;
      stages = std::min(int(left / (chunk * Shape::kStateSlab)), std::min(slabs / chunk, kMostStages));
    }
  };
  static Launch shape(const GridPlan& plan, const Room& room) {
    Launch launch;
    launch.grid = dim3(unsigned(plan.groups * plan.unit_blocks));
    launch.block = dim3(Shape::kThreads);
    launch.cooperative = true;
    launch.shared_bytes =
        size_t(Shape::kHead) + size_t(room.slabs) * Shape::kWeightSlab + size_t(room.stages) * room.chunk * Shape::kStateSlab;
    return launch;
  }
  static GridPlan plan(int batch, int hidden) {
    GridPlan plan;
    const Room room(hidden);
    const int all_groups = (batch + Shape::kSequences - 1) / Shape::kSequences;
    if (room.stages < std::min(2, room.slabs / room.chunk)) return plan;
    plan.unit_blocks = hidden / Shape::kUnits;
    plan.groups = std::min(all_groups, current_device().processors / plan.unit_blocks);
    if (plan.groups == 0) return plan;
    plan.units = Shape::kUnits;
    plan.sequences = Shape::kSequences;
    return plan;
  }
  // The workspace: a counter for each direction, group and slab, then h for the groups that run at once.
  static int groups_of(const Forward& forward) { return (forward.batch + Shape::kSequences - 1) / Shape::kSequences; }
  static size_t counter_bytes(const Forward& forward) {
    const size_t bytes = size_t(forward.directions) * groups_of(forward) * (forward.hidden / kSlab<precision>)*sizeof(unsigned);
    return (bytes + 127) / 128 * 128;
  }
  static size_t workspace(const Forward& forward, const GridPlan& plan) {
    return counter_bytes(forward) + size_t(plan.groups) * 2 * (forward.hidden / kSlab<precision>)*Shape::kStateSlab;
  }
  static cudaError_t launch(const Forward& forward, const GridPlan& plan, void* workspace, cudaStream_t stream) {
    const Room room(forward.hidden);
    const int all_groups = groups_of(forward);
    unsigned* counters = static_cast<unsigned*>(workspace);
    char* exchange = static_cast<char*>(workspace) + counter_bytes(forward);
    GroupsArguments arguments{forward, counters, exchange, 0, 0, plan.unit_blocks, room.slabs, room.chunk, room.stages};
    cudaError_t error = cudaMemsetAsync(counters, 0, counter_bytes(forward), stream);
    for (int direction = 0; direction < forward.directions; direction++) {
      for (int group = 0; group < all_groups && error == cudaSuccess; group += plan.groups) {
        arguments.direction = direction;
        arguments.first_sequence = group * Shape::kSequences;
        arguments.counters = counters + int64_t(direction * all_groups + group) * room.slabs;
        Launch launched = shape(plan, room);
        launched.grid = dim3(unsigned(std::min(plan.groups, all_groups - group) * plan.unit_blocks));
        launched.stream = stream;
        error = gru::launch(groups_kernel<precision, kUnitGroups, kWarpGroups>, launched, prepared, arguments);
      }
    }
    return error;
  }
};

// 16 units for two-byte types, whose rows of W_hh are half as long; 8 for TF32.
template <typename Function>
auto with_kernel(Precision precision, bool wide, Function&& function) {
  if (precision == Precision::kBfloat16) return function(Kernel<Precision::kBfloat16, 2, 1>());
  if (precision == Precision::kFloat16) return function(Kernel<Precision::kFloat16, 2, 1>());
  return wide ? function(Kernel<Precision::kTf32, 1, 2>()) : function(Kernel<Precision::kTf32, 1, 1>());
}

}  // namespace

GridPlan groups_plan(Precision precision, int batch, int hidden) {
  if (current_device().capability != 90 || hidden * element_bytes(precision) % kSlabBytes != 0) return GridPlan();
  return with_kernel(precision, batch > 64, [&](auto kernel) { return kernel.plan(batch, hidden); });
}

size_t groups_workspace(const Forward& forward, const GridPlan& plan) {
  return with_kernel(forward.precision, plan.sequences > 64, [&](auto kernel) { return kernel.workspace(forward, plan); });
}

cudaError_t launch_groups(const Forward& forward, const GridPlan& plan, void* workspace, cudaStream_t stream) {
  return with_kernel(forward.precision, plan.sequences > 64, [&](auto kernel) { return kernel.launch(forward, plan, workspace, stream); });
}

}  // namespace tracer::overrides::gru
