# What the installed torch is: TORCH_VERSION, TORCH_GIT, TORCH_CUDA, TORCH_CXX11_ABI and TORCH_FOLDER.
# find_package(Torch) wants the CUDA toolkit where torch has CUDA; its libraries are all we need.

# Without the GIL Python lays out its objects in another way, and nothing orders the threads that call modules.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))), end='')"
  OUTPUT_VARIABLE FREE_THREADED)
if(FREE_THREADED)
  message(FATAL_ERROR "${Python_EXECUTABLE} is a free-threaded Python, where tracer cannot record: use a Python with the GIL. To read traces, install tracer into an environment without torch")
endif()
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import os, torch; print(torch.__version__, getattr(torch.version, 'git_version', None), torch.version.cuda, int(torch.compiled_with_cxx11_abi()), os.path.dirname(torch.__file__), sep=';', end='')"
  OUTPUT_VARIABLE TORCH_FACTS
  ERROR_VARIABLE TORCH_ERROR
  RESULT_VARIABLE TORCH_FAILED)
if(TORCH_FAILED)
  message(FATAL_ERROR "torch is installed, but ${Python_EXECUTABLE} cannot import it; repair or remove it first:\n${TORCH_ERROR}")
endif()
list(POP_FRONT TORCH_FACTS TORCH_VERSION TORCH_GIT TORCH_CUDA TORCH_CXX11_ABI TORCH_FOLDER)
message(STATUS "torch ${TORCH_VERSION} in ${TORCH_FOLDER}")
if(TORCH_VERSION VERSION_LESS 2.10)
  message(FATAL_ERROR "torch ${TORCH_VERSION} is too old: tracer needs torch 2.10 or newer")
endif()
set(TORCH_INCLUDE ${TORCH_FOLDER}/include)
set(TORCH_LIBRARIES)
foreach(library torch torch_cpu torch_python c10)
  list(APPEND TORCH_LIBRARIES ${TORCH_FOLDER}/lib/lib${library}.so)
endforeach()
