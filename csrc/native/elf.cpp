#include "elf.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "../mapping.h"

namespace tracer::native {
namespace {

std::string read_build_id(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof *note;
      const char* value = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
        std::string hex;
        char digits[3];
        for (uint32_t byte = 0; byte < note->n_descsz; ++byte) {
          snprintf(digits, sizeof digits, "%02x", uint8_t(value[byte]));
          hex += digits;
        }
        return hex;
      }
      at = value + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return {};
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// A file mapped for reading.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status;
    if (fstat(fd, &status) == 0 && status.st_size > 0) {
      void* mapping = map_file(fd, 0, size_t(status.st_size), PROT_READ, MAP_PRIVATE);
      if (mapping) data_ = static_cast<const char*>(mapping), size_ = size_t(status.st_size);
    }
    ::close(fd);
  }
  ~MappedFile() {
    if (data_) munmap(const_cast<char*>(data_), size_);
  }
  // A range of the file, or nullptr where it does not lie inside.
  const char* range(uint64_t offset, uint64_t bytes) const {
    return data_ && offset <= size_ && bytes <= size_ - offset ? data_ + offset : nullptr;
  }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

std::vector<Library> loaded_libraries() {
  std::vector<Library> libraries;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        Library library;
        library.path = info->dlpi_name;
        library.load_bias = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          uint64_t begin = info->dlpi_addr + segment.p_vaddr;
          if (!library.begin || begin < library.begin) library.begin = begin;
          library.end = std::max(library.end, begin + segment.p_memsz);
        }
        library.build_id = read_build_id(*info);
        if (library.path.empty()) {  // the program itself
          char path[4096];
          ssize_t size = readlink("/proc/self/exe", path, sizeof path);
          if (size > 0) library.path.assign(path, size_t(size));
        }
        static_cast<std::vector<Library>*>(out)->push_back(std::move(library));
        return 0;
      },
      &libraries);
  return libraries;
}

Library find_library(std::string_view file_name) {
  for (auto& library : loaded_libraries())
    if (base_name(library.path) == file_name) return library;
  return {};
}

namespace {

bool for_each_symbol(const std::string& path, int type, const SeeFunction& see) {
  MappedFile file(path);
  auto* header = reinterpret_cast<const ElfW(Ehdr)*>(file.range(0, sizeof(ElfW(Ehdr))));
  if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file.range(header->e_shoff, uint64_t(header->e_shnum) * sizeof(ElfW(Shdr))));
  if (!sections) return false;
  const ElfW(Shdr)* table = nullptr;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type == SHT_SYMTAB) table = &sections[i];
    if (sections[i].sh_type == SHT_DYNSYM && !table) table = &sections[i];
  }
  if (!table || table->sh_link >= header->e_shnum) return false;
  const auto& strings = sections[table->sh_link];
  auto* symbols = reinterpret_cast<const ElfW(Sym)*>(file.range(table->sh_offset, table->sh_size));
  auto* names = file.range(strings.sh_offset, strings.sh_size);
  if (!symbols || !names) return false;
  for (size_t i = 0; i < table->sh_size / sizeof(ElfW(Sym)); ++i) {
    const auto& symbol = symbols[i];
    if ((symbol.st_info & 15) == type && symbol.st_value && symbol.st_name < strings.sh_size)
      see(names + symbol.st_name, symbol.st_value, symbol.st_size);
  }
  return true;
}

}  // namespace

bool for_each_function(const std::string& path, const SeeFunction& see) { return for_each_symbol(path, STT_FUNC, see); }

void* find_variable(std::string_view library_file_name, std::string_view name, size_t size) {
  Library library = find_library(library_file_name);
  uint64_t found = 0;
  if (library.path.empty()) return nullptr;
  for_each_symbol(library.path, STT_OBJECT, [&](const char* symbol, uint64_t address, uint64_t bytes) {
    if (bytes == size && name == symbol) found = library.load_bias + address;
  });
  return reinterpret_cast<void*>(found);
}

void** find_plt_slot(std::string_view library_file_name, const char* symbol) {
  struct Search {
    std::string_view library;
    const char* symbol;
    void** slot = nullptr;
  } search{library_file_name, symbol};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (base_name(info->dlpi_name) != wanted.library) return 0;
        const ElfW(Dyn)* dynamic = nullptr;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        const ElfW(Sym)* symbols = nullptr;
        const char* names = nullptr;
        const ElfW(Rela)* relocations = nullptr;
        size_t bytes = 0;
        for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
          if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(dynamic->d_un.d_ptr);
          if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
          if (dynamic->d_tag == DT_JMPREL) relocations = reinterpret_cast<const ElfW(Rela)*>(dynamic->d_un.d_ptr);
          if (dynamic->d_tag == DT_PLTRELSZ) bytes = dynamic->d_un.d_val;
        }
        if (!symbols || !names || !relocations) return 1;
        for (size_t i = 0; i < bytes / sizeof(ElfW(Rela)); ++i) {
          const auto& symbol_of = symbols[ELF64_R_SYM(relocations[i].r_info)];
          if (strcmp(names + symbol_of.st_name, wanted.symbol) == 0)
            wanted.slot = reinterpret_cast<void**>(info->dlpi_addr + relocations[i].r_offset);
        }
        return 1;
      },
      &search);
  return search.slot;
}

namespace {

const uint64_t kPage = uint64_t(sysconf(_SC_PAGESIZE));  // of this kernel

// Whether the loader made this page read-only when it had filled it in. /proc may be missing, or no descriptor be left to read it.
bool is_read_only(uint64_t page) {
  auto look = [](dl_phdr_info* info, size_t, void* data) {
    uint64_t wanted = *static_cast<uint64_t*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      uint64_t begin = info->dlpi_addr + segment.p_vaddr, end = begin + segment.p_memsz;
      if (segment.p_type == PT_GNU_RELRO && begin / kPage * kPage <= wanted && wanted < end / kPage * kPage) return 1;
    }
    return 0;
  };
  return dl_iterate_phdr(look, &page) != 0;
}

}  // namespace

bool write_plt_slot(void** slot, void* value) {
  uint64_t page = reinterpret_cast<uint64_t>(slot) / kPage * kPage;
  if (mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref<void*>(*slot).store(value, std::memory_order_release);
  if (is_read_only(page)) mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ);
  return true;
}

}  // namespace tracer::native
