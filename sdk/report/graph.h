// SPDX-License-Identifier: Apache-2.0
// Where the turns of a team stand in its picture: in layers from top to bottom, each below all whose answers it reads.
// What is handed over several layers at once runs in lanes to the right of all turns, so that no line crosses a turn.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sdk/report/data.h"

namespace baton::cli {

// All in pixels.
inline constexpr double kNodeWidth = 200, kNodeGap = 18, kLayerGap = 64, kLaneWidth = 14;

struct GraphLayout {
  struct Place {
    double x = 0, y = 0;  // of the upper left corner
  };
  std::vector<Place> turns;
  double width = 0, height = 0;
  std::vector<std::string> paths;  // one for each hand-over, for the attribute d
};

/// The picture of the first `turns` turns; `edges` lie between these.
GraphLayout graph_layout(std::size_t turns, const std::vector<GraphEdge>& edges, double node_height);

}  // namespace baton::cli
