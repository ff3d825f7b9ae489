// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/whole_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <mutex>
#include <system_error>

#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"

namespace baton::cli {
namespace fs = std::filesystem;
void write_aside(const fs::path& path, const std::function<void(const fs::path& aside)>& write,
                 const std::function<void(const fs::path& aside)>& remove) {
  const fs::path aside = path.parent_path() / fmt::format(".{}.part-{}", path.filename().string(), process_number());
  // Writing and removing exclude each other; after the last words nothing is written any more, for the program ends.
  std::mutex writing;
  const LastWords words([&] {
    writing.lock();
    remove(aside);
  });
  const std::lock_guard lock(writing);
  try {
    remove(aside);
    write(aside);
  } catch (...) {
    remove(aside);
    throw;
  }
}

int write_new_file(const fs::path& path, std::string_view bytes) {
  UniqueFd file = open_file(path, Open::write | Open::create | Open::only_new | Open::no_link);
  return file && write_all(file, bytes) && file.close() ? 0 : errno;
}

void write_whole_file(const fs::path& path, std::string_view bytes) {
  const auto write = [&](const fs::path& aside) {
    std::error_code error(write_new_file(aside, bytes), std::generic_category());
    if (!error) fs::rename(aside, path, error);
    if (error) throw Failure(kRunFailed, fmt::format("cannot write {}: {}", path.string(), error.message()));
  };
  write_aside(path, write, [](const fs::path& aside) {
    std::error_code ignored;
    fs::remove(aside, ignored);
  });
}

}  // namespace baton::cli
