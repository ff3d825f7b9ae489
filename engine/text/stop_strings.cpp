// SPDX-License-Identifier: Apache-2.0
#include "engine/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace baton {

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    Stop stop{text, std::vector<std::uint32_t>(text.size(), 0), 0};
    for (std::size_t i = 1; i < text.size(); ++i) {
      std::uint32_t length = stop.border[i - 1];
      while (length > 0 && text[i] != text[length]) length = stop.border[length - 1];
      stop.border[i] = length + (text[i] == text[length] ? 1 : 0);
    }
    stops_.push_back(std::move(stop));
  }
}

/// True when the byte completes the string.
bool StopStrings::Stop::take(char byte) {
  while (matched > 0 && byte != text[matched]) matched = border[matched - 1];
  if (byte == text[matched]) ++matched;
  return matched == text.size();
}

std::string StopStrings::push(std::string_view text) {
  if (found_) return {};
  const std::size_t before = held_.size();
  held_ += text;
  std::size_t certain = std::string::npos, keep = 0;
  for (Stop& stop : stops_) {
    for (std::size_t i = before; i < held_.size(); ++i) {
      if (!stop.take(held_[i])) continue;
      found_ = true;
      certain = std::min(certain, i + 1 - stop.text.size());
      break;
    }
    keep = std::max(keep, stop.matched);
  }
  if (!found_) certain = held_.size() - keep;
  std::string out = held_.substr(0, certain);
  held_ = found_ ? std::string() : held_.substr(certain);
  released_ += out.size();
  return out;
}

std::string StopStrings::finish() {
  released_ += held_.size();
  return std::exchange(held_, {});
}

}  // namespace baton
