// SPDX-License-Identifier: Apache-2.0
// The result of baton bench as JSON (docs/cli.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <baton/baton.h>
#include <baton/bench.h>

namespace baton::cli {

/// With one value of an option that takes several: that value, and none of what only several have.
nlohmann::ordered_json json_of(const BenchResult& result, const BenchOptions& options);

}  // namespace baton::cli
