// Where the kernel function at a table entry was registered, and by which rule it is there.
#pragma once

#include <string>

#include "../torch_abi/computed_entry.h"
#include "operator_record.h"

namespace tracer::dispatch {

// The dispatch key of a table entry.
const std::string& key_name(uint32_t table_index);

// Empty where the dispatcher is registering at this moment.
torch_abi::Registration registration_of(const OperatorRecord& op, uint32_t table_index);

}  // namespace tracer::dispatch
