// What the headers of a newer system take from its libraries, and the libraries of an older one have not: a wheel has its own.
#include <ios>
#include <new>
#include <string>

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {
// glibc 2.32: whether the process has one thread only, for which libstdc++ counts references without locks. There may be more.
HIDDEN char __libc_single_threaded = 0;

// GLIBCXX_3.4.29: std::__throw_bad_array_new_length(), of the headers of g++ 11 and newer.
[[noreturn]] HIDDEN void throw_bad_array_new_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }

// CXXABI_1.3.13: exception_ptr::_M_addref() and _M_release(), of which g++ 11 and newer inlines the callers. Older functions that
// are never inline do the same: the constructor from an exception adds a reference, and what is assigned to gives its own back.
void refer_to(void* pointer, void* exception) __asm__("_ZNSt15__exception_ptr13exception_ptrC1EPv");
void assign(void* to, const void* from) __asm__("_ZNSt15__exception_ptr13exception_ptraSERKS0_");
HIDDEN void add_reference(void** pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
HIDDEN void release(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void add_reference(void** pointer) {
  void* never_destroyed;
  refer_to(&never_destroyed, *pointer);
}
void release(void* pointer) {
  void* none = nullptr;
  assign(pointer, &none);
}

// GLIBCXX_3.4.26: std::ostringstream(). The constructor with a mode is older.
void open_stream(void* stream,
                 std::ios_base::openmode mode) __asm__("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
HIDDEN void open_to_write(void* stream) __asm__("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void open_to_write(void* stream) { open_stream(stream, std::ios_base::out); }

// GLIBCXX_3.4.29: str() && of streams and buffers, which C++20 calls of one that is no longer used. Of an older one it is a copy.
#define STREAM "St7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEE3strEv"
#define BUFFER "St7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv"
std::string copied_of_stream(const void* stream) __asm__("_ZNK" STREAM);
std::string copied_of_buffer(const void* buffer) __asm__("_ZNK" BUFFER);
HIDDEN std::string moved_of_stream(void* stream) __asm__("_ZNO" STREAM);
HIDDEN std::string moved_of_buffer(void* buffer) __asm__("_ZNO" BUFFER);
std::string moved_of_stream(void* stream) { return copied_of_stream(stream); }
std::string moved_of_buffer(void* buffer) { return copied_of_buffer(buffer); }
}
