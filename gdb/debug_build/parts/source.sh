# Sourced by build.sh: sets source, version, system_libraries.
if [ -d "$given" ]; then
  source=$given
  version=${VERSION:-$(sed 's/a0.*//' "$source/version.txt")}
else
  source=$out/source
  name=$(basename "$given")
  version=${VERSION:-$(echo "$name" | sed 's/^pytorch_//; s/[+].*//')}
  if [ ! -e "$source/version.txt" ]; then
    mkdir -p "$source.part"
    tar -xf "$given" -C "$source.part" --strip-components=1
    mv "$source.part" "$source"
  fi
fi
[ -e "$source/torch/csrc" ] || fail "$given is not a source of PyTorch: it has no torch/csrc"

system_libraries=OFF
if [ ! -e "$source/third_party/fmt/CMakeLists.txt" ] || [ -e "$source/.without_submodules" ]; then
  # Debian's source has none of the submodules: use the system's libraries, and parts/missing for what it lacks.
  system_libraries=ON
  packages=$(cat "$here/parts/packages.txt")
  # shellcheck disable=SC2086
  lacking=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages 2>&1 | grep -v ' installed$' |
    sed 's/.*matching //; s/ .*//' | tr '\n' ' ' || true)
  [ -z "$lacking" ] || fail "packages are missing: apt-get install $lacking"
  if [ ! -e "$source/.without_submodules" ]; then
    cp -rn "$here"/parts/missing/* "$source/third_party/"
    (cd "$source" && patch -p1 --forward --silent < "$here/parts/without_submodules.patch")
    flatc --cpp --gen-mutable --scoped-enums -o "$source/torch/csrc/jit/serialization" \
      "$source/torch/csrc/jit/serialization/mobile_bytecode.fbs"
    touch "$source/.without_submodules"
  fi
fi
