// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/bench_json.h"

#include <baton/reuse_method.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const BenchBreakdown& parts) {
  return {{"match", parts.match},
          {"copy", parts.copy},
          {"full_layers", parts.full_layers},
          {"detect", parts.detect},
          {"sparse_layers", parts.sparse_layers},
          {"tail", parts.tail},
          {"other", parts.other}};
}

OrderedJson json_of(const BenchMethod& method) {
  OrderedJson agents = OrderedJson::array();
  for (const auto& agent : method.agents) {
    agents.push_back({{"agent", agent.agent},
                      {"prompt_tokens", agent.prompt_tokens},
                      {"ttft_ms", agent.ttft_ms},
                      {"kv_reuse_rate", agent.kv_reuse_rate},
                      {"breakdown_ms", json_of(agent.breakdown_ms)}});
    if (method.row_ms > 0) agents.back()["decode_ms_per_token"] = agent.decode_ms_per_token;
    if (const ReuseMethod* found = find_reuse_method(method.method); !found || !found->ahead) continue;
    agents.back()["ahead_rate"] = agent.ahead_rate;
    agents.back()["text_pass_ms"] = agent.text_pass_ms;
  }
  OrderedJson json = {{"method", method.method}};
  if (method.anchors > 0) json["anchors"] = method.anchors;
  if (method.select > 0) json["select"] = method.select;
  json["agents"] = std::move(agents);
  json["wall_ms"] = method.wall_ms;
  if (method.row_ms > 0) json["row_ms"] = method.row_ms;
  return json;
}

OrderedJson json_of(const std::vector<BenchMethod>& methods) {
  OrderedJson json = OrderedJson::array();
  for (const auto& method : methods) json.push_back(json_of(method));
  return json;
}

OrderedJson json_of(const BenchCase& one) {
  OrderedJson json = {{"prefix", one.prefix}, {"output", one.output}, {"methods", json_of(one.methods)}};
  if (!one.error.empty()) json["error"] = one.error;
  return json;
}

OrderedJson json_of(const BenchMemory& memory) {
  return {{"method", memory.method},
          {"cache", memory.cache},
          {"cache_recording", memory.cache_recording},
          {"ahead", memory.ahead},
          {"keys_values", memory.keys_values},
          {"hidden", memory.hidden},
          {"received", memory.received},
          {"entropy", memory.entropy},
          {"ids", memory.ids},
          {"anchor", memory.anchor}};
}

/// The value itself where there is one.
template <typename T>
OrderedJson one_or_more(const std::vector<T>& values) {
  return values.size() == 1 ? OrderedJson(values.front()) : OrderedJson(values);
}

OrderedJson json_of(const RowCosts& costs) {
  OrderedJson steps = OrderedJson::array();
  for (const auto& step : costs.steps) steps.push_back({{"rows", step.rows}, {"ms", step.ms}});
  return {{"depth", costs.depth}, {"slowdown", costs.slowdown}, {"knee", costs.knee}, {"steps", std::move(steps)}};
}

}  // namespace

OrderedJson json_of(const BenchResult& result, const BenchOptions& options) {
  OrderedJson prefill = OrderedJson::array(), decode = OrderedJson::array();
  for (const auto& line : result.prefill) {
    prefill.push_back({{"tokens", line.tokens}, {"tokens_per_s", line.tokens_per_s}, {"share", line.share}});
  }
  for (const auto& line : result.decode) {
    decode.push_back({{"depth", line.depth},
                      {"rows", line.rows},
                      {"tokens_per_s", line.tokens_per_s},
                      {"share", line.share},
                      {"recording", line.recording}});
  }
  OrderedJson json = {{"schema", 1},
                      {"device", result.device},
                      {"shape", result.shape},
                      {"dtype", result.dtype},
                      {"activations", result.activations},
                      {"threads", result.threads},
                      {"params",
                       {{"layers", result.layers},
                        {"layers_range", result.layers_range},
                        {"agents", options.agents},
                        {"prefix", one_or_more(options.prefix)},
                        {"question", options.question},
                        {"output", one_or_more(options.output)},
                        {"select", one_or_more(options.select)},
                        {"from_host", options.from_host},
                        {"seed", options.seed},
                        {"repeat", result.repeat}}},
                      {"limits", {{"gemm_gflops", result.gemm_gflops}, {"bandwidth_gbs", result.bandwidth_gbs}}},
                      {"logits_hash", result.logits_hash},
                      {"prefill", std::move(prefill)},
                      {"decode", std::move(decode)},
                      {"methods", json_of(result.methods)},
                      {"memory",
                       {{"weights_bytes", result.weights_bytes},
                        {"kv_bytes_per_token", result.kv_bytes_per_token},
                        {"segment_bytes_per_token", result.segment_bytes_per_token},
                        {"kv_peak_bytes", result.kv_peak_bytes},
                        {"segments_peak_bytes", result.segments_peak_bytes}}},
                      {"load_ms", result.load_ms},
                      {"complete", result.complete}};
  if (result.row_costs) json["row_costs"] = json_of(*result.row_costs);
  if (options.prefix.size() * options.output.size() > 1) {
    json["cases"] = OrderedJson::array();
    for (const auto& one : result.cases) json["cases"].push_back(json_of(one));
  }
  if (options.memory) {
    json["memory"]["by_method"] = OrderedJson::array();
    for (const auto& one : result.memory) json["memory"]["by_method"].push_back(json_of(one));
  }
  return json;
}

}  // namespace baton::cli
