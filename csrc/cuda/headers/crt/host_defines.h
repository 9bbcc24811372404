// What cuda_runtime_api.h asks of CUDA's own crt/host_defines.h, for g++ alone: that header comes with nvcc, and none of
// the packages that torch brings has it. Used only if there is no other.
#pragma once

#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __specialization_static
#define CUDARTAPI
#define CUDARTAPI_CDECL

// They mean something to nvcc.
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __device__
#define __global__
#define __host__
