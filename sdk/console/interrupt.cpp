// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/interrupt.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "engine/base/system/terminal.h"
#include "sdk/console/terminal.h"

namespace baton::cli {
namespace {

struct Watch {
  std::stop_source stop;
  std::atomic<bool> obeyed = false;  // something asks for the token
  std::mutex mutex;
  std::vector<LastWords*> words;
  std::stop_source* one = nullptr;  // that of StopOne
  std::mutex writing;
};

Watch& watch() {
  static Watch& state = *new Watch;  // never destroyed: its thread lives until the process ends
  return state;
}

/// True when a StopOne takes it.
bool stops_one(Interrupt interrupt) {
  const std::lock_guard lock(watch().mutex);
  return interrupt == Interrupt::ctrl_c && watch().one != nullptr && watch().one->request_stop();
}

/// The first signal requests a stop, the second one ends the program; where nothing asks for stops, the first one does.
void wait_for_interrupts() {
  Watch& state = watch();
  while (stops_one(next_interrupt())) {
  }
  state.stop.request_stop();
  if (state.obeyed) next_interrupt();
  // A reader that does not read must not keep the program alive. (try_lock_for is unknown to the thread sanitizer.)
  for (int tries = 0; tries < 200 && !state.writing.try_lock(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::lock_guard lock(state.mutex);
  for (const auto* words : state.words) words->speak();
  std::_Exit(kInterrupted);  // not _exit, before which ThreadSanitizer flushes stdout and so waits for its reader
}

}  // namespace

void watch_interrupts() {
  catch_interrupts();
  try {
    std::thread(wait_for_interrupts).detach();
  } catch (const std::system_error&) {
    leave_interrupts();
  }
}

std::stop_token interrupted() {
  watch().obeyed = true;
  return watch().stop.get_token();
}

StopOne::StopOne() {
  const std::lock_guard lock(watch().mutex);
  watch().one = &stop_;
}
StopOne::~StopOne() {
  const std::lock_guard lock(watch().mutex);
  watch().one = nullptr;
}

Whole::Whole() { watch().writing.lock(); }
Whole::~Whole() { watch().writing.unlock(); }

LastWords::LastWords(std::function<void()> words) : words_(std::move(words)) {
  const std::lock_guard lock(watch().mutex);
  watch().words.push_back(this);
}

LastWords::~LastWords() {
  const std::lock_guard lock(watch().mutex);
  auto& all = watch().words;
  all.erase(std::find(all.begin(), all.end(), this));
}

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
