# Sourced by build.sh: configures OUT/build once; sets build.
build=$out/build
linker=""
for candidate in mold lld; do
  if command -v "$candidate" > /dev/null || command -v "ld.$candidate" > /dev/null; then
    linker="-fuse-ld=$candidate -Wl,--gdb-index"
    break
  fi
done
[ -n "$linker" ] || echo "build.sh: no mold and no lld: linking takes minutes and gdb starts slower (apt-get install mold)"
ccache=OFF
if command -v ccache > /dev/null; then
  ccache=ON
  export CCACHE_DIR=$out/ccache CCACHE_MAXSIZE=10G CCACHE_SLOPPINESS=pch_defines,time_macros
fi

off=""
for part in CUDA ROCM DISTRIBUTED MKLDNN FBGEMM KINETO ITT QNNPACK PYTORCH_QNNPACK XNNPACK NNPACK NUMA MAGMA VULKAN \
  TENSORPIPE GLOO MPI NCCL BREAKPAD VALGRIND; do
  off="$off -DUSE_$part=OFF"
done
for part in TEST CAFFE2 CAFFE2_OPS FUNCTORCH LAZY_TS_BACKEND CUSTOM_PROTOBUF; do
  [ "$part$system_libraries" = CUSTOM_PROTOBUFOFF ] || off="$off -DBUILD_$part=OFF"
done
# the kernels of one instruction set, the default one: 100 slow files fewer
for part in AVX2_1 AVX2_2 AVX2_3 AVX512_1 AVX512_2 AVX512_3; do
  off="$off -DCXX_HAS_$part=OFF"
done

if [ ! -e "$build/.configured" ]; then
  flags="-gsplit-dwarf -ggnu-pubnames"
  export BLAS=Generic GENERIC_BLAS_LIBRARIES=blas USE_SYSTEM_LIBS=$system_libraries
  paths() { "$python" -c "import sysconfig; print(sysconfig.get_$1('$2'))"; }
  # shellcheck disable=SC2086
  cmake -G Ninja -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_INSTALL_PREFIX="$out/install" \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_CXX_FLAGS_DEBUG="-g -Wno-error=return-type" \
    -DCMAKE_SHARED_LINKER_FLAGS="$linker" -DCMAKE_MODULE_LINKER_FLAGS="$linker" -DCMAKE_EXE_LINKER_FLAGS="$linker" \
    -DPYTHON_EXECUTABLE="$python" -DPYTHON_INCLUDE_DIR="$(paths path include)" \
    -DPYTHON_LIBRARY="$(paths config_var LIBDIR)/$(paths config_var LDLIBRARY)" \
    -DNUMPY_INCLUDE_DIR="$("$python" -c 'import numpy; print(numpy.get_include())')" \
    -DTORCH_BUILD_VERSION="$version" -DBUILD_PYTHON=ON -DUSE_NUMPY=ON -DUSE_OPENMP=ON -DBLAS=Generic \
    -DUSE_SYSTEM_LIBS=$system_libraries -DUSE_SYSTEM_EIGEN_INSTALL=$system_libraries \
    -DUSE_PRECOMPILED_HEADERS=ON -DUSE_CCACHE=$ccache -DCAFFE2_COMPILER_SUPPORTS_AVX512_EXTENSIONS=OFF $off \
    > "$out/configure.log" 2>&1 || fail "cmake failed: $out/configure.log ends with: $(tail -1 "$out/configure.log")"
  touch "$build/.configured"
fi
