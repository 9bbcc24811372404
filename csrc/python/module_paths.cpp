#include "module_paths.h"

#include <cstring>
#include <vector>

#include "../trace/recording.h"

namespace tracer::python {
namespace {

using trace::Interner;
using trace::mix;

struct Path {
  std::string root, names;  // class of the outermost module; names from there, apart by dots
  uint32_t defined;         // the recording that it is defined in
  OwnName calls;
};
std::vector<Path>& paths = *new std::vector<Path>;
Interner& path_ids = *new Interner;

}  // namespace

uint32_t path_of(const std::string& root, const std::string& names) {
  uint64_t hash = mix(mix(1, trace::hash_bytes(root.data(), root.size())), trace::hash_bytes(names.data(), names.size()));
  if (uint32_t id = path_ids.find(hash)) return id;
  uint32_t id = path_ids.add(hash);
  if (id) paths.push_back({root, names, 0, OwnName("module:" + root + (names.empty() ? "" : ".") + names)});
  return id;
}

uint32_t path_below(uint32_t path, const std::string& names) {
  if (!path) return 0;
  const Path above = paths[path - 1];
  return path_of(above.root, above.names.empty() || names.empty() ? above.names + names : above.names + "." + names);
}

uint32_t path_of_class(PyObject* module) {
  const char* name = Py_TYPE(module)->tp_name;
  const char* dot = strrchr(name, '.');
  return path_of(dot ? dot + 1 : name, {});
}

void define_path(uint32_t path, uint32_t epoch) {
  Path& known = paths[path - 1];
  if (known.defined == epoch) return;
  known.defined = epoch;
  trace::define_for_process(trace::DefinitionBuilder(trace::kModulePath).put(path).put_string(known.names).put_string(known.root));
}

const OwnName& name_of_calls(uint32_t path) { return paths[path - 1].calls; }

}  // namespace tracer::python
