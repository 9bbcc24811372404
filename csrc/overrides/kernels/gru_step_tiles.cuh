// A GRU time step for more sequences, on the tensor cores: a block of a cluster owns a part of [x, h] for 16 or 32 units and 16 to 128
// sequences.
//
//                          block 0 of the cluster   block 1    ..
//   gate rows of the units | chunks 0 .. of [x, h] | chunks .. |     Each brings its chunks of the gate rows and of the sequences to
//   sequences              | chunks 0 .. of [x, h] | chunks .. |     shared memory once, several stages ahead; then the blocks add up
//                                                                    their sums, each for some of the sequences.
#pragma once

#include <algorithm>
#include <atomic>

#include "gru_step.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kTileThreads = 256, kLargestCluster = 8;

// The warps of a block: `unit_warps` times `sequence_warps` times `inner_warps` (over [x, h]), 8 in all. A warp computes 16 units, which
// are three 16-row tiles (r, z, n), for 8 * NT sequences.
// `blocks`: how many at least have room on a multiprocessor; a lone one has twice the registers.
template <int unit_warps, int sequence_warps, int inner_warps, int NT, int stages, int blocks>
struct Tile {
  static_assert(unit_warps * sequence_warps * inner_warps * 32 == kTileThreads);
  static constexpr int kUnitWarps = unit_warps, kSequenceWarps = sequence_warps, kInnerWarps = inner_warps, kTiles = NT, kStages = stages;
  static constexpr int kUnits = 16 * unit_warps, kSequences = 8 * NT * sequence_warps, kBlocks = blocks;
  // A stage: rows of 16-byte pieces, first the gate rows of 16 units, r, z and n, for each of the unit warps, then the
  // sequences. The pieces of each 128 bytes are permuted by their row, so that a read of one piece of 8 rows meets no bank twice.
  static constexpr int kRowBlocks = inner_warps < 2 ? 2 : inner_warps, kRowPieces = 4 * kRowBlocks, kRowBytes = 16 * kRowPieces;
  static constexpr int kGateRows = 3 * kUnits, kRows = kGateRows + kSequences, kStageBytes = kRows * kRowBytes;
  static constexpr int kPass = kTileThreads / kRowPieces;  // rows that all threads copy at once: those of one gate
  static_assert(kPass == kUnits && kSequences % kPass == 0);
  // The sums: [r, z, h part of n, x part of n][inner warp][sequence][unit], padded. The first three replace the stages, the
  // last one behind them, since x may be done before h.
  static constexpr int kStride = kUnits + 4, kPlane = kSequences * kStride, kPart = inner_warps * kPlane;
  static constexpr int kLastPart = kStages * kStageBytes / int(sizeof(float));
  static constexpr size_t kSharedBytes = sizeof(float) * (kLastPart + kPart);
  static_assert(3 * kPart <= kLastPart && kSharedBytes <= 226 * 1024 / blocks);
  __device__ __forceinline__ static constexpr int at(int part) { return part < 3 ? part * kPart : kLastPart; }
  __device__ __forceinline__ static int offset(int row, int piece) { return row * kRowBytes + (piece ^ (row & 7)) * 16; }
};

// Starts copying one piece of each of `count` rows to shared memory, rows `stride` elements and `step` bytes apart; `left` elements of
// a row are at `from` and behind. Zeros beyond a row, and from row `inside` on.
template <int count, int step, typename T>
__device__ __forceinline__ void copy_rows(char* to, const T* from, int64_t stride, int left, int inside, bool vector) {
  if (vector) {
    const int bytes = max(0, min(16, left * int(sizeof(T))));
#pragma unroll
    for (int i = 0; i < count; i++) copy_async_16(to + i * step, from + i * stride, i < inside ? bytes : 0);
  } else {
#pragma unroll 1
    for (int i = 0; i < count; i++)
      *reinterpret_cast<uint4*>(to + i * step) = load_piece(i < inside ? from + i * stride : nullptr, 0, left, false);
  }
}

// What a thread copies: a piece of the rows of each gate of one unit, and of every kPass-th sequence, chunk after chunk.
template <Precision precision, class Tile>
struct Copies {
  using T = Element<precision>;
  static constexpr int kChunk = Tile::kRowPieces * kPiece<precision>, kPasses = Tile::kSequences / Tile::kPass;
  const T *weight, *input;
  int left;

  // From chunk `chunk` of its side on.
  __device__ __forceinline__ void start(const StepArguments& arguments, int direction, bool from_x, int chunk, int unit, int sequence) {
    const Side<T> side(arguments, direction, from_x);
    const int k = chunk * kChunk + int(threadIdx.x) % Tile::kRowPieces * kPiece<precision>;
    weight = side.weight + int64_t(unit) * side.length + k;
    input = side.input + sequence * side.stride + k;
    left = side.length - k;
  }
  __device__ __forceinline__ void next(char* stage, const StepArguments& arguments, int direction, bool from_x, int row, int gates_inside,
                                       int sequences_inside) {
    const Side<T> side(arguments, direction, from_x);
    const int piece = int(threadIdx.x) % Tile::kRowPieces;
    char* gates = stage + Tile::offset(row / 16 * 48 + row % 16, piece);
    copy_rows<3, 16 * Tile::kRowBytes>(gates, weight, int64_t(arguments.step.hidden) * side.length, left, gates_inside, side.weight_vector);
    char* sequences = stage + Tile::offset(Tile::kGateRows + row, piece);
    copy_rows<kPasses, Tile::kPass * Tile::kRowBytes>(sequences, input, Tile::kPass * side.stride, left, sequences_inside,
                                                      side.input_vector);
    weight += kChunk;
    input += kChunk;
    left -= kChunk;
  }
};

// d += a b for one of the two mma that the words of `b` are for.
template <Precision precision>
__device__ __forceinline__ void multiply_half(float (&d)[4], const Split<precision>& a, const Split<precision>& b, int half) {
  const unsigned right[2] = {b.words[2 * half], b.words[2 * half + 1]};
  if constexpr (precision == Precision::kFloat32) {
    // The tensor cores truncate their sums: short sums from zero, added to d with rounding.
    const unsigned rest[2] = {b.rest[2 * half], b.rest[2 * half + 1]};
    float sum[4] = {0, 0, 0, 0};
    mma_tf32(sum, a.rest, right);
    mma_tf32(sum, a.words, rest);
    mma_tf32(sum, a.words, right);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] += sum[i];
  } else {
    multiply_words<precision>(d, a.words, right);
  }
}

// Adds the products of a stage: r to sums[0], z to sums[1], n to sums[2].
template <Precision precision, class Tile>
__device__ __forceinline__ void multiply_stage(float (&sums)[3][Tile::kTiles][4], const char* stage, int unit_warp, int sequence_warp,
                                               int inner_warp) {
  const int lane = int(threadIdx.x) & 31;
  // The rows and pieces that a lane names to ldmatrix. Left: 16 rows, two pieces; right: 8 rows, four pieces.
  const int left_row = 48 * unit_warp + (lane & 15), left_piece = 4 * inner_warp + (lane >> 4);
  const int right_row = Tile::kGateRows + 8 * Tile::kTiles * sequence_warp + (lane & 7), right_piece = 4 * inner_warp + (lane >> 3);
  const int left = Tile::offset(left_row, left_piece), right = Tile::offset(right_row, right_piece);
  // 64 bytes further along the row, or 32 of the left ones: the bits of a piece's number change, in whatever row.
  const auto words = [&](int offset, int rows, int pieces) {
    unsigned found[4];
    load_matrices(found, stage + ((offset ^ pieces * 16) + rows * Tile::kRowBytes));
    return Split<precision>(operand_piece<precision>(make_uint4(found[0], found[1], found[2], found[3])));
  };
#pragma unroll
  for (int i = 0; i < Tile::kRowBlocks / Tile::kInnerWarps; i++) {
    const int block = 4 * i * Tile::kInnerWarps;
    Split<precision> sequences[Tile::kTiles];
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n++) sequences[n] = words(right, 8 * n, block);
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int m = 0; m < 3; m++) {
        const Split<precision> gate = words(left, 16 * m, block + 2 * half);
#pragma unroll
        for (int n = 0; n < Tile::kTiles; n++) multiply_half(sums[m][n], gate, sequences[n], half);
      }
    }
  }
}

template <Precision precision, class Tile>
__global__ void __launch_bounds__(kTileThreads, Tile::kBlocks) tile_kernel(StepArguments arguments) {
  using T = Element<precision>;
  constexpr int kUnits = Tile::kUnits, kSequences = Tile::kSequences, kStages = Tile::kStages, kStride = Tile::kStride;
  const Step& step = arguments.step;
  const int cluster = arguments.cluster, rank = cluster > 1 ? int(cluster_rank()) : 0;
  const int first_unit = int(blockIdx.x) / cluster * kUnits, first_sequence = int(blockIdx.y) * kSequences, direction = int(blockIdx.z);
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31, g = lane >> 2, q = lane & 3;
  const int unit_warp = warp % Tile::kUnitWarps, sequence_warp = warp / Tile::kUnitWarps % Tile::kSequenceWarps;
  const int inner_warp = warp / (Tile::kUnitWarps * Tile::kSequenceWarps);
  char* shared = block_shared();

  const Chunks chunks(step, Tile::kRowPieces * kPiece<precision>);
  const int begin = int(unsigned(chunks.all * rank) / unsigned(cluster)), end = int(unsigned(chunks.all * (rank + 1)) / unsigned(cluster));
  float* partial = reinterpret_cast<float*>(shared);
  float* mine = partial + inner_warp * Tile::kPlane + (sequence_warp * 8 * Tile::kTiles + 2 * q) * kStride + 16 * unit_warp + g;
  const auto keep = [&](const float (&sum)[Tile::kTiles][4], int part) {
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) mine[Tile::at(part) + (8 * n + (i & 1)) * kStride + (i >= 2 ? 8 : 0)] = sum[n][i];
    }
  };
  float sums[3][Tile::kTiles][4] = {};
  const int first_of_h = max(begin, chunks.x);
  const auto end_x = [&] {  // what was added to n so far is its x part
    keep(sums[2], 3);
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sums[2][n][i] = 0;
    }
  };
  const int row = int(threadIdx.x) / Tile::kRowPieces, unit_of_row = first_unit + row, sequence_of_row = first_sequence + row;
  const int gates_inside = unit_of_row < step.hidden ? 3 : 0,
            sequences_inside = (step.batch - sequence_of_row + Tile::kPass - 1) / Tile::kPass;
  Copies<precision, Tile> copies;
  copies.start(arguments, direction, begin < chunks.x, begin < chunks.x ? begin : begin - chunks.x, unit_of_row, sequence_of_row);
  // Copies run kStages - 1 chunks ahead of the products, which use the slot behind the one that is filled.
  int slot = 0;
#pragma unroll 1
  for (int chunk = begin - (kStages - 1); chunk < end; chunk++) {
    if (chunk >= begin) {
      copy_async_wait<kStages - 2>();
      __syncthreads();  // the copies of all threads have come, and nobody reads the stage before this one any more
    }
    const int ahead = chunk + kStages - 1;
    if (ahead < end) {
      if (ahead == chunks.x) copies.start(arguments, direction, false, 0, unit_of_row, sequence_of_row);
      copies.next(shared + slot * Tile::kStageBytes, arguments, direction, ahead < chunks.x, row, gates_inside, sequences_inside);
    }
    copy_async_commit();
    slot = slot + 1 == kStages ? 0 : slot + 1;
    if (chunk < begin) continue;
    if (chunk == first_of_h) end_x();
    multiply_stage<precision, Tile>(sums, shared + slot * Tile::kStageBytes, unit_warp, sequence_warp, inner_warp);
  }
  if (end <= chunks.x) end_x();

  // The blocks of a cluster share the sequences of the tile; a thread ends four units of one. What the gates take is loaded before it
  // is needed.
  constexpr int kGroups = kUnits / 4;
  const auto sequence_of = [&](int group) { return group / kGroups * cluster + rank; };
  const int groups = (kSequences - rank + cluster - 1) / cluster * kGroups;
  int group = int(threadIdx.x);
  Given<T> given[4];
  const auto load = [&](int of) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      given[i] = load_given<T>(step, direction, first_sequence + sequence_of(of), first_unit + of % kGroups * 4 + i);
  };
  if (group < groups) load(group);

  __syncthreads();
#pragma unroll
  for (int part = 0; part < 3; part++) keep(sums[part], part);
  if constexpr (Tile::kInnerWarps > 1) {
    __syncthreads();
#pragma unroll
    for (int part = 0; part < 4; part++) {
#pragma unroll 1
      for (int e = 4 * int(threadIdx.x); e < Tile::kPlane; e += 4 * kTileThreads) {
        float* at = partial + Tile::at(part) + e;
        float4 sum = *reinterpret_cast<const float4*>(at);
#pragma unroll
        for (int w = 1; w < Tile::kInnerWarps; w++) {
          const float4 more = *reinterpret_cast<const float4*>(at + w * Tile::kPlane);
          sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
        *reinterpret_cast<float4*>(at) = sum;
      }
    }
  }
  if (cluster > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  for (int next = 0; next < groups; group += kTileThreads) {  // as often in each thread
    next = group - int(threadIdx.x) + kTileThreads;
    const int sequence = sequence_of(group), unit = group % kGroups * 4;
    float sum[4][4] = {};
    if (group < groups) {
      const float* at = partial + sequence * kStride + unit;
      const auto add = [&](const float* from) {
#pragma unroll
        for (int part = 0; part < 4; part++) {
          const float4 more = *reinterpret_cast<const float4*>(from + Tile::at(part));
          sum[part][0] += more.x;
          sum[part][1] += more.y;
          sum[part][2] += more.z;
          sum[part][3] += more.w;
        }
      };
      if (cluster > 1) {
#pragma unroll
        for (int other = 0; other < kLargestCluster; other++) {
          if (other < cluster) add(of_block(at, unsigned(other)));
        }
      } else {
        add(at);
      }
    }
    if (cluster > 1 && next >= groups) cluster_arrive();  // this block reads no sums of others any more
    if (group < groups) finish_four<T>(step, arguments.results_vector, direction, first_sequence + sequence, first_unit + unit, given, sum);
    if (group + kTileThreads < groups) load(group + kTileThreads);
  }
  if (cluster > 1) cluster_wait();  // no block may end while another reads its sums
}

// How many clusters of each size run at once, a block on each multiprocessor; 0 where nobody asked yet.
struct ActiveClusters {
  std::atomic<int> of[kLargestCluster + 1] = {};
};

// As many blocks share the sums of a tile as can run at once with a multiprocessor for each, and leave each of them a chunk. Two blocks
// on one would take twice the time, and all others wait for them.
template <typename Active>
int cluster_for(const Device& device, int64_t tiles, int chunks, ActiveClusters& known, Active&& active) {
  if (device.capability < 90) return 1;
  for (int cluster = kLargestCluster; cluster > 1; cluster--) {
    if (chunks < cluster || tiles * cluster > device.processors) continue;
    int clusters = known.of[cluster].load(std::memory_order_relaxed);
    if (clusters == 0) {
      clusters = active(cluster);
      known.of[cluster].store(clusters, std::memory_order_relaxed);
    }
    if (tiles <= clusters) return cluster;
  }
  return 1;
}

template <Precision precision, class Tile>
cudaError_t launch_tile(StepArguments& arguments, const Device& device, cudaStream_t stream) {
  static Prepared prepared{0};
  static ActiveClusters known;
  constexpr auto kernel = tile_kernel<precision, Tile>;
  const Step& step = arguments.step;
  const unsigned unit_tiles = (step.hidden + Tile::kUnits - 1) / Tile::kUnits;
  const unsigned batch_tiles = (step.batch + Tile::kSequences - 1) / Tile::kSequences;
  Launch shape;
  shape.block = dim3(kTileThreads);
  shape.stream = stream;
  const auto with_cluster = [&](int cluster) {
    shape.cluster = cluster;
    shape.grid = dim3(unit_tiles * cluster, batch_tiles, step.directions);
    // More than half of what a multiprocessor has keeps it to one block.
    shape.shared_bytes = cluster > 1 ? std::max<size_t>(Tile::kSharedBytes, device.shared_bytes / 2 + 1024) : Tile::kSharedBytes;
  };
  arguments.cluster = cluster_for(device, int64_t(unit_tiles) * batch_tiles * step.directions,
                                  Chunks(step, Tile::kRowPieces * kPiece<precision>).all, known, [&](int cluster) {
                                    with_cluster(cluster);
                                    return active_clusters(kernel, shape, prepared);
                                  });
  with_cluster(arguments.cluster);
  return launch(kernel, shape, prepared, arguments);
}

}  // namespace
}  // namespace tracer::overrides::gru
