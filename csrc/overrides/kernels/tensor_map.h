// What the copy engine needs to know of a matrix in memory, to bring slabs of it (wgmma.cuh) to shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tracer::overrides {

// Of TF32 operands the copy engine rounds the elements on their way.
enum class MapElement : uint8_t { kFloat, kTf32, kBfloat16, kHalf };
constexpr int bytes_of(MapElement element) { return element == MapElement::kFloat || element == MapElement::kTf32 ? 4 : 2; }

// In elements. The first dimension has stride 1; `strides` are those of the others, multiples of 16 bytes. A copy brings a box, of 128
// bytes in the first dimension, and zeros for what is outside the sizes. Two dimensions where the third size is 1.
struct MapShape {
  int64_t sizes[3], strides[2];
  int box[3];
};

// Whether the driver makes them.
bool makes_tensor_maps();

// `matrix` begins at a multiple of 16 bytes. False where the driver refuses or is too old.
bool make_tensor_map(CUtensorMap& map, MapElement element, const void* matrix, const MapShape& shape);

}  // namespace tracer::overrides
