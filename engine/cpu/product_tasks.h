// SPDX-License-Identifier: Apache-2.0
// How a product is divided among threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace baton::cpu {

/// The part of a product that one task computes: rows [row, row_end) of x, panels [panel, panel_end) of w.
struct ProductTask {
  std::int64_t row, row_end;
  std::int64_t panel, panel_end;
};

/// Tasks of a product: blocks of rows times blocks of panels, each kind of nearly equal size.
class ProductTasks {
 public:
  struct Limits {
    std::int64_t rows = std::numeric_limits<std::int32_t>::max();    // of a task, at most
    std::int64_t panels = std::numeric_limits<std::int32_t>::max();  // of a task, at most
    std::int64_t min_panels = 1;                                     // of a task, unless threads had none then
  };

  /// Four tasks per thread, so that one that is interrupted holds up the others little, and no more where `limits` do
  /// not ask for it, because each begins to read another stretch of memory. Their number is a multiple of the threads.
  ProductTasks(std::int64_t rows, std::int64_t panels, int threads, const Limits& limits)
      : rows_(rows), panels_(panels), row_blocks_(divided_up(rows, limits.rows)) {
    const std::int64_t wanted =
        std::max<std::int64_t>({4 * threads / row_blocks_, divided_up(panels, limits.panels), 1});
    const std::int64_t blocks = std::clamp<std::int64_t>(panels / limits.min_panels, 1, wanted);
    panel_blocks_ = std::min(divided_up(blocks, threads) * threads, panels);
  }

  std::int64_t count() const { return row_blocks_ * panel_blocks_; }

  ProductTask operator[](std::int64_t index) const {
    const std::int64_t row = index / panel_blocks_, panel = index % panel_blocks_;
    return {rows_ * row / row_blocks_, rows_ * (row + 1) / row_blocks_, panels_ * panel / panel_blocks_,
            panels_ * (panel + 1) / panel_blocks_};
  }

 private:
  static std::int64_t divided_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

  std::int64_t rows_, panels_;
  std::int64_t row_blocks_ = 1, panel_blocks_ = 1;
};

}  // namespace baton::cpu
