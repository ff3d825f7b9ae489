// SPDX-License-Identifier: Apache-2.0
// The results of a workflow under load: a table, JSON, a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sdk/cli/console/html.h"
#include "sdk/cli/measure/load_measurement.h"

namespace baton::cli {

struct LoadRow {
  std::string method;
  LoadPoint point;
};

std::string table_of(const std::vector<LoadRow>& rows);

/// An array with an object for each row.
nlohmann::ordered_json json_of(const std::vector<LoadRow>& rows);

/// Times over rates, as an SVG file of its own.
Markup load_svg(const std::string& workflow, std::vector<LoadRow> rows);

}  // namespace baton::cli
