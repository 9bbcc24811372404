// What the headers of a newer system take from its libraries, and the libraries of an older one have not: a wheel has its own.
#include <new>

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {
// glibc 2.32: whether the process has one thread only, for which libstdc++ counts references without locks. There may be more.
HIDDEN char __libc_single_threaded = 0;

// GLIBCXX_3.4.29: std::__throw_bad_array_new_length(), of the headers of g++ 11 and newer.
[[noreturn]] HIDDEN void throw_bad_array_new_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }

// CXXABI_1.3.13: exception_ptr::_M_addref() and _M_release(), of which g++ 11 and newer inlines the callers. Older libraries have
// those callers: a copy that nobody destroys is a reference more, and a destructor gives one back.
void copy_exception_ptr(void* to, const void* from) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void destroy_exception_ptr(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
HIDDEN void add_reference(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
HIDDEN void release(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void add_reference(void* pointer) {
  void* copy;
  copy_exception_ptr(&copy, pointer);
}
void release(void* pointer) { destroy_exception_ptr(pointer); }
}
