// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/base/system/process.h"
#include "engine/cpu/matmul.h"

namespace baton::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Blocks of at least this size come in pages, which the system zeroes on first touch and can back with huge pages.
constexpr std::size_t kMapped = 2 * kHugePage;
constexpr std::size_t kMapping = std::size_t{64} << 20;  // least size of a mapping of lasting blocks
constexpr std::size_t kMaxBytes = static_cast<std::size_t>(PTRDIFF_MAX) / 2;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Eight sizes for each power of two: a block fits many requests, and what it has too much is never touched.
std::size_t size_of_block(std::size_t bytes) { return round_up(bytes, std::max(std::bit_floor(bytes) / 8, kHugePage)); }

[[noreturn]] void fail(std::size_t bytes) {
  throw BackendError(fmt::format("cannot allocate {} bytes of memory", bytes));
}

void* small_block(std::size_t bytes) {
  void* data = ::operator new (std::max(bytes, kAlignment), std::align_val_t{kAlignment}, std::nothrow);
  return data != nullptr ? data : (fail(bytes), nullptr);
}

}  // namespace

BlockPool::~BlockPool() { drop_oldest(0); }

void* BlockPool::allocate_zeroed(std::size_t bytes) {
  if (bytes >= kMapped) return take(bytes, true);
  return std::memset(small_block(bytes), 0, bytes);
}

void* BlockPool::allocate(std::size_t bytes) { return bytes >= kMapped ? take(bytes, false) : small_block(bytes); }

void* BlockPool::take(std::size_t bytes, bool zeroed) {
  if (bytes > kMaxBytes) fail(bytes);
  const std::size_t size = size_of_block(bytes);
  const std::lock_guard lock(mutex_);
  try {
    kept_.reserve(kept_.size() + used_count_ + 1);  // so that `release` needs no memory
  } catch (const std::bad_alloc&) {
    fail(bytes);
  }
  const auto last = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Block& block) { return block.size == size; });
  void* data = nullptr;
  if (!zeroed && last != kept_.rend()) {
    data = last->data;
    kept_.erase(std::next(last).base());
    keeps_ -= size;
  } else {
    drop_oldest(used_peak_ > used_ + size ? used_peak_ - used_ - size : 0);
    data = map_pages(size, zeroed);
    if (data == nullptr && !kept_.empty()) {
      drop_oldest(0);
      data = map_pages(size, zeroed);
    }
    if (data == nullptr) fail(bytes);
  }
  ++used_count_;
  used_ += size;
  used_peak_ = std::max(used_peak_, used_);
  return data;
}

void BlockPool::release(void* data, std::size_t bytes) noexcept {
  if (bytes < kMapped) return ::operator delete (data, std::align_val_t{kAlignment});
  const std::size_t size = size_of_block(bytes);
  lend_pages(data, size);
  const std::lock_guard lock(mutex_);
  --used_count_;
  used_ -= size;
  keeps_ += size;
  kept_.push_back({data, size});
}

/// Unmaps kept blocks until they have at most `room` bytes.
void BlockPool::drop_oldest(std::size_t room) {
  std::size_t count = 0;
  for (; keeps_ > room; ++count) {
    keeps_ -= kept_[count].size;
    unmap_pages(kept_[count].data, kept_[count].size);
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
}

std::size_t BlockPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return keeps_;
}

LastingMemory::~LastingMemory() {
  for (const Mapping& mapping : mappings_) unmap_pages(mapping.begin, mapping.size);
}

Buffer LastingMemory::allocate(std::size_t bytes) {
  if (bytes > kMaxBytes) fail(bytes);
  const std::size_t needed = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const Mapping& mapping) { return mapping.size - mapping.used >= needed; };
  auto mapping = std::ranges::find_if(mappings_, fits);
  if (mapping == mappings_.end()) {
    const std::size_t least = round_up(needed, kHugePage);
    std::size_t size = std::max({least, kMapping, mapped_ / 2});  // few mappings: each wastes up to a huge page
    try {
      mappings_.reserve(mappings_.size() + 1);
    } catch (const std::bad_alloc&) {
      fail(bytes);
    }
    void* data = map_pages(size, true);
    if (data == nullptr && size > least) data = map_pages(size = least, true);
    if (data == nullptr) fail(bytes);
    mappings_.push_back({static_cast<std::byte*>(data), size});
    mapped_ += size;
    mapping = std::prev(mappings_.end());
  }
  std::byte* data = mapping->begin + mapping->used;
  mapping->used += needed;
  ++mapping->blocks;
  return {this, data, bytes};
}

void LastingMemory::release(void* data, std::size_t /*bytes*/) noexcept {
  const std::lock_guard lock(mutex_);
  const auto holds = [&](const Mapping& mapping) {
    return data >= mapping.begin && data < mapping.begin + mapping.used;
  };
  const auto mapping = std::ranges::find_if(mappings_, holds);
  if (--mapping->blocks > 0) return;
  unmap_pages(mapping->begin, mapping->size);
  mapped_ -= mapping->size;
  mappings_.erase(mapping);
}

std::size_t LastingMemory::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return mapped_;
}

}  // namespace baton::cpu

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton::cpu {
namespace {

// Longer than the serial sections between two parallel ones of an engine step, and most pauses between steps: to wake
// a thread takes longer than such a section. With 600 pauses instead, a small model decodes a fifth more slowly on a
// virtual machine.
constexpr std::chrono::microseconds kSpinTime{200};
constexpr int kPausesPerLook = 32;  // at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits actively until `done()` or, at most, for kSpinTime.
template <class Done>
void spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (true) {
    for (int i = 0; i < kPausesPerLook; ++i, pause()) {
      if (done()) return;
    }
    if (std::chrono::steady_clock::now() >= end) return;
  }
}

constexpr std::uint32_t count_of(std::uint64_t tickets) { return static_cast<std::uint32_t>(tickets >> 32); }
constexpr std::uint32_t next_of(std::uint64_t tickets) { return static_cast<std::uint32_t>(tickets); }
constexpr bool any_left(std::uint64_t tickets) { return next_of(tickets) < count_of(tickets); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw std::invalid_argument(fmt::format("thread pool: expected at least 1 thread, got {}", threads));
  spins_ = threads <= usable_cores();
  workers_.reserve(threads - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work_until_stopped(thread); });
    }
  } catch (const std::system_error&) {  // no more threads
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true);
  wake_sleepers();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_shared(std::int64_t count, Job job) {
  if (count > INT32_MAX)
    throw std::invalid_argument(fmt::format("thread pool: expected at most {} tasks, got {}", INT32_MAX, count));
  job_ = job;
  unfinished_.store(static_cast<std::int32_t>(count));
  tickets_.store(static_cast<std::uint64_t>(count) << 32);
  wake_sleepers();
  take_tasks(0);
  if (spins_) spin_until([this] { return unfinished_.load() == 0; });
  for (std::int32_t left = unfinished_.load(); left != 0; left = unfinished_.load()) wait_while(unfinished_, left);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work_until_stopped(int thread) {
  while (!stop_.load()) {
    if (take_tasks(thread)) continue;
    if (spins_) spin_until([this] { return any_left(tickets_.load(std::memory_order_relaxed)) || stop_.load(); });
    if (any_left(tickets_.load())) continue;
    // Announces the sleep, then checks again: a thread that stores tickets after this check sees the sleeper.
    sleepers_.fetch_add(1);
    const std::int32_t seen = wake_count_.load();
    if (!any_left(tickets_.load()) && !stop_.load()) wait_while(wake_count_, seen);
    sleepers_.fetch_sub(1);
  }
}

bool ThreadPool::take_tasks(int thread) {
  bool took = false;
  while (any_left(tickets_.load())) {
    const std::uint64_t ticket = tickets_.fetch_add(1);
    if (!any_left(ticket)) break;
    took = true;
    try {
      job_.call(job_.task, next_of(ticket), thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1) == 1) wake_all(unfinished_);
  }
  return took;
}

void ThreadPool::wake_sleepers() {
  if (sleepers_.load() == 0) return;
  wake_count_.fetch_add(1);
  wake_all(wake_count_);
}

}  // namespace baton::cpu

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace baton::cpu {
namespace {

#if defined(__x86_64__)
/// Linux gives a process the tile registers where it asks for them (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

// Highway checks that the system saves the registers; here only the instruction itself is asked for.
DotInstructions dot_instructions() {
  DotInstructions has;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    has.avx512_vnni = (c >> 11 & 1) != 0;
    has.amx_int8 = (d >> 24 & 1) != 0 && (d >> 25 & 1) != 0 && may_use_tiles();
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
      has.avx_vnni = (a >> 4 & 1) != 0;
      has.avx512_bf16 = (a >> 5 & 1) != 0;
    }
  }
#elif defined(__ARM_FEATURE_DOTPROD)
  has.neon_sdot = true;
#elif defined(__aarch64__) && defined(__linux__)
  has.neon_sdot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return has;
}

}  // namespace baton::cpu
