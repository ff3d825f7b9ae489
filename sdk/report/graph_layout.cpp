// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/graph_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::cli {
namespace {

std::vector<std::size_t> layers_of(std::size_t turns, const std::vector<GraphEdge>& edges) {
  std::vector<std::vector<std::size_t>> sources(turns);
  for (const GraphEdge& one : edges) sources[one.to].push_back(one.from);
  std::vector<std::size_t> layers(turns);
  for (std::size_t i = 0; i < turns; ++i) {
    for (const std::size_t from : sources[i]) layers[i] = std::max(layers[i], layers[from] + 1);
  }
  return layers;
}

/// The lane of each turn that is read below the next layer: the first that nobody else uses on the way.
std::vector<std::size_t> lanes_of(const std::vector<std::size_t>& layers, const std::vector<GraphEdge>& edges) {
  std::vector<std::size_t> ends(layers.size()), lanes(layers.size());
  for (const GraphEdge& one : edges) ends[one.from] = std::max(ends[one.from], layers[one.to]);
  std::vector<std::size_t> by_layer;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (ends[i] > layers[i] + 1) by_layer.push_back(i);
  }
  std::stable_sort(by_layer.begin(), by_layer.end(), [&](auto a, auto b) { return layers[a] < layers[b]; });
  std::vector<std::size_t> free_from;  // of each lane
  for (const std::size_t turn : by_layer) {
    const auto lane = std::find_if(free_from.begin(), free_from.end(), [&](auto end) { return end <= layers[turn]; });
    lanes[turn] = static_cast<std::size_t>(lane - free_from.begin());
    if (lane == free_from.end()) free_from.push_back(0);
    free_from[lanes[turn]] = ends[turn];
  }
  return lanes;
}

}  // namespace

GraphLayout graph_layout(std::size_t turns, const std::vector<GraphEdge>& edges, double node_height) {
  const std::vector<std::size_t> layers = layers_of(turns, edges), lanes = lanes_of(layers, edges);
  std::vector<std::size_t> sizes;
  for (const std::size_t layer : layers) {
    if (layer >= sizes.size()) sizes.resize(layer + 1);
    ++sizes[layer];
  }
  const auto row_width = [](std::size_t count) {
    return static_cast<double>(count) * (kNodeWidth + kNodeGap) - kNodeGap;
  };
  const double widest = row_width(sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end()));
  GraphLayout layout;
  layout.turns.resize(turns);
  layout.width = widest;
  std::vector<std::size_t> seen(sizes.size());
  for (std::size_t i = 0; i < turns; ++i) {
    const std::size_t layer = layers[i];
    layout.turns[i] = {(widest - row_width(sizes[layer])) / 2 + row_width(seen[layer] + 1) - kNodeWidth,
                       kLayerGap / 2 + static_cast<double>(layer) * (node_height + kLayerGap)};
    ++seen[layer];
  }
  layout.height = static_cast<double>(sizes.size()) * (node_height + kLayerGap) - kLayerGap / 2;
  for (const GraphEdge& one : edges) {
    const GraphLayout::Place &from = layout.turns[one.from], &to = layout.turns[one.to];
    const double x = from.x + kNodeWidth / 2, y = from.y + node_height, end = to.x + kNodeWidth / 2, tip = to.y - 1;
    if (layers[one.to] == layers[one.from] + 1) {
      layout.paths.push_back(fmt::format("M{} {}C{} {} {} {} {} {}", x, y, x, y + 32, end, tip - 32, end, tip));
      continue;
    }
    const double lane = widest + kNodeGap + static_cast<double>(lanes[one.from]) * kLaneWidth;
    layout.width = std::max(layout.width, lane + 2);
    layout.paths.push_back(fmt::format("M{0} {1}C{0} {2} {3} {4} {3} {5}V{6}C{3} {7} {8} {9} {8} {10}", x, y, y + 32,
                                       lane, y + 16, y + 48, tip - 48, tip - 16, end, tip - 32, tip));
  }
  return layout;
}

}  // namespace baton::cli
