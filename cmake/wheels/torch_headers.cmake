# A torch of which only the headers are there: what installed_torch.cmake asks of an installed one.
set(TORCH_VERSION ${TRACER_TORCH_VERSION})
set(TORCH_GIT ${TRACER_TORCH_GIT})
set(TORCH_CUDA ${TRACER_CUDA_VERSION})
set(TORCH_CXX11_ABI 1)
set(TORCH_INCLUDE ${TRACER_TORCH_INCLUDE})
enable_language(CXX)

# Empty libraries with the names of torch's: the linker writes down only those. smoke.py sees whether a symbol is missing.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp "")
set(TORCH_LIBRARIES -Wl,--no-as-needed)
foreach(library torch_cpu torch_python c10)
  add_library(stub_${library} SHARED ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
  set_target_properties(stub_${library} PROPERTIES OUTPUT_NAME ${library})
  list(APPEND TORCH_LIBRARIES stub_${library})
endforeach()
list(APPEND TORCH_LIBRARIES -Wl,--as-needed)

# manylinux_2_28 from a newer system: an older libc to link with (sysroot.py), and two objects for what that has not got.
set(TRACER_LINK_OPTIONS -s)
if(TRACER_SYSROOT)
  set(LIBRARIES ${TRACER_SYSROOT}/usr/lib/x86_64-linux-gnu)
  list(APPEND TRACER_LINK_OPTIONS --sysroot=${TRACER_SYSROOT} -B${LIBRARIES} -L${LIBRARIES}
    -L${TRACER_SYSROOT}/lib/x86_64-linux-gnu)
  add_library(portable OBJECT ${CMAKE_CURRENT_LIST_DIR}/portable.cpp)
  set_target_properties(portable PROPERTIES POSITION_INDEPENDENT_CODE ON)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE STANDARD_LIBRARY
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_AR} x ${STANDARD_LIBRARY} floating_to_chars.o
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} COMMAND_ERROR_IS_FATAL ANY)
  set(TRACER_LINK_OBJECTS $<TARGET_OBJECTS:portable> ${CMAKE_CURRENT_BINARY_DIR}/floating_to_chars.o)
endif()
