// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/load_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "sdk/cli/console/text.h"

namespace baton::cli {

namespace {

std::string shown(const Times& times, double fraction) {
  return times.empty() ? "-" : duration(times.quantile(fraction));
}

}  // namespace

std::string table_of(const std::vector<LoadRow>& rows) {
  std::size_t columns = 8;
  for (const LoadRow& row : rows) columns = std::max(columns, row.method.size());
  const auto width = static_cast<int>(columns);
  std::string out = fmt::format(
      "{:>8}  {}  {:>8}  {:>20}  {:>20}  {:>18}\n{:>8}  {}  {:>8}  {:>9}  {:>9}  {:>9}  "
      "{:>9}  {:>8}  {:>8}\n",
      "runs", padded("", width), "finished", "first token of turns", "whole run", "tokens/s", "a minute",
      padded("method", width), "a minute", "median", "95 %", "median", "95 %", "of a turn", "all");
  for (const LoadRow& row : rows) {
    const LoadPoint& point = row.point;
    out += fmt::format("{:8g}  {}  {:8.1f}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9.1f}  {:>7.1f}", point.offered,
                       padded(row.method, width), point.finished, shown(point.first_token, 0.5),
                       shown(point.first_token, 0.95), shown(point.whole_run, 0.5), shown(point.whole_run, 0.95),
                       point.agent_tokens_per_s, point.tokens_per_s);
    if (point.failed > 0) out += fmt::format("  {} failed: {}", point.failed, printable(point.error, Lines::fold));
    out += "\n";
  }
  return out;
}

nlohmann::ordered_json json_of(const std::vector<LoadRow>& rows) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const LoadRow& row : rows) {
    const LoadPoint& point = row.point;
    points.push_back({{"method", row.method},
                      {"offered_per_minute", point.offered},
                      {"finished_per_minute", point.finished},
                      {"failed_runs", point.failed},
                      {"ttft_ms", point.first_token.to_json()},
                      {"run_ms", point.whole_run.to_json()},
                      {"output_tokens", point.output_tokens},
                      {"turn_tokens_per_s", point.agent_tokens_per_s},
                      {"tokens_per_s", point.tokens_per_s}});
  }
  return points;
}

}  // namespace baton::cli
