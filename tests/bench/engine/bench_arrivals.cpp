// SPDX-License-Identifier: Apache-2.0
// baton_bench_arrivals: one agent decodes while several long prompts arrive at once. It prints how much of its speed
// the agent keeps, the longest gap between its tokens, and how long the prompts take compared with their time without
// it. Usage: baton_bench_arrivals MODEL [--prompts 3] [--tokens 1700] [--slowdown 0] [--shared]
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/local_engine.h"
#include "engine/registry.h"

namespace {

using namespace baton;

struct Options {
  std::string model;
  int prompts = 3;
  int tokens = 1700;
  double slowdown = 0;
  bool shared = false;  // the prompts have all but their last 20 tokens in common
};

/// Random tokens that differ from run to run, so that no prefix of an earlier run is reused.
std::vector<TokenId> random_tokens(int count, std::uint64_t seed) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    tokens.push_back(static_cast<TokenId>(100 + (seed >> 33) % 5000));
  }
  return tokens;
}

GenerationRequest request_of(std::vector<TokenId> tokens, int max_tokens) {
  GenerationRequest request;
  request.prompt = {{"", std::move(tokens)}};
  request.max_tokens = max_tokens;
  request.reuse.method = find_method("prefix");
  return request;
}

/// A request that decodes fixed tokens until they are over or it is cancelled, and the times of its tokens.
class Decoder {
 public:
  explicit Decoder(InferenceEngine& engine) : engine_(engine) {
    GenerationRequest request = request_of(random_tokens(64, 7), 1);  // `forced` sets the length
    request.forced = random_tokens(1800, 8);
    request.callbacks.on_token = [this](TokenId, const std::string&) {
      const std::lock_guard lock(mutex_);
      times_.push_back(Clock::now());
      if (times_.size() == kWarm) warm_.set_value();
    };
    request.callbacks.on_finished = [this](GenerationResult) { over_.set_value(); };
    id_ = engine.submit(std::move(request));
  }
  void wait_until_warm() { warm_.get_future().wait(); }
  std::vector<Clock::time_point> wait() {
    over_.get_future().wait();
    return times_;
  }
  std::vector<Clock::time_point> stop() {
    engine_.cancel(id_);
    return wait();
  }

 private:
  static constexpr std::size_t kWarm = 100;
  InferenceEngine& engine_;
  RequestId id_ = 0;
  std::mutex mutex_;
  std::vector<Clock::time_point> times_;
  std::promise<void> warm_, over_;
};

struct Gaps {
  double mean = 0, longest = 0;  // milliseconds
  double mean_alone = 0;         // of the same tokens, without prompts: a token costs more the more are before it
  std::size_t count = 0;
};

Gaps gaps_between(const std::vector<Clock::time_point>& times, const std::vector<Clock::time_point>& alone,
                  Clock::time_point begin, Clock::time_point end) {
  Gaps gaps;
  for (std::size_t i = 1; i < std::min(times.size(), alone.size()); ++i) {
    if (times[i - 1] < begin || times[i] > end) continue;
    const double gap = milliseconds(times[i] - times[i - 1]);
    gaps.mean += gap;
    gaps.mean_alone += milliseconds(alone[i] - alone[i - 1]);
    gaps.longest = std::max(gaps.longest, gap);
    ++gaps.count;
  }
  if (gaps.count > 0) {
    gaps.mean /= static_cast<double>(gaps.count);
    gaps.mean_alone /= static_cast<double>(gaps.count);
  }
  return gaps;
}

/// Submits prompts at once and returns the seconds until each has its first token.
std::vector<double> prefill(InferenceEngine& engine, const Options& options, int prompts, std::uint64_t seed) {
  std::vector<std::future<Clock::time_point>> firsts;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < prompts; ++i) {
    const int common = options.shared ? options.tokens - 20 : 0;
    std::vector<TokenId> tokens = random_tokens(common, seed);
    const auto own = random_tokens(options.tokens - common, seed + 1 + static_cast<std::uint64_t>(i));
    tokens.insert(tokens.end(), own.begin(), own.end());
    GenerationRequest request = request_of(std::move(tokens), 1);
    auto first = std::make_shared<std::promise<Clock::time_point>>();
    firsts.push_back(first->get_future());
    request.callbacks.on_finished = [first](GenerationResult) { first->set_value(Clock::now()); };
    engine.submit(std::move(request));
  }
  std::vector<double> seconds;
  for (auto& first : firsts) seconds.push_back(milliseconds(first.get() - begin) / 1000);
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

std::string listed(const std::vector<double>& seconds) {
  std::string text;
  for (const double one : seconds) text += fmt::format("{}{:.2f}", text.empty() ? "" : ", ", one);
  return text;
}

void run(const Options& options) {
  LocalEngineOptions own;
  own.slowdown = options.slowdown;
  own.max_draft = 0;  // tokens come one by one
  own.device = "cpu";
  const auto engine = open_engine(options.model, own);
  const double one = prefill(*engine, options, 1, 1000).back();
  const std::vector<double> alone = prefill(*engine, options, options.prompts, 2000);
  fmt::print("without an agent that decodes: one prompt {:.2f} s; {} prompts {} s\n", one, options.prompts,
             listed(alone));
  const std::vector<Clock::time_point> undisturbed = Decoder(*engine).wait();
  Decoder decoder(*engine);
  decoder.wait_until_warm();
  const Clock::time_point arrived = Clock::now();
  const std::vector<double> together = prefill(*engine, options, options.prompts, 3000);
  const Clock::time_point done = Clock::now();
  const EngineStats stats = engine->stats();
  const auto times = decoder.stop();
  const Gaps during = gaps_between(times, undisturbed, arrived, done);
  fmt::print("while an agent decodes: {} prompts {} s, {:.2f} x their time without it\n", options.prompts,
             listed(together), together.back() / alone.back());
  fmt::print(
      "the agent: {:.1f} tokens/s, {:.1f} for the same tokens without prompts ({:.0f} %, {} tokens); longest gap "
      "{:.1f} "
      "ms, {:.1f} x the mean of {:.1f} ms; {} rows fit into a step\n",
      1000 / during.mean, 1000 / during.mean_alone, 100 * during.mean_alone / during.mean, during.count, during.longest,
      during.longest / during.mean, during.mean, stats.spare_rows);
}

}  // namespace

int main(int count, char** values) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const bool more = i + 1 < count;
    if (more && std::strcmp(values[i], "--prompts") == 0) {
      options.prompts = std::max(1, std::atoi(values[++i]));
    } else if (more && std::strcmp(values[i], "--tokens") == 0) {
      options.tokens = std::max(40, std::atoi(values[++i]));
    } else if (more && std::strcmp(values[i], "--slowdown") == 0) {
      options.slowdown = std::atof(values[++i]);
    } else if (std::strcmp(values[i], "--shared") == 0) {
      options.shared = true;
    } else if (options.model.empty() && values[i][0] != '-') {
      options.model = values[i];
    } else {
      std::fprintf(stderr, "usage: %s MODEL [--prompts N] [--tokens N] [--slowdown FRACTION] [--shared]\n", values[0]);
      return 2;
    }
  }
  if (options.model.empty()) {
    std::fprintf(stderr, "usage: %s MODEL [--prompts N] [--tokens N] [--slowdown FRACTION] [--shared]\n", values[0]);
    return 2;
  }
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
