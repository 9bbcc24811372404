#include "cupti.h"

#include <dlfcn.h>

namespace tracer::cuda {
namespace {

// CUPTI changes its records with its major version: the one that torch was built with is the one to use.
constexpr const char* kName = CUPTI_API_VERSION >= 130000 ? "libcupti.so.13" : "libcupti.so.12";

Cupti load() {
  Cupti found;
  void* library = dlopen(kName, RTLD_NOW | RTLD_NOLOAD);  // the one that torch has loaded
  if (!library) library = dlopen(kName, RTLD_NOW);
  if (!library) {
    const char* error = dlerror();
    found.missing = std::string(kName) + " was not found" + (error ? std::string(" (") + error + ")" : "");
    return found;
  }
#define TRACER_FIND(name)                                                        \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, #name));    \
  if (!found.name) found.missing = std::string(kName) + " has no " #name;
  TRACER_CUPTI_FUNCTIONS(TRACER_FIND)
#undef TRACER_FIND
#ifdef CUpti_SubscriberParams_STRUCT_SIZE
  found.cuptiSubscribe_v2 = reinterpret_cast<decltype(found.cuptiSubscribe_v2)>(dlsym(library, "cuptiSubscribe_v2"));
#endif
  return found;
}

}  // namespace

std::string Cupti::text(CUptiResult result) const {
  const char* text = nullptr;
  if (cuptiGetResultString) cuptiGetResultString(result, &text);
  return text ? text : "CUPTI error " + std::to_string(int(result));
}

const Cupti& cupti() {
  static const Cupti& found = *new Cupti(load());
  return found;
}

}  // namespace tracer::cuda
