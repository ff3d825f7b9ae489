// SPDX-License-Identifier: Apache-2.0
// What every trace must be: a tree of spans in time, and its files.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "sdk/trace/spans.h"

namespace baton::test {

/// The first thing that is wrong with the tree; empty: nothing.
inline std::string wrong_in_tree(const RunTrace& trace) {
  if (trace.id.size() != 32 || trace.id.find_first_not_of("0123456789abcdef") != trace.id.npos) return "id " + trace.id;
  if (trace.spans.empty() || trace.spans[0].parent != 0) return "the first span is not the root";
  std::map<std::uint64_t, const TraceSpan*> known;
  std::map<std::uint64_t, double> filled;  // inside of a turn: the end of its last child
  for (const TraceSpan& span : trace.spans) {
    if (span.id == 0 || !known.emplace(span.id, &span).second) return span.name + ": its id is not its own";
    if (!(span.end_ms >= span.begin_ms) || span.begin_ms < 0) return span.name + ": a negative duration or time";
    for (const SpanMoment& moment : span.moments) {
      if (moment.at_ms < span.begin_ms || moment.at_ms > span.end_ms) return span.name + ": a moment outside of it";
    }
    std::set<std::string> keys;
    for (const auto& [key, value] : span.attributes) {
      if (!keys.insert(key).second) return span.name + ": two attributes " + key;
    }
    if (span.parent == 0) continue;
    const auto parent = known.find(span.parent);
    if (parent == known.end()) return span.name + ": its parent is not before it";
    if (span.begin_ms < parent->second->begin_ms || span.end_ms > parent->second->end_ms)
      return fmt::format("{}: [{}, {}] is not within [{}, {}]", span.name, span.begin_ms, span.end_ms,
                         parent->second->begin_ms, parent->second->end_ms);
    if (parent->second->parent == 0) continue;
    double& end = filled.try_emplace(span.parent, parent->second->begin_ms).first->second;
    if (span.begin_ms < end) return span.name + ": overlaps the span before it";
    end = span.end_ms;
  }
  for (const TraceSpan& span : trace.spans) {
    for (const std::uint64_t input : span.inputs) {
      if (known.count(input) == 0) return span.name + ": reads a span that is not there";
    }
  }
  return {};
}

/// The first thing that is wrong with the slices: on each row, two either do not overlap, or one holds the other.
inline std::string wrong_in_chrome(const RunTrace& trace) {
  const auto json = nlohmann::json::parse(chrome_json(trace));
  std::map<int, std::vector<std::pair<long long, long long>>> rows;  // ns
  std::size_t slices = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const long long begin = std::llround(event.at("ts").get<double>() * 1000);
    const long long length = std::llround(event.at("dur").get<double>() * 1000);
    if (length < 0) return "a negative duration";
    rows[event.at("tid").get<int>()].emplace_back(begin, begin + length);
    ++slices;
  }
  if (slices < trace.spans.size()) return "a span is missing";
  for (auto& [row, all] : rows) {
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first < b.first || (a.first == b.first && a.second > b.second);
    });
    std::vector<long long> open;
    for (const auto& [begin, end] : all) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty() && end > open.back()) return fmt::format("row {}: slices cross at {} ns", row, begin);
      open.push_back(end);
    }
  }
  return {};
}

}  // namespace baton::test
