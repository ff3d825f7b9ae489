// SPDX-License-Identifier: Apache-2.0
// How a product is divided among threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton::cpu {

/// The part of a product that one task computes: rows [row, row_end) of x, panels [panel, panel_end) of w.
struct ProductTask {
  std::int64_t row, row_end;
  std::int64_t panel, panel_end;
};

/// Tasks of a product: blocks of rows times blocks of panels.
class ProductTasks {
 public:
  /// Of a task, at most.
  struct Limits {
    std::int64_t rows, panels;
  };

  /// Few rows: each task computes all of them, and what takes the time is to read w. Half of the panels is divided
  /// among the threads, then half of the rest, and so on: the first tasks read long stretches of memory, and the last
  /// ones are so short that the threads end together, though they read at different rates. A task has at least
  /// `min_panels`, unless threads had none then.
  static ProductTasks of_few(std::int64_t rows, std::int64_t panels, int threads, std::int64_t min_panels = 1) {
    ProductTasks tasks(rows, panels);
    tasks.per_level_ = std::min<std::int64_t>(threads, panels);
    while (panels >> tasks.levels_ >= threads * min_panels) ++tasks.levels_;
    return tasks;
  }

  /// Many rows: tasks of nearly equal size. Four of them per thread, so that one that is interrupted holds up the
  /// others little, and no more where `limits` do not ask for it. Their number is a multiple of the threads.
  static ProductTasks of_many(std::int64_t rows, std::int64_t panels, int threads, Limits limits) {
    ProductTasks tasks(rows, panels);
    tasks.row_blocks_ = divided_up(rows, limits.rows);
    const std::int64_t blocks =
        std::max<std::int64_t>({4 * threads / tasks.row_blocks_, divided_up(panels, limits.panels), 1});
    tasks.per_level_ = std::min(divided_up(blocks, threads) * threads, panels);
    return tasks;
  }

  std::int64_t count() const { return row_blocks_ * panel_blocks(); }

  ProductTask operator[](std::int64_t index) const {
    const std::int64_t row = index / panel_blocks(), block = index % panel_blocks();
    return {rows_ * row / row_blocks_, rows_ * (row + 1) / row_blocks_, first_panel(block), first_panel(block + 1)};
  }

 private:
  ProductTasks(std::int64_t rows, std::int64_t panels) : rows_(rows), panels_(panels) {}

  static std::int64_t divided_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

  std::int64_t panel_blocks() const { return levels_ * per_level_; }
  std::int64_t first_panel(std::int64_t block) const {
    const std::int64_t level = block / per_level_, left = left_at(level);
    return panels_ - left + (left - left_at(level + 1)) * (block % per_level_) / per_level_;
  }
  std::int64_t left_at(std::int64_t level) const { return level < levels_ ? panels_ >> level : 0; }

  std::int64_t rows_, panels_;
  std::int64_t row_blocks_ = 1;
  std::int64_t levels_ = 1, per_level_ = 0;  // blocks of panels
};

}  // namespace baton::cpu
