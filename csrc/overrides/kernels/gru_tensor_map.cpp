#include "gru_tensor_map.h"

#include <cuda_runtime_api.h>

namespace tracer::overrides::gru {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Asked for at run time, so that nothing here is linked with the driver's library.
Encode encode_function() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return static_cast<Encode>(nullptr);
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

CUtensorMapDataType type_of(Precision precision) {
  switch (precision) {
    case Precision::kBfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Precision::kFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Precision::kTf32:
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

}  // namespace

bool make_tensor_map(CUtensorMap& map, Precision precision, const void* matrix, int64_t columns, int64_t rows, int64_t row_stride,
                     int box_rows, int planes, int64_t plane_stride) {
  const Encode encode = encode_function();
  if (encode == nullptr) return false;
  const int bytes = element_bytes(precision);
  const cuuint64_t sizes[3] = {cuuint64_t(columns), cuuint64_t(rows), cuuint64_t(planes)};
  const cuuint64_t strides[2] = {cuuint64_t(row_stride * bytes), cuuint64_t(plane_stride * row_stride * bytes)};
  const cuuint32_t box[3] = {cuuint32_t(128 / bytes), cuuint32_t(box_rows), cuuint32_t(planes)}, steps[3] = {1, 1, 1};
  return encode(&map, type_of(precision), planes > 1 ? 3 : 2, const_cast<void*>(matrix), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tracer::overrides::gru
