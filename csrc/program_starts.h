// Notices the Pythons that this process starts and that cannot join its recording: they ignore the environment, or get none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tracer {

// From now on in this process, from zero: what Python itself starts, and what these libraries do (their file names). The slots
// that were taken stay taken: without a recording they pass calls on.
void follow_starts(const std::vector<std::string>& libraries);
// How many of them this process and what it forked have started.
uint32_t starts_not_joined();

}  // namespace tracer
