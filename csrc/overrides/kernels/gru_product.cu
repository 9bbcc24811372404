// Matrix products for the GRU: 128 x 64 or 64 x 64 tiles of 4 warps, slices of 32 along k in three stages of shared memory. Where there
// are few tiles, the blocks of a cluster share k and add their sums up in order; so the result is the same each time.
#include "gru_launch.cuh"
#include "gru_numbers.cuh"

namespace tracer::overrides::gru {
namespace {

constexpr int kSlice = 32, kStages = 3, kThreads = 128;

struct ProductArguments {
  Product product;
  bool a_vector, b_vector, c_pairs;
  int split;  // blocks that share k
};

// A tile in shared memory: `along` rows of the matrix as it lies in memory. Padded so that a warp's fragment reads meet no bank twice.
template <typename T, bool k_contiguous, int extent>
struct Tile {
  static constexpr int kRows = k_contiguous ? extent : kSlice;
  static constexpr int kColumns = k_contiguous ? kSlice : extent;
  static constexpr int kStride = kColumns + (k_contiguous ? 16 / int(sizeof(T)) : 8);
  static constexpr int kBytes = kRows * kStride * int(sizeof(T));
  static_assert(kStride * sizeof(T) % 16 == 0 && kBytes % 16 == 0);
};

// Row `row` of an operand in memory.
struct Rows {
  const void* first;
  const void* second;
  int64_t first_stride, second_stride, split;
  template <typename T>
  __device__ __forceinline__ const T* row(int64_t row) const {
    return row < split ? static_cast<const T*>(first) + row * first_stride : static_cast<const T*>(second) + (row - split) * second_stride;
  }
};

// Starts the copy of the tile at (row, column) of an operand of rows x columns; zero outside.
template <typename T, bool k_contiguous, int extent>
__device__ __forceinline__ void fetch(T* tile, const Rows& operand, int64_t rows, int64_t columns, int64_t first_row, int64_t first_column,
                                      bool vector) {
  using Shape = Tile<T, k_contiguous, extent>;
  constexpr int kPerPiece = 16 / int(sizeof(T)), kPieces = Shape::kColumns / kPerPiece, kCount = Shape::kRows * kPieces;
  static_assert(kCount % kThreads == 0);
  auto valid_of = [&](int64_t row, int64_t column) {  // elements of a piece that are inside
    const int64_t left = row < rows ? columns - column : 0;
    return left <= 0 ? 0 : left < kPerPiece ? int(left) : kPerPiece;
  };
  if (vector) {
#pragma unroll
    for (int i = int(threadIdx.x); i < kCount; i += kThreads) {
      const int r = i / kPieces, c = i % kPieces * kPerPiece;
      const int valid = valid_of(first_row + r, first_column + c);
      const T* from = valid > 0 ? operand.row<T>(first_row + r) + first_column + c : static_cast<const T*>(operand.first);
      copy_async_16(tile + r * Shape::kStride + c, from, valid * int(sizeof(T)));
    }
  } else {
    T zero;
    from_float(0.0f, zero);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < kCount; i += kThreads) {
      const int r = i / kPieces, c = i % kPieces * kPerPiece;
      const int valid = valid_of(first_row + r, first_column + c);
      const T* from = operand.row<T>(first_row + r) + first_column + c;
#pragma unroll
      for (int e = 0; e < kPerPiece; e++) tile[r * Shape::kStride + c + e] = e < valid ? from[e] : zero;
    }
  }
}

__device__ __forceinline__ unsigned word_of(const float* at) { return __float_as_uint(*at); }
template <typename T>
__device__ __forceinline__ unsigned bits_of(const T* at) {
  return *reinterpret_cast<const unsigned short*>(at);
}

// The word of a fragment that holds the element (extent index x, k), for 16-bit types also (x, k + 1).
template <typename T, bool k_contiguous, int extent>
__device__ __forceinline__ unsigned fragment(const T* tile, int x, int k) {
  constexpr int stride = Tile<T, k_contiguous, extent>::kStride;
  if constexpr (sizeof(T) == 4) {
    return word_of(tile + (k_contiguous ? x * stride + k : k * stride + x));
  } else if constexpr (k_contiguous) {
    return *reinterpret_cast<const unsigned*>(tile + x * stride + k);
  } else {
    return bits_of(tile + k * stride + x) | bits_of(tile + (k + 1) * stride + x) << 16;
  }
}

// The words of a fragment as the tensor cores take them.
template <Precision precision, int count>
struct Fragment {
  unsigned words[count], rest[precision == Precision::kFloat32 ? count : 1];
  __device__ __forceinline__ void set(int i, unsigned word) {
    if constexpr (precision == Precision::kFloat32) {
      words[i] = upper_part(word);
      rest[i] = lower_part(word);
    } else if constexpr (precision == Precision::kTf32) {
      words[i] = to_tf32(__uint_as_float(word));
    } else {
      words[i] = word;
    }
  }
};

template <Precision precision>
__device__ __forceinline__ void multiply(float (&d)[4], const Fragment<precision, 4>& a, const Fragment<precision, 2>& b) {
  if constexpr (precision == Precision::kFloat32) {
    float sum[4] = {0, 0, 0, 0};
    mma_tf32(sum, a.rest, b.words);
    mma_tf32(sum, a.words, b.rest);
    mma_tf32(sum, a.words, b.words);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] += sum[i];
  } else {
    multiply_words<precision>(d, a.words, b.words);
  }
}

// Blocks of a multiprocessor at once: what shared memory leaves room for, fewer where the registers would not do.
__host__ __device__ constexpr int minimum_blocks(Precision precision, int tile) {
  return precision == Precision::kFloat32 ? (tile == 128 ? 1 : 3) : (tile == 128 ? 2 : 4);
}

template <Precision precision, Product::Layout layout, int kM, int kN>
__global__ void __launch_bounds__(kThreads, minimum_blocks(precision, kM)) product_kernel(ProductArguments arguments) {
  using T = Element<precision>;
  constexpr bool a_contiguous = layout != Product::Layout::kColumnsByColumns, b_contiguous = layout == Product::Layout::kRowsByRows;
  using ATile = Tile<T, a_contiguous, kM>;
  using BTile = Tile<T, b_contiguous, kN>;
  constexpr int kStep = sizeof(T) == 4 ? 8 : 16, kPer = sizeof(T) == 4 ? 1 : 2;  // k of an mma; elements of a word
  constexpr int MT = kM / 32, NT = kN / 16;                                      // mma tiles of a warp: 2 x 2 warps
  const Product& p = arguments.product;
  const int split = kM == 64 ? arguments.split : 1;  // large tiles are many
  const int rank = split > 1 ? int(cluster_rank()) : 0;
  const int64_t first_m = int64_t(int(blockIdx.x) / split) * kM, first_n = int64_t(blockIdx.y) * kN;
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31, g = lane >> 2, q = lane & 3;
  const int warp_m = (warp & 1) * (kM / 2), warp_n = (warp >> 1) * (kN / 2);
  const Rows a_rows{p.a, p.a, p.a_stride, p.a_stride, INT64_MAX}, b_rows{p.b[0], p.b[1], p.b_stride[0], p.b_stride[1], p.b_split};
  char* shared = block_shared();
  auto a_tile = [&](int stage) { return reinterpret_cast<T*>(shared + stage * (ATile::kBytes + BTile::kBytes)); };
  auto b_tile = [&](int stage) { return reinterpret_cast<T*>(shared + stage * (ATile::kBytes + BTile::kBytes) + ATile::kBytes); };
  auto fetch_slice = [&](int slice) {
    const int stage = slice % kStages;
    const int64_t k = int64_t(slice) * kSlice;
    if constexpr (a_contiguous) {
      fetch<T, true, kM>(a_tile(stage), a_rows, p.m, p.k, first_m, k, arguments.a_vector);
    } else {
      fetch<T, false, kM>(a_tile(stage), a_rows, p.k, p.m, k, first_m, arguments.a_vector);
    }
    if constexpr (b_contiguous) {
      fetch<T, true, kN>(b_tile(stage), b_rows, p.n, p.k, first_n, k, arguments.b_vector);
    } else {
      fetch<T, false, kN>(b_tile(stage), b_rows, p.k, p.n, k, first_n, arguments.b_vector);
    }
  };

  const int all_slices = int((p.k + kSlice - 1) / kSlice);
  const int begin = int(int64_t(all_slices) * rank / split), end = int(int64_t(all_slices) * (rank + 1) / split);
#pragma unroll 1
  for (int s = begin; s < begin + kStages - 1; s++) {
    if (s < end) fetch_slice(s);
    copy_async_commit();
  }
  float sums[MT][NT][4] = {};
#pragma unroll 1
  for (int slice = begin; slice < end; slice++) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // the slice is there, and its predecessor has been used by all
    if (slice + kStages - 1 < end) fetch_slice(slice + kStages - 1);
    copy_async_commit();
    const T* a = a_tile(slice % kStages);
    const T* b = b_tile(slice % kStages);
#pragma unroll
    for (int k = 0; k < kSlice; k += kStep) {
      const int low = k + q * kPer, high = low + kStep / 2;
      Fragment<precision, 4> left[MT];
      Fragment<precision, 2> right[NT];
#pragma unroll
      for (int m = 0; m < MT; m++) {
        const int x = warp_m + 16 * m + g;
        left[m].set(0, fragment<T, a_contiguous, kM>(a, x, low));
        left[m].set(1, fragment<T, a_contiguous, kM>(a, x + 8, low));
        left[m].set(2, fragment<T, a_contiguous, kM>(a, x, high));
        left[m].set(3, fragment<T, a_contiguous, kM>(a, x + 8, high));
      }
#pragma unroll
      for (int n = 0; n < NT; n++) {
        const int x = warp_n + 8 * n + g;
        right[n].set(0, fragment<T, b_contiguous, kN>(b, x, low));
        right[n].set(1, fragment<T, b_contiguous, kN>(b, x, high));
      }
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) multiply(sums[m][n], left[m], right[n]);
      }
    }
  }
  copy_async_wait<0>();

  auto bias_of = [&](int64_t column) {
    const bool second = column >= p.b_split;
    const T* from = static_cast<const T*>(p.bias[second ? 1 : 0]);
    return from == nullptr ? 0.0f : to_float(from[second ? column - p.b_split : column]);
  };
  if (split > 1) {
    constexpr int kStride = kN + 4;
    static_assert(kM * kStride * int(sizeof(float)) <= kStages * (ATile::kBytes + BTile::kBytes));
    float* tile = reinterpret_cast<float*>(shared);
    __syncthreads();  // the stages have been used by all
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          tile[(warp_m + 16 * m + g + (i >= 2 ? 8 : 0)) * kStride + warp_n + 8 * n + 2 * q + (i & 1)] = sums[m][n][i];
        }
      }
    }
    cluster_arrive();
    cluster_wait();
    const int share = kM / split * kN;  // each block finishes some rows
    for (int e = int(threadIdx.x); e < share; e += kThreads) {
      const int r = rank * (kM / split) + e / kN, c = e % kN;
      const int64_t row = first_m + r, column = first_n + c;
      if (row >= p.m || column >= p.n) continue;
      float value = bias_of(column);
      for (int other = 0; other < split; other++) value += *of_block(tile + r * kStride + c, unsigned(other));
      if (p.addend != nullptr) value += p.addend[row * p.addend_stride + column];
      if (p.c_is_float) {
        static_cast<float*>(p.c)[row * p.c_stride + column] = value;
      } else {
        from_float(value, static_cast<T*>(p.c)[row * p.c_stride + column]);
      }
    }
    cluster_arrive();
    cluster_wait();  // no block ends while another reads its sums
    return;
  }

#pragma unroll
  for (int n = 0; n < NT; n++) {
    const int64_t column = first_n + warp_n + 8 * n + 2 * q;
    const float bias[2] = {column < p.n ? bias_of(column) : 0.0f, column + 1 < p.n ? bias_of(column + 1) : 0.0f};
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int64_t row = first_m + warp_m + 16 * m + g + 8 * half;
        if (row >= p.m) continue;
        float value[2] = {sums[m][n][2 * half] + bias[0], sums[m][n][2 * half + 1] + bias[1]};
        const int columns = column + 1 < p.n ? 2 : column < p.n ? 1 : 0;
        if (p.addend != nullptr) {
          for (int i = 0; i < columns; i++) value[i] += p.addend[row * p.addend_stride + column + i];
        }
        if (p.c_is_float) {
          float* to = static_cast<float*>(p.c) + row * p.c_stride + column;
          if (arguments.c_pairs && columns == 2) {
            *reinterpret_cast<float2*>(to) = make_float2(value[0], value[1]);
          } else {
            for (int i = 0; i < columns; i++) to[i] = value[i];
          }
        } else {
          T* to = static_cast<T*>(p.c) + row * p.c_stride + column;
          for (int i = 0; i < columns; i++) from_float(value[i], to[i]);
        }
      }
    }
  }
}

template <Precision precision, Product::Layout layout, int kM, int kN>
cudaError_t launch_tile(ProductArguments arguments, cudaStream_t stream) {
  using T = Element<precision>;
  static Prepared prepared{0};
  const Product& p = arguments.product;
  Launch shape;
  const int64_t tiles_m = (p.m + kM - 1) / kM, tiles_n = (p.n + kN - 1) / kN, slices = (p.k + kSlice - 1) / kSlice;
  // As many blocks share k as fill the GPU once, and have some slices each.
  const Device& device = current_device();
  arguments.split = 1;
  while (kM == 64 && device.capability >= 90 && arguments.split < 8 && tiles_m * tiles_n * arguments.split * 2 <= device.processors &&
         slices >= 8 * arguments.split) {
    arguments.split *= 2;
  }
  shape.grid = dim3(unsigned(tiles_m * arguments.split), unsigned(tiles_n));
  shape.cluster = unsigned(arguments.split);
  shape.block = dim3(kThreads);
  shape.shared_bytes = kStages * (Tile<T, layout != Product::Layout::kColumnsByColumns, kM>::kBytes +
                                  Tile<T, layout == Product::Layout::kRowsByRows, kN>::kBytes);
  shape.stream = stream;
  return launch(product_kernel<precision, layout, kM, kN>, shape, prepared, arguments);
}

bool aligned(const void* pointer, int64_t stride_bytes, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0 && stride_bytes % int64_t(bytes) == 0;
}

template <Precision precision, Product::Layout layout>
cudaError_t launch_layout(const ProductArguments& arguments, cudaStream_t stream) {
  const Product& p = arguments.product;
  // Large tiles where they are enough to fill the GPU; the gradients of the weights are small and have a long k.
  if constexpr (layout != Product::Layout::kColumnsByColumns) {
    if ((p.m + 127) / 128 * ((p.n + 63) / 64) >= current_device().processors)
      return launch_tile<precision, layout, 128, 64>(arguments, stream);
  }
  return launch_tile<precision, layout, 64, 64>(arguments, stream);
}

template <Precision precision>
cudaError_t launch_precision(const Product& p, cudaStream_t stream) {
  const int64_t bytes = element_bytes(precision);
  const bool second = p.b[1] == nullptr || aligned(p.b[1], p.b_stride[1] * bytes, 16);
  ProductArguments arguments{p, aligned(p.a, p.a_stride * bytes, 16), aligned(p.b[0], p.b_stride[0] * bytes, 16) && second,
                             p.c_is_float && aligned(p.c, p.c_stride * 4, 8), 1};
  switch (p.layout) {
    case Product::Layout::kRowsByRows:
      return launch_layout<precision, Product::Layout::kRowsByRows>(arguments, stream);
    case Product::Layout::kRowsByColumns:
      return launch_layout<precision, Product::Layout::kRowsByColumns>(arguments, stream);
    default:
      return launch_layout<precision, Product::Layout::kColumnsByColumns>(arguments, stream);
  }
}

}  // namespace

cudaError_t launch_product(const Product& product, cudaStream_t stream) {
  switch (product.precision) {
    case Precision::kFloat32:
      return launch_precision<Precision::kFloat32>(product, stream);
    case Precision::kTf32:
      return launch_precision<Precision::kTf32>(product, stream);
    case Precision::kBfloat16:
      return launch_precision<Precision::kBfloat16>(product, stream);
    default:
      return launch_precision<Precision::kFloat16>(product, stream);
  }
}

}  // namespace tracer::overrides::gru
