// Products of warp groups and the copy engine by the precision of a GRU.
#pragma once

#include "copy_engine.cuh"
#include "gru_numbers.cuh"
#include "wgmma.cuh"

namespace tracer::overrides::gru {

template <Precision precision>
constexpr int kSlab = kSlabBytes / int(sizeof(Element<precision>));  // elements of a row of a slab

__host__ __device__ constexpr MapElement map_element(Precision precision) {
  switch (precision) {
    case Precision::kBfloat16:
      return MapElement::kBfloat16;
    case Precision::kFloat16:
      return MapElement::kHalf;
    case Precision::kTf32:
      return MapElement::kTf32;
    default:
      return MapElement::kFloat;
  }
}

// Of `planes` matrices of rows x columns, plane_stride rows apart; a copy brings a slab of box_rows rows of each.
inline bool make_slab_map(CUtensorMap& map, Precision precision, const void* matrix, int64_t columns, int64_t rows, int64_t row_stride,
                          int box_rows, int planes = 1, int64_t plane_stride = 0) {
  const int slab = kSlabBytes / element_bytes(precision);
  return make_tensor_map(map, map_element(precision), matrix,
                         {{columns, rows, planes}, {row_stride, plane_stride * row_stride}, {slab, box_rows, planes}});
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <Precision precision, int kCount>
__device__ __forceinline__ void group_multiply(float (&d)[kCount], uint64_t a, uint64_t b, bool adds) {
  overrides::group_multiply<map_element(precision)>(d, a, b, adds);
}
#endif

}  // namespace tracer::overrides::gru
