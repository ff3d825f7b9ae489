// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/otlp.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

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

}  // namespace baton
