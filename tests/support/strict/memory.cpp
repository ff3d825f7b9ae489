// SPDX-License-Identifier: Apache-2.0
// Memory of the strict runtime. Each allocation of a device has pages of its own, which are closed but while work that
// may use them runs, and a closed page behind them. What was released is never used again.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/simt/shadow.h"
#include "tests/support/strict/core.h"

namespace baton::test::strict {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSpaceBytes = std::size_t{1} << 38;  // addresses of one device
constexpr std::size_t kFilled = std::size_t{4} << 20;      // what an allocation holds beyond is zero
constexpr int kUnset = 0xff;                               // NaN in every float type
constexpr int kBeyond = 0xa5;                              // between the end of an allocation and of its page

struct Stamp {
  int stream = -1;
  std::uint64_t number = 0;
  const char* name = "";
};

/// The newest accesses of a page.
struct Page {
  Stamp write;
  std::vector<Stamp> reads;  // one per stream
};

struct Block {
  int device = 0;
  std::size_t bytes = 0;
  Stamp allocated;  // stream -1: by the host, before everything that it did later
  bool released = false;
  Stamp freed;
  std::vector<Page> pages;
  std::map<int, Stamp> last;  // the newest access by each stream
};

struct Pinned {
  std::size_t bytes = 0;
};
struct PinnedUse {
  std::uintptr_t begin, end;
  bool read;
  int stream;
  std::uint64_t number;
};

struct Space {
  std::byte* base = nullptr;
  std::size_t used = kPage;
};

struct Memory {
  std::vector<Space> spaces;  // by device
  std::map<std::uintptr_t, Block> blocks;
  std::map<std::uintptr_t, Pinned> pinned;
  std::size_t pinned_bytes = 0;
  std::vector<PinnedUse> uses;
  // While a kernel runs:
  const Work* running = nullptr;
  std::map<std::uintptr_t, Access> opened;  // by page
};
Memory& memory() {
  static Memory* one = new Memory;
  return *one;
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::size_t pages_of(std::size_t bytes) { return std::max<std::size_t>(1, (bytes + kPage - 1) / kPage); }

/// The block that holds an address, its last page included; or null.
std::pair<std::uintptr_t, Block*> block_at(std::uintptr_t at) {
  auto found = memory().blocks.upper_bound(at);
  if (found == memory().blocks.begin()) return {0, nullptr};
  --found;
  if (at >= found->first + pages_of(found->second.bytes) * kPage) return {0, nullptr};
  return {found->first, &found->second};
}

void protect(std::uintptr_t begin, std::size_t bytes, int how) {
  const std::uintptr_t first = begin / kPage * kPage;
  if (mprotect(reinterpret_cast<void*>(first), begin + bytes - first, how) != 0) {
    std::perror("strict runtime: mprotect");
    std::abort();
  }
}

/// Whether `work` runs behind what is stamped.
bool is_behind(const Work& work, const Stamp& stamp) {
  return stamp.stream < 0 || work.before[stamp.stream] >= stamp.number;
}

void check_race(const Work& work, const Stamp& other, const char* how) {
  if (other.stream == work.stream || is_behind(work, other)) return;
  report(fmt::format("{} of stream {} {} what {} of stream {} wrote or reads: no event orders them", work.name,
                     work.stream, how, other.name, other.stream));
}

void access_page(const Work& work, Page& page, Access access) {
  const Stamp own{work.stream, work.number, work.name};
  check_race(work, page.write, access == Access::read ? "reads" : "writes");
  if (access == Access::write) {
    for (const Stamp& read : page.reads) check_race(work, read, "writes");
    page.write = own;
    page.reads.clear();
    return;
  }
  const auto same =
      std::find_if(page.reads.begin(), page.reads.end(), [&](const Stamp& read) { return read.stream == work.stream; });
  if (same == page.reads.end()) {
    page.reads.push_back(own);
  } else {
    *same = own;
  }
}

void access_block(const Work& work, Block& block) {
  if (block.released)
    report(fmt::format("{} of stream {} uses memory that {} released", work.name, work.stream, block.freed.name));
  if (!is_behind(work, block.allocated))
    report(fmt::format("{} of stream {} uses memory before its allocation on stream {}", work.name, work.stream,
                       block.allocated.stream));
  block.last[work.stream] = {work.stream, work.number, work.name};
}

[[noreturn]] void crash(const char* what, const void* where) {
  std::fprintf(stderr, "strict runtime: %s (%p)\n", what, where);
  signal(SIGSEGV, SIG_DFL);
  std::abort();
}

/// A thread of a kernel touches a closed page for the first time, or for the first time to write.
void on_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  Memory& m = memory();
  const std::uintptr_t at = address(info->si_addr);
  bool ours = false;
  for (const Space& space : m.spaces)
    ours = ours || (at >= address(space.base) && at < address(space.base) + kSpaceBytes);
  if (!ours) {  // not about a device
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  thread_local bool inside = false;
  if (m.running == nullptr || inside) crash("the host touches memory of a device", info->si_addr);
  inside = true;
  const auto [begin, block] = block_at(at);
  if (block == nullptr) crash(m.running->name, info->si_addr);
  const std::uintptr_t page = at / kPage * kPage;
  const bool again = m.opened.contains(page);
  const Access access = again ? Access::write : Access::read;
  if (again && m.opened[page] == Access::write) crash("a page that cannot be opened", info->si_addr);
  access_block(*m.running, *block);
  if (!block->released) access_page(*m.running, block->pages[(page - begin) / kPage], access);
  m.opened[page] = access;
  protect(page, kPage, again ? PROT_READ | PROT_WRITE : PROT_READ);
  inside = false;
}

struct SignalStack {
  SignalStack() {
    stack_t known{};
    if (sigaltstack(nullptr, &known) == 0 && (known.ss_flags & SS_DISABLE) == 0) return;
    bytes.resize(1 << 17);
    const stack_t own{bytes.data(), 0, bytes.size()};
    sigaltstack(&own, nullptr);
  }
  ~SignalStack() {
    if (bytes.empty()) return;
    const stack_t none{nullptr, SS_DISABLE, 0};
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  std::vector<char> bytes;
};

void catch_faults() {
  thread_local const SignalStack stack;
  struct sigaction action {};
  sigaction(SIGSEGV, nullptr, &action);
  if (action.sa_sigaction == on_fault) return;
  action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

void restart_memory() {
  Memory& m = memory();
  for (const Space& space : m.spaces) munmap(space.base, kSpaceBytes);
  for (const auto& [at, block] : m.pinned) std::free(reinterpret_cast<void*>(at));
  m = {};
  simt::shadow().restart();
  for (std::size_t i = 0; i < core().devices.size(); ++i) {
    void* base = mmap(nullptr, kSpaceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      std::perror("strict runtime: mmap");
      std::abort();
    }
    m.spaces.push_back({static_cast<std::byte*>(base), kPage});
    simt::shadow().add_space(base, kSpaceBytes);
  }
}

std::vector<std::string> memory_leaks() {
  std::vector<std::string> leaks;
  std::size_t count = 0, bytes = 0;
  for (const auto& [at, block] : memory().blocks) {
    if (block.freed.name[0] != 0) continue;
    ++count;
    bytes += block.bytes;
  }
  if (count > 0)
    leaks.push_back(fmt::format("{} allocations of {} bytes of device memory were never released", count, bytes));
  if (!memory().pinned.empty())
    leaks.push_back(fmt::format("{} allocations of pinned memory were never released", memory().pinned.size()));
  return leaks;
}

void* allocate_device(int device, std::size_t bytes, CUstream_st* stream) {
  Core& c = core();
  Device& on = c.devices[static_cast<std::size_t>(device)];
  Space& space = memory().spaces[static_cast<std::size_t>(device)];
  const std::size_t room = (pages_of(bytes) + 1) * kPage;
  if (bytes > on.spec.memory - std::min(on.spec.memory, on.used + on.pool.used)) return nullptr;
  if (room > kSpaceBytes - space.used) return nullptr;
  std::byte* pointer = space.base + space.used;
  space.used += room;
  Block& block = memory().blocks[address(pointer)];
  block.device = device;
  block.bytes = bytes;
  block.pages.resize(pages_of(bytes));
  simt::shadow().allocated(pointer, bytes);
  const auto fill = [pointer, bytes] {
    const std::size_t end = pages_of(bytes) * kPage, filled = std::min(bytes, kFilled);
    with_open_memory(pointer, filled, [&] { std::memset(pointer, kUnset, filled); });
    with_open_memory(pointer + bytes, end - bytes, [&] { std::memset(pointer + bytes, kBeyond, end - bytes); });
  };
  if (stream == nullptr) {
    on.used += bytes;
    if (c.setup.runs_work) fill();
    return pointer;
  }
  on.pool.used += bytes;
  on.pool.reserved = std::max(on.pool.reserved, on.pool.used);
  give(stream, "cudaMallocAsync", 1, [fill](const Work&) {
    if (core().setup.runs_work) fill();
  });
  block.allocated = {stream->id, stream->last, "cudaMallocAsync"};
  return pointer;
}

bool release_device(void* pointer, CUstream_st* stream) {
  Core& c = core();
  const auto found = memory().blocks.find(address(pointer));
  if (found == memory().blocks.end()) {
    report("memory is released that was never allocated");
    return false;
  }
  Block& block = found->second;
  if (block.freed.name[0] != 0) {
    report("memory is released twice");
    return false;
  }
  Device& on = c.devices[static_cast<std::size_t>(block.device)];
  const auto finish = [pointer, &block](const Work& work) {
    for (const auto& [other, stamp] : block.last) {
      if (other != work.stream && !is_behind(work, stamp))
        report(fmt::format("memory is released on stream {} while {} of stream {} may use it", work.stream, stamp.name,
                           other));
    }
    if (core().setup.runs_work) {
      const std::size_t all = pages_of(block.bytes) * kPage;
      with_open_memory(static_cast<std::byte*>(pointer) + block.bytes, all - block.bytes, [&] {
        const auto* bytes = static_cast<const unsigned char*>(pointer);
        for (std::size_t i = block.bytes; i < all; ++i) {
          if (bytes[i] == kBeyond) continue;
          report(fmt::format("a kernel wrote {} bytes past its memory", i - block.bytes));
          break;
        }
      });
      madvise(pointer, all, MADV_DONTNEED);
    }
    block.released = true;
    block.pages.clear();
    block.last.clear();
  };
  if (stream == nullptr) {  // cudaFree waits for the device
    on.used -= block.bytes;
    block.freed = {-1, 0, "cudaFree"};
    Work work;
    work.stream = -1;
    work.before = c.host;
    finish(work);
    return true;
  }
  on.pool.used -= block.bytes;
  if (on.pool.threshold < on.pool.reserved) on.pool.reserved = std::max(on.pool.used, on.pool.threshold);
  block.freed = {stream->id, stream->last + 1, "cudaFreeAsync"};
  give(stream, "cudaFreeAsync", 1, finish);
  return true;
}

void* allocate_pinned(std::size_t bytes) {
  Memory& m = memory();
  if (bytes > core().setup.pinned - std::min(core().setup.pinned, m.pinned_bytes)) return nullptr;
  void* pointer = std::aligned_alloc(kPage, pages_of(bytes) * kPage);
  if (pointer == nullptr) return nullptr;
  std::memset(pointer, kUnset, bytes);
  m.pinned[address(pointer)] = {bytes};
  m.pinned_bytes += bytes;
  return pointer;
}

bool release_pinned(void* pointer) {
  Memory& m = memory();
  const auto found = m.pinned.find(address(pointer));
  if (found == m.pinned.end()) {
    report("pinned memory is released that was never allocated");
    return false;
  }
  const auto inside = [&](const PinnedUse& use) {
    return use.begin >= found->first && use.begin < found->first + found->second.bytes;
  };
  for (const PinnedUse& use : m.uses) {
    if (inside(use) && core().done[static_cast<std::size_t>(use.stream)] < use.number)
      report("pinned memory is released while a copy may use it");
  }
  std::erase_if(m.uses, inside);
  m.pinned_bytes -= found->second.bytes;
  m.pinned.erase(found);
  std::free(pointer);
  return true;
}

int device_of(const void* pointer) {
  for (std::size_t i = 0; i < memory().spaces.size(); ++i) {
    const std::uintptr_t base = address(memory().spaces[i].base);
    if (address(pointer) >= base && address(pointer) < base + kSpaceBytes) return static_cast<int>(i);
  }
  return -1;
}

bool is_pinned(const void* pointer, std::size_t bytes) {
  auto found = memory().pinned.upper_bound(address(pointer));
  if (found == memory().pinned.begin()) return false;
  --found;
  return address(pointer) + bytes <= found->first + found->second.bytes;
}

bool is_allocated(const void* pointer, std::size_t bytes) {
  const auto [begin, block] = block_at(address(pointer));
  return block != nullptr && !block->released && block->freed.name[0] == 0 &&
         address(pointer) + bytes <= begin + block->bytes;
}

void touch(const Work& work, const void* pointer, std::size_t bytes, Access access) {
  if (bytes == 0) return;
  const std::uintptr_t from = address(pointer), to = from + bytes;
  const auto [begin, block] = block_at(from);
  if (block == nullptr || to > begin + block->bytes) {
    report(fmt::format("{} of stream {} touches {} bytes that no allocation holds", work.name, work.stream, bytes));
    return;
  }
  access_block(work, *block);
  if (block->released) return;
  for (std::size_t i = (from - begin) / kPage; i < block->pages.size() && begin + i * kPage < to; ++i) {
    const std::uintptr_t first = begin + i * kPage, last = std::min(first + kPage, begin + block->bytes);
    if (from <= first && to >= last) access_page(work, block->pages[i], access);  // not a part of the page
  }
}

void with_open_memory(const void* pointer, std::size_t bytes, const std::function<void()>& body) {
  if (bytes == 0) return;
  protect(address(pointer), bytes, PROT_READ | PROT_WRITE);
  body();
  protect(address(pointer), bytes, PROT_NONE);
}

void run_kernel(const Work& work, const std::function<void()>& body) {
  Memory& m = memory();
  catch_faults();
  struct Closing {
    ~Closing() {
      Memory& all = memory();
      all.running = nullptr;
      for (auto page = all.opened.begin(); page != all.opened.end();) {
        const std::uintptr_t begin = page->first;
        std::uintptr_t end = begin;
        for (; page != all.opened.end() && page->first == end; ++page) end += kPage;
        protect(begin, end - begin, PROT_NONE);
      }
      all.opened.clear();
    }
  } const closing;
  m.running = &work;
  body();
}

bool begin_pinned_use(const void* pointer, std::size_t bytes, bool read, const CUstream_st& stream) {
  Memory& m = memory();
  std::erase_if(m.uses,
                [](const PinnedUse& use) { return core().done[static_cast<std::size_t>(use.stream)] >= use.number; });
  const PinnedUse own{address(pointer), address(pointer) + bytes, read, stream.id, stream.last + 1};
  bool is_used = false;
  for (const PinnedUse& use : m.uses) {
    if (use.begin >= own.end || own.begin >= use.end || (use.read && read)) continue;
    is_used = true;
    if (use.stream != own.stream && std::max(stream.clock[use.stream], core().host[use.stream]) < use.number)
      report("two copies use the same pinned memory, and no event orders them");
  }
  // What a copy to the host will write holds nothing from now on.
  if (!read && !is_used && core().setup.runs_work) std::memset(const_cast<void*>(pointer), kUnset, bytes);
  m.uses.push_back(own);
  return is_used;
}

}  // namespace baton::test::strict
