#!/bin/sh
# csrc_hash.sh: the hash of what `make cuda-check` and `make sanitize-address` compile.
cd "$(dirname "$0")/../.." || exit
find csrc cmake/*.cmake CMakeLists.txt -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1
