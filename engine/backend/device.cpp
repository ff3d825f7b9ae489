// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/device.h"

#include <cstring>

#include "engine/base/clock.h"

namespace baton {

std::string BackendInfo::description() const {
  return name + ": " + device + (fallback.empty() ? "" : " (" + fallback + ")");
}

void Device::run_step(const std::function<void()>& work, bool /*repeats*/) { work(); }

void Device::clear(std::byte* out, std::size_t bytes) { std::memset(out, 0, bytes); }

TransferId Device::upload(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes) {
  std::memcpy(device.data() + begin, host.data() + begin, bytes);
  return 0;
}

TransferId Device::download(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes) {
  std::memcpy(host.data() + begin, device.data() + begin, bytes);
  return 0;
}

void Device::follow(TransferId /*transfer*/) {}

void Device::mark() { marks_.push_back(std::chrono::steady_clock::now()); }

std::vector<double> Device::take_marks() {
  std::vector<double> between;
  for (std::size_t i = 1; i < marks_.size(); ++i) between.push_back(milliseconds(marks_[i] - marks_[i - 1]));
  marks_.clear();
  return between;
}

}  // namespace baton
