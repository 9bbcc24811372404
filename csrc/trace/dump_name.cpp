#include "dump_name.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace tracer::trace {
namespace {

constexpr char kSuffix[] = ".trace";
constexpr char kMark[] = ".dump";
constexpr size_t kSuffixLength = sizeof kSuffix - 1, kMarkLength = sizeof kMark - 1;
constexpr int kDigits = 4;  // more where the number needs them

// As the kernel writes it: readdir() may not be called in a signal handler.
struct Entry {
  uint64_t inode;
  int64_t next;
  unsigned short bytes;
  unsigned char type;
  char name[];
};

alignas(Entry) char entries[1 << 15];

size_t stem_of(const char* source) {
  size_t length = strlen(source);
  bool suffixed = length >= kSuffixLength && memcmp(source + length - kSuffixLength, kSuffix, kSuffixLength) == 0;
  return suffixed ? length - kSuffixLength : length;
}

// The number in `NAME.dump0012.trace` or `NAME.dump0012.trace.xz`; 0: it is no such name.
unsigned number_in(const char* file, const char* name, size_t length) {
  if (strncmp(file, name, length) != 0 || strncmp(file + length, kMark, kMarkLength) != 0) return 0;
  unsigned number = 0;
  const char* digit = file + length + kMarkLength;
  for (; *digit >= '0' && *digit <= '9'; ++digit) {
    number = number * 10 + unsigned(*digit - '0');
    if (number > kMostDumps) return 0;
  }
  return strncmp(digit, kSuffix, kSuffixLength) == 0 ? number : 0;
}

}  // namespace

bool name_dump(char (&path)[PATH_MAX], const char* source, unsigned number) {
  size_t stem = stem_of(source);
  char digits[12];
  char* begin = digits + sizeof digits;
  for (int count = 0; count < kDigits || number; ++count, number /= 10) *--begin = char('0' + number % 10);
  size_t length = size_t(digits + sizeof digits - begin);
  if (stem + kMarkLength + length + sizeof kSuffix > sizeof path) return false;
  memcpy(path, source, stem);
  memcpy(path + stem, kMark, kMarkLength);
  memcpy(path + stem + kMarkLength, begin, length);
  memcpy(path + stem + kMarkLength + length, kSuffix, sizeof kSuffix);
  return true;
}

unsigned last_dump(const char* source) {
  const char* slash = strrchr(source, '/');
  if (!slash) return 0;
  char folder[PATH_MAX];
  size_t length = slash == source ? 1 : size_t(slash - source);
  memcpy(folder, source, length);
  folder[length] = '\0';
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t stem = stem_of(slash + 1);
  unsigned last = 0;
  for (long bytes; (bytes = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < bytes;) {
      auto* entry = reinterpret_cast<const Entry*>(entries + at);
      unsigned number = number_in(entry->name, slash + 1, stem);
      if (number > last) last = number;
      at += entry->bytes;
    }
  }
  close(fd);
  return last;
}

}  // namespace tracer::trace
