// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace baton::serve {
namespace {

class PrometheusText {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  /// `labels`: "a=\"b\"", of values that need no escapes, or empty.
  template <typename Number>
  void sample(std::string_view name, std::string_view labels, Number value) {
    const char* open = labels.empty() ? "" : "{";
    const char* close = labels.empty() ? "" : "}";
    fmt::format_to(std::back_inserter(text_), "{}{}{}{} {}\n", name, open, labels, close, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

TokenCounts tokens_of(const RunRecord& record) {
  TokenCounts tokens;
  for (const AgentRecord& agent : record.agents) {
    tokens.prompt += agent.prompt_tokens;
    tokens.completion += agent.output_tokens + agent.thinking_tokens;
    tokens.thinking += agent.thinking_tokens;
    if (agent.kv.entries <= 0) continue;
    const double layers = static_cast<double>(agent.kv.entries) / static_cast<double>(agent.prompt_tokens);
    tokens.relayed += static_cast<std::int64_t>(static_cast<double>(agent.kv.reused) / layers);
    tokens.ahead += static_cast<std::int64_t>(static_cast<double>(agent.kv.ahead) / layers);
  }
  return tokens;
}

void Metrics::count_request(std::string_view path, const std::string& model, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{std::string(path), model, status}];
}

void Metrics::count_tokens(const std::string& model, const TokenCounts& tokens) {
  const std::lock_guard lock(mutex_);
  TokenCounts& all = tokens_[model];
  all.prompt += tokens.prompt;
  all.completion += tokens.completion;
  all.relayed += tokens.relayed;
  all.ahead += tokens.ahead;
}

void Metrics::count_first_token(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  Histogram& histogram = first_tokens_[model];
  ++histogram.count;
  histogram.sum += seconds;
  const auto* const bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  if (bucket != kBounds.end()) ++histogram.counts[static_cast<std::size_t>(bucket - kBounds.begin())];
}

std::string Metrics::text(const ServerLoad& load) const {
  const std::lock_guard lock(mutex_);
  PrometheusText out;
  out.family("baton_requests_total", "counter", "Requests that were answered, by path, workflow and status.");
  for (const auto& [key, count] : requests_)
    out.sample("baton_requests_total",
               fmt::format(R"(path="{}",model="{}",status="{}")", key.path, key.model, key.status), count);
  const auto tokens = [&](std::string_view name, std::string_view help, std::int64_t TokenCounts::*member) {
    out.family(name, "counter", help);
    for (const auto& [model, counts] : tokens_) out.sample(name, fmt::format(R"(model="{}")", model), counts.*member);
  };
  tokens("baton_prompt_tokens_total", "Tokens of the prompts of all agents.", &TokenCounts::prompt);
  tokens("baton_completion_tokens_total", "Tokens that all agents wrote.", &TokenCounts::completion);
  tokens("baton_relayed_tokens_total", "Prompt tokens whose KV was reused.", &TokenCounts::relayed);
  tokens("baton_ahead_tokens_total", "Prompt tokens that were computed ahead of their turns.", &TokenCounts::ahead);
  out.family("baton_time_to_first_token_seconds", "histogram",
             "From the arrival of a request to the first text of its answer.");
  for (const auto& [model, histogram] : first_tokens_) {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < kBounds.size(); ++i) {
      below += histogram.counts[i];
      out.sample("baton_time_to_first_token_seconds_bucket", fmt::format(R"(model="{}",le="{}")", model, kBounds[i]),
                 below);
    }
    out.sample("baton_time_to_first_token_seconds_bucket", fmt::format(R"(model="{}",le="+Inf")", model),
               histogram.count);
    out.sample("baton_time_to_first_token_seconds_sum", fmt::format(R"(model="{}")", model), histogram.sum);
    out.sample("baton_time_to_first_token_seconds_count", fmt::format(R"(model="{}")", model), histogram.count);
  }
  const auto gauge = [&](std::string_view name, std::string_view help, int value) {
    out.family(name, "gauge", help);
    out.sample(name, "", value);
  };
  gauge("baton_requests_running", "Requests whose workflow runs.", load.running);
  gauge("baton_requests_waiting", "Requests that wait for another to end.", load.waiting);
  gauge("baton_connections", "Open connections.", load.connections);
  return out.take();
}

}  // namespace baton::serve
