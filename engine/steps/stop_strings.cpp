// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/stop_strings.h"

#include <algorithm>
#include <utility>

namespace baton {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopStrings::push(std::string_view text) {
  if (found_) return {};
  held_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  std::size_t certain = first;
  if (first != std::string::npos) {
    found_ = true;
  } else {
    std::size_t keep = 0;  // length of the longest suffix that begins a stop string
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
        if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
      }
    }
    certain = held_.size() - keep;
  }
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
