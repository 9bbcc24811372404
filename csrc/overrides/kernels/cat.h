// Concatenation: rows of bytes, each made of one run of every piece.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tracer::overrides {

constexpr int kMostPieces = 64;

// Row r of the result is bytes[0] bytes from from[0] + r pitch[0] on, then those of the next piece, and so on. The result
// is contiguous; none of the bytes is 0, and the pieces do not overlap the result.
struct Cat {
  int pieces;
  const char* from[kMostPieces];
  int64_t pitch[kMostPieces];
  int64_t bytes[kMostPieces];
  char* out;
  int64_t rows;
};

// Do all runs begin and end at multiples of 16 bytes, on both sides?
bool is_aligned(const Cat& cat);

// On the current device, whose index is `device`: one kernel.
cudaError_t launch_cat(const Cat& cat, int device, cudaStream_t stream);

}  // namespace tracer::overrides
