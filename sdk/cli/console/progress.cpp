// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/progress.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Work {
  std::string path;
  Clock::time_point begin, next;
  bool shown = false;
};

}  // namespace

std::function<void(const std::string& path, double fraction)> progress_line(std::string doing) {
  return [doing = std::move(doing), redraws = can_redraw(), work = std::make_shared<Work>()](const std::string& path,
                                                                                             double fraction) {
    const std::string name = printable(std::filesystem::path(path).filename().string(), Lines::fold);
    if (redraws) {
      const std::string line = fmt::format("{} {:3.0f} % {}", doing, 100 * fraction, name);
      note("\r\x1b[K" + (fraction < 1 ? head(line, terminal_size().columns - 1) : std::string()));
      return;
    }
    const Clock::time_point now = Clock::now();
    if (work->path != path) *work = {path, now, now + std::chrono::seconds(1), false};
    if (fraction < 1 && now >= work->next) {
      note(fmt::format("{} {}: {:.0f} %\n", doing, name, 100 * fraction));
      work->shown = true;
      work->next = now + std::chrono::seconds(5);
    }
    if (fraction < 1) return;
    const double seconds = std::chrono::duration<double>(now - work->begin).count();
    if (work->shown) note(fmt::format("{} {}: done in {:.1f} s\n", doing, name, seconds));
    *work = {};
  };
}

}  // namespace baton::cli
