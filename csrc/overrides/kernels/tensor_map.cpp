#include "tensor_map.h"

#include <cuda_runtime_api.h>

namespace tracer::overrides {

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

CUtensorMapDataType type_of(MapElement element) {
  switch (element) {
    case MapElement::kBfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case MapElement::kHalf:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case MapElement::kTf32:
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

}  // namespace

bool makes_tensor_maps() { return encode_function() != nullptr; }

bool make_tensor_map(CUtensorMap& map, MapElement element, const void* matrix, const MapShape& shape) {
  const Encode encode = encode_function();
  if (encode == nullptr) return false;
  cuuint64_t sizes[3], strides[2];
  cuuint32_t box[3];
  const cuuint32_t steps[3] = {1, 1, 1};
  for (int i = 0; i < 3; i++) sizes[i] = cuuint64_t(shape.sizes[i]), box[i] = cuuint32_t(shape.box[i]);
  for (int i = 0; i < 2; i++) strides[i] = cuuint64_t(shape.strides[i] * bytes_of(element));
  return encode(&map, type_of(element), shape.sizes[2] > 1 ? 3 : 2, const_cast<void*>(matrix), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tracer::overrides
