// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/product_tasks.h"

#include <catch2/catch.hpp>
#include <vector>

namespace baton::cpu::test {
namespace {

TEST_CASE("the tasks of a product cover each output once, within their limits", "[matmul]") {
  const ProductTasks::Limits unlimited, few{.min_panels = 4}, many{240, 8}, wide{256, 64};
  for (const ProductTasks::Limits& limits : {unlimited, few, many, wide}) {
    for (const std::int64_t rows : {1, 5, 239, 240, 241, 1000}) {
      for (const std::int64_t panels : {0, 1, 3, 18, 97, 4748}) {
        for (const int threads : {1, 2, 3, 16, 200}) {
          INFO(rows << " rows, " << panels << " panels, " << threads << " threads");
          const ProductTasks tasks(rows, panels, threads, limits);
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
      }
    }
  }
}

TEST_CASE("tasks of a product are few and as many as keep the threads busy", "[matmul]") {
  CHECK(ProductTasks(1, 97, 2, {}).count() == 8);
  CHECK(ProductTasks(1, 8, 2, {.min_panels = 4}).count() == 2);
  CHECK(ProductTasks(1, 3, 2, {.min_panels = 4}).count() == 2);
  CHECK(ProductTasks(480, 64, 2, {240, 8}).count() == 16);
}

}  // namespace
}  // namespace baton::cpu::test
