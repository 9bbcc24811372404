// What the copy engine needs to know of a matrix in memory, to bring slabs of it (gru_warpgroups.cuh) to shared memory. Of TF32 operands
// it rounds the elements on their way.
#pragma once

#include <cuda.h>

#include "gru.h"

namespace tracer::overrides::gru {

// `planes` matrices of rows x columns, plane_stride rows apart; strides are multiples of 16 bytes, as is `matrix`. A slab is brought for
// box_rows rows of each plane. False where the driver refuses or is too old.
bool make_tensor_map(CUtensorMap& map, Precision precision, const void* matrix, int64_t columns, int64_t rows, int64_t row_stride,
                     int box_rows, int planes = 1, int64_t plane_stride = 0);

}  // namespace tracer::overrides::gru
