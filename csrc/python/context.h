// The context of contextvars that a thread runs in: each task of asyncio and its like has one of its own.
#pragma once

#include <cstdint>

namespace tracer::python {

// Both are 0 outside of all contexts that a thread has entered, and where nothing is known.
struct ContextNow {
  uint64_t context;  // the address
  uint64_t around;   // of the one in which it was entered
};

// Looks once whether contexts are laid out as they are known here. With the GIL.
void learn_contexts();
// Of the calling thread. Needs no GIL: while it is in here its own context stays.
ContextNow context_now();

}  // namespace tracer::python
