# The CUDA kernels of the overrides (target override_kernels) and the Python module tracer._overrides. Built where torch has
# CUDA and nvcc of the same major version is found; elsewhere left out, and OVERRIDES_MISSING says why. Under
# TRACER_CUDA_CHECK the kernels and the glue are compiled, and no module is made.
set(OVERRIDE_ARCHITECTURES "80,90")  # as in -gencode below
set(OVERRIDES_MISSING)

# What a build in the same folder found before may be gone, or be another toolkit's.
unset(NVCC CACHE)
unset(CUDART CACHE)
if(CMAKE_CUDA_COMPILER AND NOT "$ENV{CUDA_HOME}" STREQUAL "" AND NOT CMAKE_CUDA_COMPILER STREQUAL "$ENV{CUDA_HOME}/bin/nvcc")
  unset(CMAKE_CUDA_COMPILER CACHE)
  file(REMOVE ${CMAKE_PLATFORM_INFO_DIR}/CMakeCUDACompiler.cmake)
endif()

# nvcc of a toolkit, or of the package nvidia-cuda-nvcc.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; s = u.find_spec('nvidia'); print(';'.join(s.submodule_search_locations) if s else '', end='')"
    OUTPUT_VARIABLE packages
    ERROR_QUIET)
  set(places /usr/local/cuda/bin)
  foreach(package ${packages})
    list(APPEND places ${package}/cu13/bin ${package}/cuda_nvcc/bin)
  endforeach()
  find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS ${places})
  if(NVCC)
    set(ENV{CUDACXX} ${NVCC})  # check_language tries it, where CMAKE_CUDA_COMPILER would be taken as it is
  endif()
  unset(CMAKE_CUDA_COMPILER CACHE)
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)  # sm_90a needs both halves of -gencode
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  set(OVERRIDES_MISSING "no working nvcc was found: set CUDA_HOME to a CUDA toolkit")
  return()
endif()
enable_language(CUDA)
string(REGEX MATCH "^[0-9]+" NVCC_MAJOR ${CMAKE_CUDA_COMPILER_VERSION})
string(REGEX MATCH "^[0-9]+" TORCH_CUDA_MAJOR "${TORCH_CUDA}")
if(NVCC_MAJOR LESS 12)
  set(OVERRIDES_MISSING "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: set CUDA_HOME to a toolkit of CUDA 12 or newer")
elseif(NOT TRACER_CUDA_CHECK AND NOT NVCC_MAJOR STREQUAL TORCH_CUDA_MAJOR)
  set(OVERRIDES_MISSING "nvcc is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, torch of CUDA ${TORCH_CUDA}: set CUDA_HOME to a toolkit of CUDA ${TORCH_CUDA_MAJOR}")
endif()
if(OVERRIDES_MISSING)
  return()
endif()
set(OVERRIDES_NVCC ${CMAKE_CUDA_COMPILER_VERSION})

set(OVERRIDES ${CMAKE_CURRENT_SOURCE_DIR}/csrc/overrides)
file(GLOB OVERRIDE_KERNELS CONFIGURE_DEPENDS ${OVERRIDES}/kernels/*.cu ${OVERRIDES}/kernels/*.cpp)
file(GLOB OVERRIDE_GLUE CONFIGURE_DEPENDS ${OVERRIDES}/*.cpp ${OVERRIDES}/ops/*.cpp)
add_library(override_kernels OBJECT ${OVERRIDE_KERNELS})
add_library(override_glue OBJECT ${OVERRIDE_GLUE})
foreach(part override_kernels override_glue)
  compile_as_cxx20(${part})
  set_target_properties(${part} PROPERTIES
    CUDA_STANDARD 20
    CUDA_STANDARD_REQUIRED ON
    CUDA_RUNTIME_LIBRARY Shared
    CUDA_ARCHITECTURES OFF
    CUDA_VISIBILITY_PRESET hidden)
  target_include_directories(${part} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_compile_options(${part} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-O2;-Wall>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-gencode=arch=compute_80,code=sm_80;-gencode=arch=compute_90a,code=sm_90a>")
endforeach()
target_compile_definitions(override_glue PRIVATE
  _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI} TORCH_EXTENSION_NAME=_overrides TRACER_OVERRIDE_ARCHITECTURES=${OVERRIDE_ARCHITECTURES})
target_include_directories(override_glue SYSTEM PRIVATE ${TRACER_INCLUDES} ${Python_INCLUDE_DIRS})
if(TRACER_CUDA_CHECK)
  return()
endif()

python_add_library(_overrides MODULE WITH_SOABI $<TARGET_OBJECTS:override_kernels> $<TARGET_OBJECTS:override_glue>)
set_target_properties(_overrides PROPERTIES
  CUDA_RUNTIME_LIBRARY None  # libcudart is named below: no copy of its own, torch has loaded it
  LINKER_LANGUAGE CXX)
find_library(CUDART NAMES cudart libcudart.so.${NVCC_MAJOR} HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
target_link_libraries(_overrides PRIVATE ${CUDART})
link_torch(_overrides)
install(TARGETS _overrides LIBRARY DESTINATION tracer)
