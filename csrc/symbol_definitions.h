// Names what ran when a recording ends.
#pragma once

namespace tracer {

// One kSymbol definition for each kernel function and each address of a native stack in the running recording.
void define_symbols();

}  // namespace tracer
