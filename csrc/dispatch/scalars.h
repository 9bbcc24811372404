// The arguments of an op call that are no tensors, as text. For `tracer record --values scalars`; always of a collective its
// process group, and whether its caller waits for it.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace tracer::dispatch {

// As they follow the tensors of a signature: u32 how many, and of each u16 argument position and a string of JSON. Empty
// without memory, and with `only_groups` if there is no process group.
std::string scalars_of(const c10::IValue* first, size_t size, bool only_groups) noexcept;

}  // namespace tracer::dispatch
