#include "symbol_definitions.h"

#include "dispatch/arming.h"
#include "native/symbols.h"
#include "trace/lane.h"
#include "trace/recording.h"

namespace tracer {

void define_symbols() {
  std::vector<uint64_t> addresses = native::take_noted_addresses();
  for (uint64_t kernel : dispatch::recorded_kernels()) addresses.push_back(kernel);
  for (const native::Symbol& symbol : native::resolve(std::move(addresses)))
    trace::define_for_process(
        trace::DefinitionBuilder(trace::kSymbol).put(symbol.address).put(symbol.offset).put_string(symbol.name).put_string(symbol.library));
}

}  // namespace tracer
