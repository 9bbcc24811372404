// The Python lines that this process has named in its recording: their texts are looked up when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tracer::python {

// Called when a lane names a line for the first time. Takes no lock; lines beyond a limit are left out.
void note_line(const std::string& file, uint32_t number);

// File and number of each noted line.
std::vector<std::pair<std::string, uint32_t>> seen_lines();

// Before a recording begins: the lines of an earlier one are not its own.
void forget_lines();

}  // namespace tracer::python
