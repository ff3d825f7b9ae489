// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simt/shadow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tests/support/simt/code_place.h"

namespace baton::simt {
namespace {

constexpr int kLanes = 32;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

Shadow& shadow() {
  static Shadow one;
  return one;
}

bool Shadow::is_possible() {
  static const bool is_off = [] {
    const char* value = std::getenv("BATON_TEST_SHADOW");
    return value != nullptr && std::string_view(value) == "off";
  }();
  return is_enabled_ && !is_off;
}

void Shadow::restart() {
  spaces_.clear();
  allocations_.clear();
}

void Shadow::add_space(const void* begin, std::size_t bytes) { spaces_.emplace_back(address(begin), bytes); }

Shadow::Place Shadow::find(const void* memory) {
  const std::uintptr_t at = address(memory);
  if (shared_.holds(at)) return {&shared_, at - shared_.begin()};
  for (ShadowMemory& space : spaces_) {
    if (space.holds(at)) return {&space, at - space.begin()};
  }
  return {};
}

void Shadow::allocated(const void* memory, std::size_t bytes) {
  if (!is_possible()) return;
  const Place place = find(memory);
  if (place.memory == nullptr) return;
  place.memory->add(place.offset, bytes);
  allocations_[address(memory)] = bytes;
}

void Shadow::written(const void* memory, std::size_t bytes) {
  if (!is_possible()) return;
  const Place place = find(memory);
  if (place.memory != nullptr && bytes > 0 && place.memory->is_usable(place.offset, bytes))
    place.memory->reset(place.offset, bytes, {.time = now_});
}

void Shadow::copied(const void* to, const void* from, std::size_t bytes) {
  if (!is_possible()) return;
  const Place source = find(from), target = find(to);
  if (source.memory == nullptr || target.memory == nullptr || bytes == 0) return;
  if (!source.memory->is_usable(source.offset, bytes) || !target.memory->is_usable(target.offset, bytes)) return;
  std::vector<std::pair<std::size_t, bool>> runs;  // where bytes begin that were written, or were not
  source.memory->visit(source.offset, bytes, [&](const Cell& cell, std::size_t offset) {
    const bool is_written = cell.write.time != 0;
    if (runs.empty() || runs.back().second != is_written) runs.emplace_back(offset - source.offset, is_written);
  });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t end = i + 1 < runs.size() ? runs[i + 1].first : bytes;
    target.memory->reset(target.offset + runs[i].first, end - runs[i].first,
                         runs[i].second ? Stamp{.time = now_} : Stamp{});
  }
}

std::string Shadow::unwritten(const void* memory, std::size_t bytes) {
  if (!is_possible()) return "";
  const Place place = find(memory);
  if (place.memory == nullptr || bytes == 0 || !place.memory->is_usable(place.offset, bytes)) return "";
  std::string found;
  place.memory->visit(place.offset, bytes, [&](const Cell& cell, std::size_t offset) {
    if (cell.write.time == 0 && found.empty()) found = describe({place.memory, offset});
  });
  return found;
}

void Shadow::begin_launch(const Launch& launch) {
  if (now_ > UINT32_MAX / 2) throw std::length_error("the shadow memory's clock ends: run fewer tests in a process");
  launch_ = launch;
  report_.clear();
  warp_barriers_.resize((launch.threads + kLanes - 1) / kLanes);
  blocks_.clear();
  launch_begun_ = ++now_;
  is_watching_ = is_possible();
  if (!is_watching_) return;
  watched_[0] = {address(launch.shared), launch.shared_bytes + launch.guard_bytes};
  for (const ShadowMemory& space : spaces_) {
    const std::uintptr_t begin = watched_[1].bytes == 0 ? space.begin() : std::min(watched_[1].begin, space.begin());
    watched_[1] = {begin, std::max(watched_[1].begin + watched_[1].bytes, space.end()) - begin};
  }
}

void Shadow::end_launch() {
  is_watching_ = false;
  watched_ = {};
}

void Shadow::begin_block() {
  if (!is_watching_) return;
  shared_ = ShadowMemory(address(launch_.shared), launch_.shared_bytes + launch_.guard_bytes);
  shared_.add(0, launch_.shared_bytes);
  block_begun_ = barrier_ = ++now_;
  warp_barriers_.assign(warp_barriers_.size(), now_);
  blocks_.push_back(now_);
}

void Shadow::block_barrier() { barrier_ = ++now_; }

void Shadow::warp_barrier() {
  if (is_watching_) warp_barriers_[thread_ / kLanes] = ++now_;
}

bool Shadow::is_before(const Stamp& stamp, const Stamp& own) const {
  if (stamp.time < launch_begun_) return true;
  if (stamp.time < block_begun_) return false;
  return stamp.thread == own.thread || stamp.time < barrier_ ||
         (stamp.thread / kLanes == own.thread / kLanes && stamp.time < warp_barriers_[own.thread / kLanes]);
}

/// How many of the barriers to come would order an access with `stamp` but not with `own`, which is newer: 0 none.
int Shadow::concurrency(const Stamp& stamp, const Stamp& own) const {
  if (is_before(stamp, own)) return 0;
  if (stamp.time < block_begun_) return 3;
  return stamp.thread / kLanes != own.thread / kLanes ? 2 : 1;
}

void Shadow::access_by_lane(int lane, const void* memory, std::size_t bytes, const void* code) {
  if (!is_watching_) return;
  const int first = thread_ / kLanes * kLanes;
  access_as(static_cast<std::uint16_t>(first + lane), memory, bytes, Touch::read, code);
}

void Shadow::access_as(std::uint16_t thread, const void* memory, std::size_t bytes, Touch touch, const void* code) {
  access_at(memory, bytes, touch,
            {.time = now_, .code = code_offset(code), .thread = thread, .atomic = touch == Touch::atomic});
}

void Shadow::access_at(const void* memory, std::size_t bytes, Touch touch, const Stamp& own) {
  const Place place = find(memory);
  if (place.memory == nullptr || bytes == 0) return;
  if (!place.memory->is_usable(place.offset, bytes)) {
    return mistake(fmt::format("{} {} {}, outside of it: {}", thread_of(own), touch == Touch::read ? "reads" : "writes",
                               describe(place), code_place(own.code)));
  }
  place.memory->visit(place.offset, bytes, [&](Cell& cell, std::size_t offset) {
    if (is_watching_) access_cell(cell, touch, own, {place.memory, offset});
  });
}

void Shadow::access_cell(Cell& cell, Touch touch, const Stamp& own, const Place& place) {
  const bool writes = touch != Touch::read;
  const Stamp newest = cell.others[0];
  if (newest.time == own.time && newest.thread == own.thread && newest.atomic == own.atomic && touch != Touch::write)
    return;
  if (cell.write.time == 0) {
    if (touch != Touch::write) {
      mistake(fmt::format("{} reads {}, which nothing has written: {}", thread_of(own), describe(place),
                          code_place(own.code)));
    }
  } else if (cell.write.pending) {
    mistake(fmt::format("{} {} {} while the copy by {} to it is not waited for: {}; the copy: {}", thread_of(own),
                        writes ? "writes" : "reads", describe(place), thread_of(cell.write), code_place(own.code),
                        code_place(cell.write.code)));
  } else if (!is_before(cell.write, own)) {
    conflict(place, cell.write, true, own, writes);
  }
  for (const Stamp& other : cell.others) {
    if (is_watching_ && other.time != 0 && (touch == Touch::write || other.atomic != own.atomic) &&
        !is_before(other, own))
      conflict(place, other, other.atomic, own, writes);
  }
  if (touch == Touch::write) {
    cell = {.write = own};
    return;
  }
  // Atomic operations are remembered as reads are, because they are concurrent with one another; but all of them are
  // before what follows here, and the newest of them stands for them as a write does.
  if (newest.time != 0 && newest.atomic != own.atomic) {
    if (newest.atomic) cell.write = newest;
    cell.others = {};
  }
  if (cell.write.time == 0) cell.write = own;
  remember(cell, own);
}

/// Which accesses a later write conflicts with is decided by two of them: the newest, and of those that are concurrent
/// with it one of another block, else one of another warp, else one of another thread.
void Shadow::remember(Cell& cell, const Stamp& own) const {
  if (concurrency(cell.others[0], own) >= concurrency(cell.others[1], own)) cell.others[1] = cell.others[0];
  cell.others[0] = own;
}

Stamp Shadow::begin_copy(const void* to, const void* from, std::size_t bytes, const void* code) {
  if (!is_watching_) return {};
  Stamp own{.time = ++now_, .code = code_offset(code), .thread = thread_};
  if (from != nullptr) access_at(from, bytes, Touch::read, own);
  own.pending = true;
  access_at(to, bytes, Touch::write, own);
  return own;
}

void Shadow::end_copy(Stamp begun, const void* to, const void* from, std::size_t bytes) {
  if (!is_watching_) return;
  const std::uint32_t time = std::exchange(begun.time, now_);
  begun.pending = false;
  if (const Place source = find(from); source.memory != nullptr) {
    source.memory->visit(source.offset, bytes, [&](Cell& cell, std::size_t offset) {
      if (cell.write.time >= time && is_watching_) conflict({source.memory, offset}, cell.write, true, begun, false);
      remember(cell, begun);
    });
  }
  if (const Place target = find(to); target.memory != nullptr) {
    target.memory->visit(target.offset, bytes, [&](Cell& cell, std::size_t) {
      if (cell.write.time == time) cell.write = begun;
    });
  }
}

std::string Shadow::describe(const Place& place) const {
  if (is_shared(place)) return fmt::format("byte {} of {} of shared memory", place.offset, launch_.shared_bytes);
  const std::uintptr_t at = place.memory->begin() + place.offset;
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin()) return fmt::format("address {:#x}", at);
  --found;
  return fmt::format("byte {} of an allocation of {} bytes", at - found->first, found->second);
}

std::string Shadow::thread_of(const Stamp& stamp) const {
  if (stamp.time >= block_begun_) return fmt::format("thread {}", stamp.thread);
  const auto index =
      static_cast<unsigned>(std::upper_bound(blocks_.begin(), blocks_.end(), stamp.time) - blocks_.begin() - 1);
  const auto [x, y, z] = launch_.grid;
  return fmt::format("thread {} of block {}, {}, {}", stamp.thread, index % x, index / x % y, index / x / y);
}

void Shadow::conflict(const Place& place, const Stamp& before, bool before_writes, const Stamp& own, bool own_writes) {
  mistake(fmt::format("{} {} and {} {} {}, and no barrier orders them: {}; {}", thread_of(before),
                      before_writes ? "writes" : "reads", thread_of(own), own_writes ? "writes" : "reads",
                      describe(place), code_place(before.code), code_place(own.code)));
}

void Shadow::mistake(const std::string& what) {
  end_launch();  // the first mistake counts
  const auto index = static_cast<unsigned>(blocks_.size() - 1);
  const auto [x, y, z] = launch_.grid;
  const std::string kernel = launch_.kernel == nullptr ? "a kernel" : function_at(code_offset(launch_.kernel));
  report_ = fmt::format("{}, block {}, {}, {}: {}", kernel, index % x, index / x % y, index / x / y, what);
}

}  // namespace baton::simt
