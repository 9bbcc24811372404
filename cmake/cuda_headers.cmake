# The folder with cupti.h, CUPTI's generated headers and cuda.h, of the major version of CUDA that torch has.
function(find_cuda_headers result version)
  if(version STREQUAL None)
    set(version 13.0)
  endif()
  string(REGEX MATCH "^[0-9]+" major "${version}")
  # The package of CUDA 13 keeps all headers in one folder; before it each library had its own.
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; s = u.find_spec('nvidia'); print(';'.join(s.submodule_search_locations) if s else '', end='')"
    OUTPUT_VARIABLE packages
    ERROR_QUIET)
  set(places ${TRACER_CUDA_HEADERS})
  foreach(package ${packages})
    list(APPEND places ${package}/cu${major}/include ${package}/cuda_cupti/include)
  endforeach()
  list(APPEND places $ENV{CUDA_HOME}/include $ENV{CUDA_HOME}/extras/CUPTI/include /usr/local/cuda-${version}/include
    /usr/local/cuda-${version}/extras/CUPTI/include /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include)
  foreach(place ${places})
    if(EXISTS ${place}/cupti.h AND EXISTS ${place}/generated_cuda_runtime_api_meta.h)
      set(folders ${place})
      if(NOT EXISTS ${place}/cuda.h OR NOT EXISTS ${place}/crt/host_defines.h)
        list(APPEND folders ${place}/../../../include ${place}/../../cuda_runtime/include /usr/local/cuda/include)
      endif()
      set(${result} ${folders} PARENT_SCOPE)
      message(STATUS "CUPTI headers in ${place}")
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "torch has CUDA ${version}, and the headers of CUPTI are missing: pip install nvidia-cuda-cupti==${version}.* nvidia-cuda-runtime==${version}.* nvidia-cuda-crt==${version}.* (CUDA 12: nvidia-cuda-cupti-cu12 nvidia-cuda-runtime-cu12), or set CUDA_HOME")
endfunction()
