// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/transfer_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

constexpr std::chrono::milliseconds kBetweenDraws{100};
constexpr std::chrono::seconds kBetweenLines{5};
constexpr std::chrono::seconds kRateWindow{8};

}  // namespace

TransferLine::TransferLine() : redraw_(can_redraw()), last_(redraw_ ? Clock::time_point() : Clock::now()) {}
TransferLine::~TransferLine() { clear(); }

void TransferLine::update(const std::string& name, std::int64_t done, std::int64_t total) {
  const auto now = Clock::now();
  if (!samples_.empty() && done < samples_.back().second) samples_.clear();  // it began again
  if (samples_.empty() || now - samples_.back().first >= kBetweenDraws) samples_.emplace_back(now, done);
  while (samples_.size() > 2 && now - samples_.front().first > kRateWindow) samples_.pop_front();
  if (now - last_ < (redraw_ ? Clock::duration(kBetweenDraws) : Clock::duration(kBetweenLines))) return;
  last_ = now;

  const double seconds = std::chrono::duration<double>(now - samples_.front().first).count();
  const double rate = seconds > 0 ? static_cast<double>(done - samples_.front().second) / seconds : 0;  // bytes/s
  std::string text = size(static_cast<double>(done));
  if (total > 0) {
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    text = fmt::format("{:3.0f} %  {} of {}", 100 * std::min(1.0, fraction), text, size(static_cast<double>(total)));
  }
  if (rate > 0) text += fmt::format("  {}/s", size(rate));
  if (rate > 0 && total > done)
    text += fmt::format("  {} left", duration(1000 * static_cast<double>(total - done) / rate));
  const std::string file = printable(name, Lines::fold, !terminal_is_utf8());
  if (!redraw_) return note(fmt::format("{}  {}\n", text, file));
  drawn_ = true;
  note("\r\x1b[K" + head(fmt::format("{}  {}", text, file), terminal_size().columns - 1));
}

void TransferLine::say(const std::string& text) {
  clear();
  note(printable(text, Lines::keep, !terminal_is_utf8()) + "\n");
}

void TransferLine::clear() {
  if (drawn_) note("\r\x1b[K");
  drawn_ = false;
}

}  // namespace baton::cli
