// Loaded libraries and their symbols, read from the files on disk and from memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tracer::native {

struct Library {
  std::string path;
  uint64_t load_bias = 0;   // what to add to an address in the file
  uint64_t begin = 0, end = 0;
  std::string build_id;     // hexadecimal; empty where there is none
};

std::vector<Library> loaded_libraries();
// The library of a given file name (`libtorch_cpu.so`); an empty path where it is not loaded.
Library find_library(std::string_view file_name);

// Calls `see(name, address in the file, size)` for each function of the library's .symtab, or of its
// .dynsym where it is stripped. False: the file could not be read.
using SeeFunction = std::function<void(const char* name, uint64_t address, uint64_t size)>;
bool for_each_function(const std::string& path, const SeeFunction& see);
// Where a variable of a loaded library is, of this name in its .symtab and of this size; nullptr where there is none.
void* find_variable(std::string_view library_file_name, std::string_view name, size_t size);

// The slot through which a library calls an exported function (a JUMP_SLOT of its DT_JMPREL), or nullptr.
void** find_plt_slot(std::string_view library_file_name, const char* symbol);
// Stores a pointer into such a slot, whose page may be read-only; false when the kernel refuses.
bool write_plt_slot(void** slot, void* value);

}  // namespace tracer::native
