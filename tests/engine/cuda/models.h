// SPDX-License-Identifier: Apache-2.0
// What the tests of whole models share.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/model/forward.h"
#include "tests/support/tiny_model.h"

namespace baton::test {

/// The backend of this executable with memory of its own; null, after a line with the reason, where there is no device.
std::unique_ptr<Backend> make_backend_under_test();

/// Logits [tokens, V] of a prompt in steps of at most `chunk` rows.
inline std::vector<float> logits_of(Backend& backend, const TinyOptions& options, const std::vector<TokenId>& tokens,
                                    std::size_t chunk) {
  const auto model = make_tiny_model(backend, options);
  KvCache cache(backend, model->kv_layout(), static_cast<std::int32_t>(tokens.size()));
  Forward forward(backend, *model);
  std::vector<float> all;
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::size_t end = std::min(tokens.size(), begin + chunk);
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (std::size_t i = begin; i < end; ++i) {
      rows.add_row(index, static_cast<std::int32_t>(i), tokens[i]);
      rows.logits_rows.push_back(static_cast<std::int32_t>(i - begin));
    }
    const auto logits = forward.run(rows);
    all.insert(all.end(), logits.begin(), logits.end());
    cache.commit(static_cast<std::int32_t>(end));
  }
  return all;
}

/// Rms of the difference as a share of the rms of what is expected; NaN counts as infinite.
inline double difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  REQUIRE(actual.size() == expected.size());
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    errors += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    squares += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::isnan(errors) ? INFINITY : std::sqrt(errors / squares);
}

}  // namespace baton::test
