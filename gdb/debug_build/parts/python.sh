# Sourced by build.sh: OUT/venv, with what the build and `import torch` need; sets python.
python=$out/venv/bin/python
if [ ! -e "$out/venv/.ready" ]; then
  "${PYTHON:-python3}" -m venv "$out/venv"
  case $version in
    1.*|2.0*|2.1*|2.2*) numpy='numpy<2' ;;
    *) numpy=numpy ;;
  esac
  "$python" -m pip install --quiet --disable-pip-version-check "$numpy" pyyaml typing_extensions 'setuptools<70' \
    sympy networkx jinja2 filelock fsspec
  touch "$out/venv/.ready"
fi
