// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/matmul.h"

#include <catch2/catch.hpp>
#include <vector>

namespace baton::cpu::test {
namespace {

constexpr std::int64_t kNoLimit = 1 << 30;

/// Checks that `tasks` cover each output of [rows, panels] once, within `limits`.
void check_covers(const ProductTasks& tasks, std::int64_t rows, std::int64_t panels, ProductTasks::Limits limits) {
  std::vector<int> covered(static_cast<std::size_t>(rows * panels));
  bool within = true;
  for (std::int64_t i = 0; i < tasks.count(); ++i) {
    const ProductTask task = tasks[i];
    within = within && task.row < task.row_end && task.row_end - task.row <= limits.rows;
    within = within && task.panel < task.panel_end && task.panel_end - task.panel <= limits.panels;
    for (std::int64_t row = task.row; row < task.row_end; ++row) {
      for (std::int64_t panel = task.panel; panel < task.panel_end; ++panel)
        ++covered[static_cast<std::size_t>(row * panels + panel)];
    }
  }
  CHECK(within);
  CHECK(covered == std::vector<int>(covered.size(), 1));
}

TEST_CASE("the tasks of a product cover each output once, within their limits", "[matmul]") {
  for (const std::int64_t rows : {1, 5, 239, 240, 241, 1000}) {
    for (const std::int64_t panels : {0, 1, 3, 18, 97, 4748}) {
      for (const int threads : {1, 2, 3, 16, 200}) {
        INFO(rows << " rows, " << panels << " panels, " << threads << " threads");
        for (const std::int64_t min_panels : {1, 4})
          check_covers(ProductTasks::of_few(rows, panels, threads, min_panels), rows, panels, {kNoLimit, kNoLimit});
        for (const ProductTasks::Limits limits : {ProductTasks::Limits{240, 8}, {256, 64}, {kNoLimit, kNoLimit}})
          check_covers(ProductTasks::of_many(rows, panels, threads, limits), rows, panels, limits);
      }
    }
  }
}

TEST_CASE("tasks of few rows become shorter, so that threads end together", "[matmul]") {
  const auto lengths = [](const ProductTasks& tasks) {
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < tasks.count(); ++i) found.push_back(tasks[i].panel_end - tasks[i].panel);
    return found;
  };
  using Lengths = std::vector<std::int64_t>;
  CHECK(lengths(ProductTasks::of_few(1, 28, 2)) == Lengths{7, 7, 3, 4, 2, 2, 1, 2});
  CHECK(lengths(ProductTasks::of_few(1, 28, 2, 4)) == Lengths{7, 7, 7, 7});
  CHECK(lengths(ProductTasks::of_few(1, 8, 2, 4)) == Lengths{4, 4});
  CHECK(lengths(ProductTasks::of_few(1, 3, 2, 4)) == Lengths{1, 2});
  CHECK(lengths(ProductTasks::of_few(5, 97, 1)) == Lengths{49, 24, 12, 6, 3, 2, 1});
}

TEST_CASE("tasks of many rows are few and as many as keep the threads busy", "[matmul]") {
  CHECK(ProductTasks::of_many(1, 97, 2, {kNoLimit, kNoLimit}).count() == 8);
  CHECK(ProductTasks::of_many(480, 64, 2, {240, 8}).count() == 16);
}

}  // namespace
}  // namespace baton::cpu::test
