#include "thread_keys.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstring>
#include <string>

#include "class_hops.h"

namespace tracer::dispatch {
namespace {

using c10::impl::TorchDispatchModeTLS;

uint64_t hash_of_modes() {
  uint64_t hash = 1;
  for (int64_t place = 0, modes = TorchDispatchModeTLS::stack_len(); place < modes; ++place) {
    const char* name = class_of_mode(place)->tp_name;
    hash = trace::mix(hash, trace::hash_bytes(name, strlen(name)));
  }
  return hash;
}

// A line for each, outermost first.
std::string text_of_modes() {
  std::string text;
  for (int64_t place = 0, modes = TorchDispatchModeTLS::stack_len(); place < modes; ++place)
    text += std::string(class_of_mode(place)->tp_name) + "\n";
  return text;
}

}  // namespace

void write_thread_keys(trace::Lane* lane, uint64_t when) {
  auto local = c10::impl::tls_local_dispatch_key_set();
  uint64_t included = local.included_.raw_repr(), excluded = local.excluded_.raw_repr();
  bool modes = local.included_.has(c10::DispatchKey::Python);  // as long as there is one
  uint64_t hash = trace::mix(trace::mix(trace::mix(2, included), excluded), modes ? hash_of_modes() : 0);
  if (hash == lane->keys_of_thread) return;
  lane->keys_of_thread = hash;
  uint32_t id = lane->intern(hash, [&](uint32_t number) {
    return trace::DefinitionBuilder(trace::kKeysOfThread)
        .put(number)
        .put(included)
        .put(excluded)
        .put_string(modes ? text_of_modes() : std::string());
  });
  trace::write_event(lane, trace::kThreadKeys, when, uint64_t(id));
}

}  // namespace tracer::dispatch
