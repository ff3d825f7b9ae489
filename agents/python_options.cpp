// SPDX-License-Identifier: Apache-2.0
#include "agents/python_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "engine/base/quantity.h"
#include "engine/base/system/folders.h"
#include "engine/base/system/process.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// True for an executable that is not a script. The shims of version managers are scripts that start other processes to
/// find the interpreter, which the sandbox denies.
bool is_program(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || !is_executable(path)) return false;
  char begin[2] = {};
  std::ifstream(path, std::ios::binary).read(begin, 2);
  return std::string_view(begin, 2) != "#!";
}

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? fs::absolute(name) : fs::path();
  const char* search = std::getenv("PATH");
  for (const std::string& folder : folders_of_list(search == nullptr ? "/usr/bin:/bin" : search)) {
    const fs::path candidate = fs::path(folder) / name;
    if (candidate.is_absolute() && is_program(candidate)) return candidate;
  }
  return {};
}

/// True for a folder with a Python library: python3.11/, for example.
bool holds_python(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    if (error) return false;
    if (entry->path().filename().string().starts_with("python3") && entry->is_directory(error)) return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& option, std::string_view expected, const std::string& found) {
  throw std::invalid_argument(fmt::format("{}: expected {}, found '{}'", option, expected, found));
}

}  // namespace

PythonOptions parse_python_options(const std::map<std::string, std::string>& options,
                                   std::chrono::milliseconds default_timeout) {
  PythonOptions parsed;
  parsed.timeout = default_timeout;
  std::string interpreter = "python3";
  for (const auto& [name, text] : options) {
    if (name == "timeout") {
      const auto value = parse_duration(text);
      if (!value || value->count() == 0) refuse(name, kPositiveDurationForm, text);
      parsed.timeout = *value;
    } else if (name == "memory") {
      const auto value = parse_size(text);
      if (!value || *value == 0) refuse(name, kSizeForm, text);
      parsed.memory_bytes = *value;
    } else if (name == "interpreter") {
      interpreter = text;
    } else if (name == "before") {
      parsed.before = text;
    } else if (name == "after") {
      parsed.after = text;
    } else {
      throw std::invalid_argument(
          fmt::format("unknown option '{}'; expected timeout, memory, interpreter, before or after", name));
    }
  }
  parsed.interpreter = find_program(interpreter);
  if (parsed.interpreter.empty())
    throw std::invalid_argument(
        fmt::format("interpreter: no program '{}' was found (scripts do not count)", interpreter));
  return parsed;
}

std::vector<fs::path> python_files(const fs::path& interpreter) {
  std::vector<fs::path> files;
  std::error_code error;
  const auto add_installation = [&](const fs::path& program) {
    const fs::path prefix = program.parent_path().parent_path();
    files.push_back(program);
    if (fs::exists(prefix / "pyvenv.cfg", error)) files.push_back(prefix / "pyvenv.cfg");
    for (const char* name : {"lib", "lib64"}) {
      if (holds_python(prefix / name)) files.push_back(prefix / name);
    }
  };
  constexpr int kMaxLinks = 40;  // as in the kernel
  fs::path program = interpreter;
  for (int link = 0; link < kMaxLinks; ++link) {
    add_installation(program);
    if (!fs::is_symlink(program, error)) break;
    program = (program.parent_path() / fs::read_symlink(program, error)).lexically_normal();
    if (error) break;
  }
  program = fs::canonical(interpreter, error);
  if (!error) add_installation(program);
  return files;
}

}  // namespace baton
