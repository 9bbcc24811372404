// Functions of the dispatcher that the recorder replaces in the slots through which torch's libraries call them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tracer::torch_abi {

constexpr const char* kTorchCpu = "libtorch_cpu.so";
constexpr const char* kTorchPython = "libtorch_python.so";

// OperatorEntry::updateDispatchTableEntry_(const Dispatcher&, DispatchKey): computes an entry anew, with the dispatcher's lock
// held. Declared as c10 declares it; a member function is called with the object as its first argument.
constexpr const char* kUpdateEntry = "_ZN3c104impl13OperatorEntry25updateDispatchTableEntry_ERKNS_10DispatcherENS_11DispatchKeyE";
using UpdateEntry = void (*)(c10::impl::OperatorEntry*, const c10::Dispatcher&, c10::DispatchKey);

// OperatorEntry::checkInvariants() const: compares the entries with the registrations.
constexpr const char* kCheckInvariants = "_ZNK3c104impl13OperatorEntry15checkInvariantsEv";
using CheckInvariants = void (*)(const c10::impl::OperatorEntry*);

}  // namespace tracer::torch_abi
