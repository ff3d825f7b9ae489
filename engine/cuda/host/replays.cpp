// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/replays.h"

#include <algorithm>
#include <cstring>

namespace baton::cuda {
namespace {

// A graph holds a few hundred launches. A batch has as many forms as sequences while it grows and shrinks.
constexpr std::size_t kMaxKnownSteps = 96;

/// Sets a flag to true for the lifetime of the object.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

}  // namespace

Stream Replays::stream() {
  Stream stream = runtime_.stream();
  if (logging_) stream.log = &log_;
  return stream;
}

void Replays::multiply(const Product& p) {
  if (logging_) {
    log_.add(p.out, p.out_stride, p.x, p.x_stride, p.w, p.w_stride, p.bias, p.t, p.n, p.c, p.dtype, p.out_dtype);
  } else {
    runtime_.multiply(p);
  }
}

void Replays::run(const std::function<void()>& work) {
  log_launches(work);
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) { return is_logged(known); });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    Known& known = *found;
    if (known.graph == nullptr && known.fixed) {
      // The second log shows whether the arrays are all on the device now: nothing may be uploaded and no address
      // change.
      const std::uint64_t sent = staging_.sent();
      log_launches(work);
      known.fixed = staging_.sent() == sent && is_logged(known);
      try {
        if (known.fixed) known.graph = capture(work);
      } catch (const BackendError&) {  // the device cannot capture it: ordinary launches do the same work
        known.fixed = false;
      }
    }
    if (known.graph != nullptr) return runtime_.replay(*known.graph);
  } else {
    if (known_.size() >= kMaxKnownSteps) known_.pop_back();
    known_.push_front({{log_.bytes().begin(), log_.bytes().end()}, nullptr, true});
  }
  staging_.begin_step();
  work();
}

bool Replays::is_logged(const Known& known) const {
  const std::span<const std::byte> log = log_.bytes();
  return known.log.size() == log.size() && std::memcmp(known.log.data(), log.data(), log.size()) == 0;
}

void Replays::log_launches(const std::function<void()>& work) {
  log_.clear();
  staging_.begin_step();
  const Raised logging(logging_);
  work();
}

std::unique_ptr<Graph> Replays::capture(const std::function<void()>& work) {
  staging_.begin_step();
  const Raised capturing(capturing_);
  runtime_.begin_capture();
  try {
    work();
  } catch (...) {
    runtime_.end_capture();
    throw;
  }
  return runtime_.end_capture();
}

}  // namespace baton::cuda
