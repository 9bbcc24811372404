// Every thread writes whole 16-byte words of the result, wherever the pieces lie: the work is the same for pieces of unequal
// size, and stores are aligned although rows are not.
#include <algorithm>

#include "cat.h"
#include "device.cuh"

namespace tracer::overrides {

namespace {

constexpr int kThreads = 256;

// Division by a constant, for dividends below 2^63: (high half of dividend * magic + dividend) >> shift.
struct Divisor {
  uint64_t magic;
  uint32_t shift;
  explicit Divisor(uint64_t by) {
    for (shift = 0; shift < 63 && uint64_t(1) << shift < by; ++shift) {
    }
    magic = uint64_t(((unsigned __int128)(1) << 64) * ((uint64_t(1) << shift) - by) / by) + 1;
  }
  Divisor() = default;
};
__device__ __forceinline__ uint64_t quotient(uint64_t dividend, Divisor by) {
  return (__umul64hi(dividend, by.magic) + dividend) >> by.shift;
}

// What the kernel gets; small where there are few pieces, since it travels with each launch.
template <int kPieces>
struct Table {
  const char* from[kPieces];
  int64_t pitch[kPieces];
  int64_t offset[kPieces + 1];  // of the run in a row; the last one is the row's length, and so is every one unused
  int pieces;
  uint32_t head;                // bytes between the 16-byte word where the result begins and the result
  char* out;
  int64_t rows, words;          // 16-byte words that the result touches
  Divisor row;
};

template <int kPieces>
__device__ __forceinline__ int piece_at(const Table<kPieces>& table, int64_t offset) {
  if constexpr (kPieces <= 4) {
    int piece = 0;
#pragma unroll
    for (int i = 1; i < kPieces; ++i) piece += offset >= table.offset[i];
    return piece;
  } else {
    int low = 0, high = table.pieces - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (offset >= table.offset[middle])
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
}

template <int kPieces>
__device__ __forceinline__ const char* source_of(const Table<kPieces>& table, int64_t at) {
  const int64_t row = int64_t(quotient(uint64_t(at), table.row)), offset = at - row * table.offset[kPieces];
  const int piece = piece_at(table, offset);
  return table.from[piece] + row * table.pitch[piece] + (offset - table.offset[piece]);
}

// The 16 bytes from `shift` on of two words.
__device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, uint32_t shift) {
  uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
  const uint32_t bits = shift % 4 * 8;
  return make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                    __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
}

__device__ __forceinline__ void store_word(char* to, uint4 word) { *reinterpret_cast<uint4*>(to) = word; }

// A word of several runs, or at the result's ends, unit by unit.
template <class Unit, int kPieces>
__device__ __forceinline__ void copy_units(const Table<kPieces>& table, int64_t at) {
  constexpr int kUnits = 16 / sizeof(Unit);
  const int64_t total = table.rows * table.offset[kPieces];
  union {
    uint4 word;
    Unit units[kUnits];
  } value;
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int64_t byte = at + i * int64_t(sizeof(Unit));
    value.units[i] = byte >= 0 && byte < total ? __ldg(reinterpret_cast<const Unit*>(source_of(table, byte))) : Unit(0);
  }
  if (at >= 0 && at + 16 <= total) {
    store_word(table.out + at, value.word);
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int64_t byte = at + i * int64_t(sizeof(Unit));
    if (byte >= 0 && byte < total) *reinterpret_cast<Unit*>(table.out + byte) = value.units[i];
  }
}

// The word at byte `at` of the result. All runs begin and end at multiples of Unit.
template <class Unit, int kPieces>
__device__ __forceinline__ void copy_word(const Table<kPieces>& table, int64_t at) {
  const int64_t length = table.offset[kPieces];
  if (at >= 0) {
    const int64_t row = int64_t(quotient(uint64_t(at), table.row)), offset = at - row * length;
    const int piece = row < table.rows ? piece_at(table, offset) : 0;
    if (row < table.rows && offset + 16 <= table.offset[piece + 1]) {
      const char* begin = table.from[piece];
      const char* end = begin + (table.rows - 1) * table.pitch[piece] + (table.offset[piece + 1] - table.offset[piece]);
      const char* from = begin + row * table.pitch[piece] + (offset - table.offset[piece]);
      const uint32_t shift = uint32_t(reinterpret_cast<uintptr_t>(from) & 15);
      const char* word = from - shift;
      if (!shift) {
        store_word(table.out + at, __ldg(reinterpret_cast<const uint4*>(word)));
        return;
      }
      // Not beyond the tensor, although what shares a word with its ends can be read.
      if (word >= begin && word + 32 <= end) {
        const uint4 a = __ldg(reinterpret_cast<const uint4*>(word)), b = __ldg(reinterpret_cast<const uint4*>(word + 16));
        store_word(table.out + at, shifted(a, b, shift));
        return;
      }
    }
  }
  copy_units<Unit>(table, at);
}

// One word a thread: on an H200 that is the fastest way to copy, also for results far larger than L2; several words a thread, streaming
// loads and stores, blocks that take turns and the copy engine were all slower (benchmarks/kernels/notes.md).
template <int kPieces>
__global__ void __launch_bounds__(kThreads) cat_aligned(const __grid_constant__ Table<kPieces> table) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at < table.words) store_word(table.out + at * 16, __ldg(reinterpret_cast<const uint4*>(source_of(table, at * 16))));
}

template <class Unit, int kPieces>
__global__ void __launch_bounds__(kThreads) cat_shifted(const __grid_constant__ Table<kPieces> table) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at < table.words) copy_word<Unit>(table, at * 16 - table.head);
}

// The bits that all addresses and lengths have in common.
uintptr_t bits_of(const Cat& cat) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(cat.out);
  for (int i = 0; i < cat.pieces; ++i)
    bits |= reinterpret_cast<uintptr_t>(cat.from[i]) | uintptr_t(cat.bytes[i]) | (cat.rows > 1 ? uintptr_t(cat.pitch[i]) : 0);
  return bits;
}

template <int kPieces>
cudaError_t launch_table(const Cat& cat, int device, cudaStream_t stream) {
  Table<kPieces> table{};
  int64_t length = 0;
  for (int i = 0; i < kPieces; ++i) {
    table.offset[i] = length;
    if (i >= cat.pieces) continue;
    table.from[i] = cat.from[i];
    table.pitch[i] = cat.pitch[i];
    length += cat.bytes[i];
  }
  for (int i = cat.pieces; i <= kPieces; ++i) table.offset[i] = length;
  const uintptr_t bits = bits_of(cat);
  table.pieces = cat.pieces;
  table.head = uint32_t(reinterpret_cast<uintptr_t>(cat.out) % 16);
  table.out = cat.out;
  table.rows = cat.rows;
  const int64_t total = cat.rows * length;
  table.words = (total + table.head + 15) / 16;
  table.row = Divisor(uint64_t(length));
  dim3 grid(unsigned((table.words + kThreads - 1) / kThreads));
  if (bits % 16 == 0) return launch<cat_aligned<kPieces>>(grid, kThreads, 0, 1, table, device, stream);
  auto shifted_by = [&](auto unit) { return launch<cat_shifted<decltype(unit), kPieces>>(grid, kThreads, 0, 1, table, device, stream); };
  if (bits % 8 == 0) return shifted_by(uint64_t());
  if (bits % 4 == 0) return shifted_by(uint32_t());
  if (bits % 2 == 0) return shifted_by(uint16_t());
  return shifted_by(uint8_t());
}

}  // namespace

bool is_aligned(const Cat& cat) { return bits_of(cat) % 16 == 0; }

cudaError_t launch_cat(const Cat& cat, int device, cudaStream_t stream) {
  if (cat.pieces <= 4) return launch_table<4>(cat, device, stream);
  if (cat.pieces <= 16) return launch_table<16>(cat, device, stream);
  return launch_table<kMostPieces>(cat, device, stream);
}

}  // namespace tracer::overrides
