// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>

#include <unordered_map>
#include <utility>

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kConventions = "https://opentelemetry.io/schemas/1.41.0";
constexpr int kInternal = 1, kClient = 3;  // SpanKind
constexpr int kError = 2;                  // Status
constexpr double kMaxMs = 1e12;            // since the run started: what fits 64 bits of nanoseconds

/// Numbers of 64 bits are texts in the JSON of protocol buffers.
OrderedJson otlp_of(const SpanValue& value) {
  struct {
    OrderedJson operator()(bool truth) const { return {{"boolValue", truth}}; }
    OrderedJson operator()(std::int64_t number) const { return {{"intValue", std::to_string(number)}}; }
    OrderedJson operator()(double number) const { return {{"doubleValue", std::isfinite(number) ? number : 0.0}}; }
    OrderedJson operator()(const std::string& text) const { return {{"stringValue", text}}; }
    OrderedJson operator()(const std::vector<std::string>& texts) const {
      OrderedJson values = OrderedJson::array();
      for (const std::string& text : texts) values.push_back({{"stringValue", text}});
      return {{"arrayValue", {{"values", std::move(values)}}}};
    }
  } json;
  return std::visit(json, value);
}

OrderedJson otlp_of(const SpanAttributes& attributes) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [key, value] : attributes) list.push_back({{"key", key}, {"value", otlp_of(value)}});
  return list;
}

std::string hex(std::uint64_t id) { return fmt::format("{:016x}", id); }

std::string time_of(const RunTrace& trace, double ms) {
  return std::to_string(trace.start_unix_ns + std::llround(std::min(ms, kMaxMs) * 1e6));
}

OrderedJson otlp_of(const RunTrace& trace, const TraceSpan& span) {
  OrderedJson json = {{"traceId", trace.id}, {"spanId", hex(span.id)}};
  if (span.parent != 0) json["parentSpanId"] = hex(span.parent);
  json["name"] = span.name;
  json["kind"] = span.calls_out ? kClient : kInternal;
  json["startTimeUnixNano"] = time_of(trace, span.begin_ms);
  json["endTimeUnixNano"] = time_of(trace, span.end_ms);
  json["attributes"] = otlp_of(span.attributes);
  for (const SpanMoment& moment : span.moments) {
    json["events"].push_back({{"timeUnixNano", time_of(trace, moment.at_ms)},
                              {"name", moment.name},
                              {"attributes", otlp_of(moment.attributes)}});
  }
  for (const std::uint64_t input : span.inputs)
    json["links"].push_back({{"traceId", trace.id}, {"spanId", hex(input)}});
  json["status"] = span.failed ? OrderedJson{{"code", kError}} : OrderedJson::object();
  return json;
}

}  // namespace

std::string otlp_json(const RunTrace& trace, const std::map<std::string, std::string>& resource) {
  OrderedJson spans = OrderedJson::array();
  for (const TraceSpan& span : trace.spans) spans.push_back(otlp_of(trace, span));
  SpanAttributes of_resource;
  for (const auto& [key, value] : resource) of_resource.emplace_back(key, value);
  const OrderedJson scoped = {{"scope", {{"name", "baton"}, {"version", trace.version}}},
                              {"spans", std::move(spans)},
                              {"schemaUrl", kConventions}};
  const OrderedJson all = {{"resource", {{"attributes", otlp_of(of_resource)}}},
                           {"scopeSpans", OrderedJson::array({scoped})}};
  const OrderedJson request = {{"resourceSpans", OrderedJson::array({all})}};
  return request.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kProcess = 1;

OrderedJson chrome_args_of(const SpanAttributes& attributes) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, value] : attributes)
    json[key] = std::visit([](const auto& one) { return OrderedJson(one); }, value);
  return json;
}

/// Microseconds, to the nanosecond.
double us(double ms) { return std::round(ms * 1e6) / 1e3; }
double us_between(double begin_ms, double end_ms) {
  return (std::round(end_ms * 1e6) - std::round(begin_ms * 1e6)) / 1e3;
}

class ChromeTrace {
 public:
  explicit ChromeTrace(const RunTrace& trace) : trace_(trace) {}

  OrderedJson events() {
    add_name("process_name", 0, trace_.spans.empty() ? "" : trace_.spans.front().name);
    for (const TraceSpan& span : trace_.spans) add(span);
    for (const TraceSpan& span : trace_.spans) {
      for (const std::uint64_t input : span.inputs) add_arrow(*spans_.at(input), span);
    }
    return std::move(events_);
  }

 private:
  void add_name(const char* what, std::size_t row, const std::string& name) {
    events_.push_back({{"ph", "M"}, {"name", what}, {"pid", kProcess}, {"tid", row}, {"args", {{"name", name}}}});
  }

  /// Of a turn: a row of its agent that is free then.
  std::size_t row_of(const TraceSpan& span) {
    if (const auto parent = row_of_.find(span.parent); parent != row_of_.end() && parent->second != 0)
      return parent->second;
    std::multimap<double, std::size_t>& rows = free_[span.agent];
    std::size_t row = rows_;
    if (!rows.empty() && rows.begin()->first <= span.begin_ms) {
      row = rows.begin()->second;
      rows.erase(rows.begin());
    } else {
      add_name("thread_name", rows_++, span.agent.empty() ? "run" : span.agent);
    }
    rows.emplace(span.end_ms, row);
    return row;
  }

  void add_slice(const std::string& name, std::size_t row, double begin_ms, double end_ms, OrderedJson args) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", "baton"},
                       {"pid", kProcess},
                       {"tid", row},
                       {"ts", us(begin_ms)},
                       {"dur", std::max(0.0, us_between(begin_ms, end_ms))},
                       {"args", std::move(args)}});
  }

  void add(const TraceSpan& span) {
    const std::size_t row = row_of(span);
    row_of_[span.id] = row;
    spans_[span.id] = &span;
    OrderedJson args = chrome_args_of(span.attributes);
    if (span.failed) args["failed"] = true;
    for (const SpanMoment& moment : span.moments) {
      if (moment.attributes.empty()) continue;
      args[moment.name].push_back(chrome_args_of(moment.attributes));
    }
    add_slice(span.name, row, span.begin_ms, span.end_ms, std::move(args));
    for (const SpanMoment& moment : span.moments) {
      if (!moment.attributes.empty()) continue;  // the first token: before it the prompt, then the answer
      add_slice("prefill", row, span.begin_ms, moment.at_ms, OrderedJson::object());
      add_slice("decode", row, moment.at_ms, span.end_ms, OrderedJson::object());
    }
  }

  /// From the end of one turn, one microsecond before it, so that it is still within it, to the beginning of another.
  void add_arrow(const TraceSpan& from, const TraceSpan& to) {
    OrderedJson start = {{"ph", "s"}, {"name", "answer"}, {"cat", "baton"}, {"id", ++arrows_}, {"pid", kProcess}};
    OrderedJson end = start;
    start["tid"] = row_of_.at(from.id);
    start["ts"] = std::max(us(from.begin_ms), us(from.end_ms) - 1);
    end["ph"] = "f";
    end["bp"] = "e";
    end["tid"] = row_of_.at(to.id);
    end["ts"] = us(to.begin_ms);
    events_.push_back(std::move(start));
    events_.push_back(std::move(end));
  }

  const RunTrace& trace_;
  OrderedJson events_ = OrderedJson::array();
  std::size_t rows_ = 0;
  std::map<std::string, std::multimap<double, std::size_t>> free_;  // rows of an agent, by the end of their last slice
  std::unordered_map<std::uint64_t, std::size_t> row_of_;           // by span
  std::unordered_map<std::uint64_t, const TraceSpan*> spans_;
  int arrows_ = 0;
};

}  // namespace

std::string chrome_json(const RunTrace& trace) {
  const OrderedJson all = {{"displayTimeUnit", "ms"},
                           {"otherData", {{"trace", trace.id}, {"start_unix_ns", std::to_string(trace.start_unix_ns)}}},
                           {"traceEvents", ChromeTrace(trace).events()}};
  return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace baton
