// SPDX-License-Identifier: Apache-2.0
// ShadowMemory: what is known about each byte of a range of addresses, for the emulator's Shadow (shadow.h).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton::simt {

/// One access to memory, as it is remembered.
struct Stamp {
  std::uint32_t time = 0;  // of the Shadow that made it; 0: there was none
  std::uint32_t code = 0;  // where it is in the program (code_place.h); 0: not in a kernel
  std::uint16_t thread = 0;
  bool pending = false;  // of an asynchronous copy that is not waited for yet
  bool atomic = false;
};

/// The accesses to neighbouring bytes that need not be told apart.
struct Cell {
  Stamp write;                       // the newest
  std::array<Stamp, 2> others = {};  // reads, or atomic operations, after it: the newest, and one that is concurrent
};

/// Pages begin as a single cell, and their cells are halved as often as an access needs: memory that is only used in
/// pieces of sixteen bytes has a cell for each sixteen.
class ShadowMemory {
 public:
  static constexpr std::size_t kPage = 4096;

  ShadowMemory() = default;
  ShadowMemory(std::uintptr_t begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {}

  std::uintptr_t begin() const { return begin_; }
  std::uintptr_t end() const { return begin_ + bytes_; }
  /// Whether the address is in the range.
  bool holds(std::uintptr_t address) const { return address - begin_ < bytes_; }
  /// Makes bytes [offset, offset + bytes) of the range usable, of which nothing is known. They begin a page.
  void add(std::size_t offset, std::size_t bytes);
  bool is_usable(std::size_t offset, std::size_t bytes) const {
    const std::size_t last = offset + bytes - 1;
    return last / kPage < pages_.size() && last % kPage < pages_[last / kPage].usable;
  }

  /// Calls visit(cell, offset) for the cells of bytes [offset, offset + bytes) of the range, which are usable.
  template <class Visit>
  void visit(std::size_t offset, std::size_t bytes, const Visit& visit) {
    while (bytes > 0) {
      const std::size_t in_page = offset % kPage, here = std::min(bytes, kPage - in_page);
      Page& page = pages_[offset / kPage];
      const int needed = std::countr_zero(in_page | (in_page + here));
      if (page.shift > needed) split(page, needed);
      for (std::size_t i = in_page >> page.shift, end = (in_page + here) >> page.shift; i < end; ++i)
        visit(page.cells[i], offset - in_page + (i << page.shift));
      offset += here;
      bytes -= here;
    }
  }
  /// Forgets what is known about the bytes; they were all written by `write`.
  void reset(std::size_t offset, std::size_t bytes, const Stamp& write);

 private:
  struct Page {
    std::uint16_t usable = 0;  // bytes, from the page's begin
    std::int16_t shift = 12;   // log2 of the bytes per cell
    std::vector<Cell> cells = std::vector<Cell>(1);
  };
  static void split(Page& page, int shift);

  std::uintptr_t begin_ = 0;
  std::size_t bytes_ = 0;
  std::vector<Page> pages_;
};

}  // namespace baton::simt
