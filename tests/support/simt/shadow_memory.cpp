// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simt/shadow_memory.h"

namespace baton::simt {

void ShadowMemory::add(std::size_t offset, std::size_t bytes) {
  const std::size_t end = offset + bytes;
  pages_.resize(std::max(pages_.size(), (end + kPage - 1) / kPage));
  for (; offset < end; offset += kPage) {
    pages_[offset / kPage] = {};
    pages_[offset / kPage].usable = static_cast<std::uint16_t>(std::min(kPage, end - offset));
  }
}

void ShadowMemory::split(Page& page, int shift) {
  std::vector<Cell> cells(kPage >> shift);
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = page.cells[i >> (page.shift - shift)];
  page.cells = std::move(cells);
  page.shift = static_cast<std::int16_t>(shift);
}

void ShadowMemory::reset(std::size_t offset, std::size_t bytes, const Stamp& write) {
  const std::size_t end = offset + bytes;
  while (offset < end) {
    const std::size_t next = std::min(end, (offset / kPage + 1) * kPage);
    if (next - offset == kPage) {
      Page& page = pages_[offset / kPage];
      page.shift = 12;
      page.cells.assign(1, Cell{.write = write});
    } else {
      visit(offset, next - offset, [&](Cell& cell, std::size_t) { cell = {.write = write}; });
    }
    offset = next;
  }
}

}  // namespace baton::simt
