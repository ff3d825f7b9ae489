// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/recurrence.h"

#include <fmt/format.h>

#include <stdexcept>

#include "engine/backend/backend.h"

namespace baton {
namespace {

void check_state_rows(std::string_view name, const StateRows& rows, std::int64_t end) {
  check_index(fmt::format("{} rows", name), rows.rows, end);
  std::int32_t at = 0;
  for (const StateRun& run : rows.runs) {
    if (run.begin != at || run.end <= run.begin)
      throw std::invalid_argument(
          fmt::format("{}: found a run of rows [{}, {}); expected one from {} on", name, run.begin, run.end, at));
    if (run.goes_on && (at == 0 || run.from != rows.runs[static_cast<std::size_t>(&run - rows.runs.data()) - 1].to))
      throw std::invalid_argument(fmt::format("{}: a run goes on where the one before it did not end", name));
    if (run.to == nullptr) throw std::invalid_argument(fmt::format("{}: a run has no memory for its state", name));
    at = run.end;
  }
  if (at != rows.size())
    throw std::invalid_argument(fmt::format("{}: the runs have {} rows; expected {}", name, at, rows.size()));
}

void check_positive(std::string_view name, std::int64_t value) {
  if (value < 1) throw std::invalid_argument(fmt::format("{}: expected at least 1, got {}", name, value));
}

}  // namespace

void check_convolve(const ConstTensorView& out, const ConstTensorView& x, const ConvWeights& weights,
                    const StateRows& rows) {
  check_positive("convolve length", weights.length);
  check_shape("convolve x", x, x.rows, x.cols);
  check_shape("convolve out", out, x.rows, x.cols);
  check_length("convolve taps", weights.taps.size(), x.cols * weights.length);
  if (!weights.bias.empty()) check_length("convolve bias", weights.bias.size(), x.cols);
  check_state_rows("convolve", rows, x.rows);
}

void check_delta_rule(const ConstTensorView& out, const DeltaRows& in, const DeltaShape& shape,
                      const DeltaWeights& weights, const StateRows& rows) {
  for (const std::int32_t size : {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim})
    check_positive("delta_rule shape", size);
  if (shape.value_heads % shape.key_heads != 0)
    throw std::invalid_argument(fmt::format("delta_rule: expected value heads in multiples of {} key heads, got {}",
                                            shape.key_heads, shape.value_heads));
  check_shape("delta_rule out", out, out.rows, shape.value_cols());
  check_shape("delta_rule qkv", in.qkv, out.rows, 2 * shape.key_cols() + shape.value_cols());
  check_shape("delta_rule write", in.write, out.rows, shape.value_heads);
  check_shape("delta_rule decay", in.decay, out.rows, shape.value_heads);
  check_length("delta_rule rate", weights.rate.size(), shape.value_heads);
  check_length("delta_rule bias", weights.bias.size(), shape.value_heads);
  check_state_rows("delta_rule", rows, out.rows);
}

void check_scan(const ConstTensorView& out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
                const StateRows& rows) {
  for (const std::int32_t size : {shape.heads, shape.head_dim, shape.groups, shape.state})
    check_positive("scan shape", size);
  if (shape.heads % shape.groups != 0)
    throw std::invalid_argument(
        fmt::format("scan: expected heads in multiples of {} groups, got {}", shape.groups, shape.heads));
  check_shape("scan out", out, out.rows, shape.cols());
  check_shape("scan xbc", in.xbc, out.rows, shape.cols() + 2 * shape.group_cols());
  check_shape("scan step", in.step, out.rows, shape.heads);
  check_length("scan rate", weights.rate.size(), shape.heads);
  check_length("scan bias", weights.bias.size(), shape.heads);
  check_length("scan skip", weights.skip.size(), shape.heads);
  check_state_rows("scan", rows, out.rows);
}

}  // namespace baton
