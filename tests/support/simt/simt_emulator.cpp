// SPDX-License-Identifier: Apache-2.0
#include "simt_emulator.h"

#include <fmt/format.h>

#include <cassert>
#include <deque>
#include <exception>
#include <memory>
#include <random>
#include <vector>

#include "engine/tensor/tensor.h"
#include "tests/support/simt/fiber.h"
#include "tests/support/simt/shadow.h"

namespace baton::simt {
namespace {

constexpr int kLanes = 32;
constexpr std::size_t kGuard = 256;      // bytes beyond the shared memory of a launch that must stay as they are
constexpr unsigned char kPoison = 0xff;  // NaN in every float type

enum class State : std::uint8_t { ready, at_block_barrier, in_warp, done };

struct Copy {
  void* shared;
  const void* global;
  bool valid;
  Stamp stamp;
};

struct Thread {
  Fiber fiber;
  ThreadPlace place;
  State state = State::done;
  Place at;
  void* operand = nullptr;
  std::vector<Copy> copies;              // not yet committed
  std::deque<std::vector<Copy>> groups;  // committed, oldest first
};

struct Warp {
  int arrived = 0;
  Place at;
  WarpAct act = nullptr;
};

struct Machine {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  std::vector<std::size_t> ready;
  std::vector<unsigned char> shared;
  std::size_t shared_size = 0;
  std::size_t count = 0;    // threads of the block
  std::size_t current = 0;  // the running one
  std::size_t at_barrier = 0, done = 0;
  Place barrier;
  const std::function<void()>* body = nullptr;
  std::exception_ptr failure;
  std::mt19937 random;
  Settings settings;
  Counters counters;
};

Machine& machine() {
  static Machine instance;  // tests run one kernel at a time
  return instance;
}

std::string describe(const Place& place) {
  std::string_view file = place.file_name();
  if (const std::size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, place.line());
}
bool same(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

[[noreturn]] void fault(const std::string& message) {
  const ThreadPlace& p = here();
  throw Fault(fmt::format("{} (thread {} of block {}, {}, {})", message, p.thread.x, p.block.x, p.block.y, p.block.z));
}

void entry() {
  Machine& m = machine();
  Thread& thread = *m.threads[m.current];
  thread.fiber.entered();
  try {
    (*m.body)();
    if (!thread.copies.empty() || !thread.groups.empty()) {
      // Copies that nobody waits for may land in another block's memory.
      fault("asynchronous copies are still under way at the end of the kernel");
    }
  } catch (...) {
    if (!m.failure) m.failure = std::current_exception();
  }
  thread.state = State::done;
  ++m.done;
  thread.fiber.yield();
}

std::size_t take_next(Machine& m) {
  std::size_t pick = 0;
  if (m.settings.order == Order::descending) pick = m.ready.size() - 1;
  if (m.settings.order == Order::random) pick = m.random() % m.ready.size();
  const std::size_t thread = m.ready[pick];
  if (m.settings.order == Order::random) {
    m.ready[pick] = m.ready.back();
    m.ready.pop_back();
  } else {
    m.ready.erase(m.ready.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return thread;
}

struct WatchedLaunch {
  explicit WatchedLaunch(const Shadow::Launch& launch) {
    if (settings().shadow) shadow().begin_launch(launch);
  }
  ~WatchedLaunch() { shadow().end_launch(); }
  WatchedLaunch(const WatchedLaunch&) = delete;
  WatchedLaunch& operator=(const WatchedLaunch&) = delete;
};

void yield(State state, const Place& at) {
  Machine& m = machine();
  Thread& thread = *m.threads[m.current];
  thread.state = state;
  thread.at = at;
  thread.fiber.yield();
}

void run_block(Machine& m) {
  m.ready.clear();
  m.at_barrier = m.done = 0;
  for (Warp& warp : m.warps) warp.arrived = 0;
  for (std::size_t i = 0; i < m.count; ++i) {
    Thread& thread = *m.threads[i];
    thread.copies.clear();
    thread.groups.clear();
    thread.state = State::ready;
    thread.fiber.prepare(entry);
    m.ready.push_back(i);
  }
  while (!m.ready.empty() && !m.failure) {
    m.current = take_next(m);
    shadow().resume(m.current);
    m.threads[m.current]->fiber.resume();
  }
  if (!shadow().report().empty()) throw Fault(shadow().report());
  if (m.failure) std::rethrow_exception(m.failure);
  if (m.done == m.count) return;
  std::string waiting;
  for (std::size_t i = 0; i < m.count; ++i) {
    const Thread& thread = *m.threads[i];
    if (thread.state == State::ready || thread.state == State::done) continue;
    waiting =
        fmt::format("thread {} waits at {} {}", i,
                    thread.state == State::in_warp ? "the warp operation of" : "the barrier of", describe(thread.at));
    break;
  }
  throw Fault(fmt::format("not all threads reach it: {}; {} of {} have ended", waiting, m.done, m.count));
}

}  // namespace

Settings& settings() { return machine().settings; }
Counters& counters() { return machine().counters; }
const ThreadPlace& here() {
  const Machine& m = machine();
  return m.threads[m.current]->place;
}

void run_grid(dim3 grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body,
              const void* kernel) {
  Machine& m = machine();
  if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) {
    throw Fault(fmt::format("a launch of [{}, {}, {}] blocks of {} threads", grid.x, grid.y, grid.z, threads));
  }
  constexpr std::size_t kMaxSharedBytes = 99 * 1024;  // of compute capability 8.6, the least of those we build for
  if (shared_bytes > kMaxSharedBytes) throw Fault(fmt::format("a launch with {} bytes of shared memory", shared_bytes));
  while (m.threads.size() < threads) m.threads.push_back(std::make_unique<Thread>());
  m.count = threads;
  m.warps.resize((threads + kLanes - 1) / kLanes);
  m.body = &body;
  m.random.seed(m.settings.seed);
  m.failure = nullptr;
  m.shared_size = shared_bytes;
  m.shared.resize(shared_bytes + kGuard + 128);
  ++m.counters.launches;
  const void* shared = simt::shared_bytes(0, Place::current());
  const WatchedLaunch watched({kernel, {grid.x, grid.y, grid.z}, threads, shared, shared_bytes, kGuard - 128});
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        std::memset(m.shared.data(), kPoison, m.shared.size());
        for (unsigned t = 0; t < threads; ++t) m.threads[t]->place = {{t}, {x, y, z}, {threads}, grid};
        m.counters.threads += threads;
        shadow().begin_block();
        run_block(m);
        const unsigned char* end =
            static_cast<unsigned char*>(simt::shared_bytes(shared_bytes, Place::current())) + shared_bytes;
        for (std::size_t i = 0; i < kGuard - 128; ++i) {
          if (end[i] != kPoison) throw Fault(fmt::format("a kernel wrote {} bytes past its shared memory", i));
        }
      }
    }
  }
}

void* shared_bytes(std::size_t size, const Place& place) {
  Machine& m = machine();
  if (size > m.shared_size) {
    fault(fmt::format("{}: {} bytes of shared memory; the launch gave {}", describe(place), size, m.shared_size));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(m.shared.data());
  return m.shared.data() + (128 - address % 128) % 128;
}

void block_barrier(const Place& place) {
  Machine& m = machine();
  if (m.at_barrier == 0) {
    m.barrier = place;
  } else if (!same(m.barrier, place)) {
    fault(fmt::format("divergent barriers: {} and {}", describe(m.barrier), describe(place)));
  }
  if (m.done > 0) fault(fmt::format("the barrier of {} after other threads have ended", describe(place)));
  if (++m.at_barrier < m.count) {
    yield(State::at_block_barrier, place);
    return;
  }
  m.at_barrier = 0;
  shadow().block_barrier();
  for (std::size_t i = 0; i < m.count; ++i) {
    m.threads[i]->state = State::ready;
    m.ready.push_back(i);
  }
  yield(State::ready, place);  // the last to come has no precedence
}

void warp_together(void* operand, WarpAct act, const Place& place) {
  Machine& m = machine();
  const std::size_t first = m.current / kLanes * kLanes;
  Warp& warp = m.warps[m.current / kLanes];
  if (first + kLanes > m.count) fault(fmt::format("{}: a warp operation in a warp that is not whole", describe(place)));
  if (warp.arrived == 0) {
    warp.at = place;
  } else if (!same(warp.at, place)) {
    fault(fmt::format("lanes of one warp at different operations: {} and {}", describe(warp.at), describe(place)));
  }
  m.threads[m.current]->operand = operand;
  if (++warp.arrived < kLanes) {
    yield(State::in_warp, place);
    return;
  }
  warp.arrived = 0;
  void* operands[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) operands[i] = m.threads[first + i]->operand;
  if (act != nullptr) act(operands);
  for (std::size_t i = first; i < first + kLanes; ++i) {
    m.threads[i]->state = State::ready;
    m.ready.push_back(i);
  }
  yield(State::ready, place);
}

void copy_async(void* shared, const void* global, bool valid, const Place& place) {
  Machine& m = machine();
  const auto* base = static_cast<const unsigned char*>(shared_bytes(0, place));
  const auto* to = static_cast<const unsigned char*>(shared);
  if (to < base || to + 16 > base + m.shared_size)
    fault(fmt::format("{}: a copy outside shared memory", describe(place)));
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 || reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    fault(fmt::format("{}: a copy of 16 bytes that are not aligned", describe(place)));
  }
  const Stamp stamp = shadow().begin_copy(shared, valid ? global : nullptr, 16, __builtin_return_address(0));
  m.threads[m.current]->copies.push_back({shared, global, valid, stamp});
}

void copy_async_commit() {
  Thread& thread = *machine().threads[machine().current];
  thread.groups.push_back(std::move(thread.copies));
  thread.copies.clear();
}

void copy_async_wait(int pending) {
  Thread& thread = *machine().threads[machine().current];
  for (; thread.groups.size() > static_cast<std::size_t>(pending); thread.groups.pop_front()) {
    for (const Copy& copy : thread.groups.front()) {
      if (copy.valid) {
        std::memcpy(copy.shared, copy.global, 16);
      } else {
        std::memset(copy.shared, 0, 16);
      }
      shadow().end_copy(copy.stamp, copy.shared, copy.valid ? copy.global : nullptr, 16);
    }
  }
}

}  // namespace baton::simt

namespace baton::cuda {
namespace {

struct MatrixOperand {
  std::uint32_t* registers;
  const void* row;
  const void* code;
};

/// Element (row, col) of matrix i, as the lanes give its rows, read by a lane.
std::uint16_t element(void* const* operands, int lane, int i, int row, int col) {
  const auto& operand = *static_cast<const MatrixOperand*>(operands[8 * i + row]);
  const void* at = static_cast<const char*>(operand.row) + 2 * col;
  simt::shadow().access_by_lane(lane, at, 2, operand.code);
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

template <bool kTransposed>
void load_matrices(void* const* operands) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4, col = lane % 4 * 2;
      const std::uint32_t low =
          kTransposed ? element(operands, lane, i, col, row) : element(operands, lane, i, row, col);
      const std::uint32_t high =
          kTransposed ? element(operands, lane, i, col + 1, row) : element(operands, lane, i, row, col + 1);
      static_cast<MatrixOperand*>(operands[lane])->registers[i] = low | high << 16;
    }
  }
}

void check_row(const void* shared, const Place& place) {
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0) {
    throw simt::Fault(fmt::format("line {}: a matrix row that is not aligned to 16 bytes", place.line()));
  }
}

struct ProductOperand {
  float* c;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

float half_of(std::uint32_t pair, int which) {
  return bf16_to_f32(static_cast<std::uint16_t>(which == 0 ? pair : pair >> 16));
}

}  // namespace

float half_to_float(std::uint16_t bits) { return f16_to_f32(bits); }

void sync_warp(const Place& place) {
  simt::warp_together(
      nullptr, [](void* const*) { simt::shadow().warp_barrier(); }, place);
}

void atomic_add(std::uint64_t* to, std::uint64_t value) {
  simt::shadow().access(to, sizeof *to, simt::Touch::atomic, __builtin_return_address(0));
  *to += value;
}

std::uint32_t fetch_add(std::uint32_t* to, std::uint32_t value) {
  simt::shadow().access(to, sizeof *to, simt::Touch::atomic, __builtin_return_address(0));
  return std::exchange(*to, *to + value);
}

void load_matrix_x4(std::uint32_t (&r)[4], const void* shared, const Place& place) {
  check_row(shared, place);
  MatrixOperand operand{r, shared, __builtin_return_address(0)};
  simt::warp_together(&operand, load_matrices<false>, place);
}

void load_matrix_x4_transposed(std::uint32_t (&r)[4], const void* shared, const Place& place) {
  check_row(shared, place);
  MatrixOperand operand{r, shared, __builtin_return_address(0)};
  simt::warp_together(&operand, load_matrices<true>, place);
}

void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                      const Place& place) {
  ProductOperand operand{c, a, {b0, b1}};
  simt::warp_together(
      &operand,
      [](void* const* operands) {
        ++simt::counters().products;
        float a_all[16][16], b_all[16][8];
        for (int lane = 0; lane < 32; ++lane) {
          const auto& own = *static_cast<const ProductOperand*>(operands[lane]);
          const int g = lane / 4, p = lane % 4 * 2;
          for (int half = 0; half < 2; ++half) {
            a_all[g][p + half] = half_of(own.a[0], half);
            a_all[g + 8][p + half] = half_of(own.a[1], half);
            a_all[g][p + 8 + half] = half_of(own.a[2], half);
            a_all[g + 8][p + 8 + half] = half_of(own.a[3], half);
            b_all[p + half][g] = half_of(own.b[0], half);
            b_all[p + 8 + half][g] = half_of(own.b[1], half);
          }
        }
        for (int lane = 0; lane < 32; ++lane) {
          const auto& own = *static_cast<const ProductOperand*>(operands[lane]);
          const int g = lane / 4, p = lane % 4 * 2;
          for (int i = 0; i < 4; ++i) {
            const int row = g + i / 2 * 8, col = p + i % 2;
            float sum = own.c[i];
            for (int k = 0; k < 16; ++k)
              sum += a_all[row][k] * b_all[k][col];  // a product of two bf16 is exact in fp32
            own.c[i] = sum;
          }
        }
      },
      place);
}

}  // namespace baton::cuda
