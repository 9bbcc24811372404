#include "program_starts.h"

#include <Python.h>
#include <dlfcn.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstring>
#include <string_view>

#include "mapping.h"
#include "native/elf.h"
#include "trace/recording.h"

namespace tracer {
namespace {

// Shared with forked children, and leaked: between a fork and its exec nothing else of theirs reaches this process.
std::atomic<uint32_t>* not_joined = nullptr;

constexpr std::string_view kInvitation = "TRACER_JOIN=", kSession = "\"session\": ";

std::string_view base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// -I and -E: it ignores the environment. -S: it reads no start-up files. As tracer/base/interpreter.py reads options.
bool ignores_us(char* const argv[]) {
  for (size_t i = 1; argv[0] && argv[i]; ++i) {
    std::string_view word = argv[i];
    if (word.size() < 2 || word[0] != '-' || word == "--") return false;
    if (word == "--check-hash-based-pycs" && !argv[++i]) return false;
    if (word[1] == '-') continue;
    for (size_t at = 1; at < word.size(); ++at) {
      char letter = word[at];
      if (letter == 'I' || letter == 'E' || letter == 'S') return true;
      if (letter == 'c' || letter == 'm') return false;
      if (letter != 'W' && letter != 'X') continue;
      if (at + 1 == word.size() && !argv[++i]) return false;
      break;
    }
  }
  return false;
}

// Whether the variables have the invitation of this recording: a JSON object with its session.
bool has_invitation(char* const variables[], uint64_t session) {
  for (; variables && *variables; ++variables) {
    std::string_view text = *variables;
    if (!text.starts_with(kInvitation)) continue;
    size_t at = text.find(kSession);
    uint64_t found = 0;
    if (at == text.npos) return false;
    return std::from_chars(text.data() + at + kSession.size(), text.data() + text.size(), found).ec == std::errc() && found == session;
  }
  return false;
}

// Runs between vfork and exec too, and in a process whose parent stops: system calls and this memory only.
bool cannot_join(const char* path, char* const argv[], char* const variables[]) {
  trace::TraceFile* file = trace::recording_file();
  if (!file || !path || !argv || !base_name(path).starts_with("python")) return false;
  return ignores_us(argv) || !has_invitation(variables, file->header().session);
}

// Counted before: a program that begins does not come back.
template <class Start>
int replaced_by(const char* path, char* const argv[], char* const variables[], Start start) {
  bool counts = cannot_join(path, argv, variables);
  if (counts) ++*not_joined;
  int result = start();
  if (counts) --*not_joined;
  return result;
}

int on_execve(const char* path, char* const argv[], char* const variables[]) {
  return replaced_by(path, argv, variables, [=] { return execve(path, argv, variables); });
}

int on_execv(const char* path, char* const argv[]) {
  return replaced_by(path, argv, environ, [=] { return execv(path, argv); });
}

int on_fexecve(int descriptor, char* const argv[], char* const variables[]) {
  char link[32], path[PATH_MAX + 1] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (ssize_t bytes = readlink(link, path, PATH_MAX); bytes >= 0) path[bytes] = 0;
  return replaced_by(path, argv, variables, [=] { return fexecve(descriptor, argv, variables); });
}

int on_posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                   char* const argv[], char* const variables[]) {
  int error = posix_spawn(pid, path, actions, attributes, argv, variables);
  if (!error && cannot_join(path, argv, variables)) ++*not_joined;
  return error;
}

int on_posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                    char* const argv[], char* const variables[]) {
  int error = posix_spawnp(pid, file, actions, attributes, argv, variables);
  if (!error && cannot_join(file, argv, variables)) ++*not_joined;
  return error;
}

void take_slots(std::string_view library) {
  const std::pair<const char*, void*> taken[] = {
      {"execve", reinterpret_cast<void*>(on_execve)},
      {"fexecve", reinterpret_cast<void*>(on_fexecve)},
      {"execv", reinterpret_cast<void*>(on_execv)},
      {"posix_spawn", reinterpret_cast<void*>(on_posix_spawn)},
      {"posix_spawnp", reinterpret_cast<void*>(on_posix_spawnp)},
  };
  for (auto [symbol, ours] : taken) {
    void** slot = native::find_plt_slot(library, symbol);
    if (slot && *slot != ours) native::write_plt_slot(slot, ours);
  }
}

}  // namespace

void follow_starts(const std::vector<std::string>& libraries) {
  if (!not_joined) {
    void* page = map_file(-1, 0, sizeof *not_joined, kReadWrite, MAP_SHARED | MAP_ANONYMOUS);
    if (!page) return;
    not_joined = new (page) std::atomic<uint32_t>;
    take_slots("");  // the program itself, where Python is no library
    Dl_info python;
    if (dladdr(reinterpret_cast<void*>(&Py_BytesMain), &python) && python.dli_fname) take_slots(base_name(python.dli_fname));
  }
  for (const std::string& library : libraries) take_slots(library);
  not_joined->store(0);
}

uint32_t starts_not_joined() { return not_joined ? not_joined->load() : 0; }

}  // namespace tracer
