// SPDX-License-Identifier: Apache-2.0
// The host's part of steps of real shapes, over a device that does nothing: how much of decoding is replayed, what is
// sent, and, when asked for by name, how long it takes ([host_time]; docs/performance/gpu.md).
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "engine/cuda/host/runtime.h"
#include "engine/loop/step_engine.h"
#include "engine/model/forward.h"
#include "engine/model/model.h"
#include "engine/registry.h"
#include "engine/reuse/anchors/anchors.h"
#include "engine/reuse/rectify/rectify.h"
#include "tests/support/asking.h"

namespace baton::test::host_part_test {
namespace {

/// Marks that lie no time apart.
class IdleMarks final : public cuda::StreamMarks {
 public:
  void mark() override { ++marks_; }
  std::vector<double> take() override {
    const std::size_t marks = std::exchange(marks_, 0);
    return std::vector<double>(marks > 0 ? marks - 1 : 0, 0.0);
  }

 private:
  std::size_t marks_ = 0;
};

/// Addresses without memory, launches that are forgotten.
class IdleRuntime final : public cuda::Runtime {
 public:
  const cuda::DeviceFacts& facts() const override { return facts_; }
  std::int64_t free_bytes() const override { return std::int64_t{1} << 37; }
  cuda::Stream stream() override {
    forgotten_.clear();
    return {nullptr, &forgotten_};
  }
  void* allocate(std::size_t bytes) override {
    const std::uintptr_t data = next_;
    next_ += (bytes + 255) / 256 * 256;
    return reinterpret_cast<void*>(data);
  }
  void release(void*) noexcept override {}
  void* allocate_pinned(std::size_t bytes) override { return std::calloc(1, bytes); }
  void release_pinned(void* data) noexcept override { std::free(data); }
  void clear(void*, std::size_t) override {}
  void copy_to_device(void*, const void*, std::size_t) override { ++sent; }
  void copy_to_host(void* host, const void*, std::size_t bytes) override { std::memset(host, 0, bytes); }
  TransferId transfer(const cuda::Transfer&) override { return ++transfers; }
  void follow(TransferId) override {}
  void wait_for(TransferId) override {}
  void multiply(const cuda::Product&) override {}
  void begin_capture() override {}
  std::unique_ptr<cuda::Graph> end_capture() override { return std::make_unique<cuda::Graph>(); }
  void replay(const cuda::Graph&) override { ++replays; }
  cuda::StreamMarks& marks() override { return marks_; }
  void record(int) override {}
  void wait(int) override {}
  void wait_for_stream() override {}
  void synchronize() override {}

  int sent = 0, replays = 0;
  TransferId transfers = 0;

 private:
  cuda::LaunchLog forgotten_;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
  cuda::DeviceFacts facts_{"idle", "a device that does nothing", 132};
  IdleMarks marks_;
};

struct Idle {
  explicit Idle(const std::string& shape, std::int32_t context) {
    auto owned = std::make_unique<IdleRuntime>();
    runtime = owned.get();
    backend = cuda::make_backend_over(std::move(owned));
    ModelOptions options;
    options.context = context;
    model = make_random_model(*backend, find_shape(shape), 1, options);
    forward = std::make_unique<Forward>(*backend, *model);
    forward->angles().reserve(context);
  }
  /// Microseconds of the host.
  double run(StepRows& rows) {
    const auto begin = std::chrono::steady_clock::now();
    forward->run(rows);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

  IdleRuntime* runtime;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Forward> forward;
};

/// Decodes with `sequences` at a depth of about 1000 and returns the median step.
double decode(Idle& idle, int sequences, int steps) {
  std::vector<KvCache> caches;
  for (int i = 0; i < sequences; ++i) {
    caches.emplace_back(*idle.backend, idle.model->kv_layout(), 4096);
    caches.back().commit(1000 + i);
  }
  std::vector<double> times;
  for (int step = 0; step < steps; ++step) {
    StepRows rows;
    for (KvCache& cache : caches) {
      rows.add_row(rows.add_cache(&cache), cache.length(), step % 200);
      rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()) - 1);
      rows.choices.emplace_back();
    }
    times.push_back(idle.run(rows));
    for (KvCache& cache : caches) cache.commit(cache.length() + 1);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

TEST_CASE("decode steps of real shapes are replayed, and little is sent", "[replay]") {
  for (const char* shape : {"llama-3.1-8b", "qwen3-0.6b"}) {
    for (const int sequences : {1, 8}) {
      Idle idle(shape, 4096);
      decode(idle, sequences, 20);
      const int sent = idle.runtime->sent, replays = idle.runtime->replays;
      decode(idle, sequences, 200);  // other caches: new addresses once, and some sizes of the plan
      INFO(shape << ", " << sequences << " sequences: " << idle.runtime->replays - replays << " replays, "
                 << idle.runtime->sent - sent << " copies to the device");
      CHECK(idle.runtime->replays - replays >= 190);
      CHECK(idle.runtime->sent - sent <= 200 * 6 + 200);
    }
  }
}

TEST_CASE("the time of the host's part", "[.][host_time]") {
  std::printf("%-14s %-24s %12s\n", "shape", "step", "host, us");
  for (const char* shape : {"llama-3.1-8b", "qwen3-0.6b", "smollm2-135m"}) {
    Idle idle(shape, 4096);
    for (const int sequences : {1, 8, 32})
      std::printf("%-14s decode, %2d sequences     %12.0f\n", shape, sequences, decode(idle, sequences, 600));
    const std::int32_t layers = idle.model->config.layers, tokens = 3584;
    KvLayout layout = idle.model->kv_layout();
    layout.hidden_width = idle.model->config.width;
    layout.hidden_layer = 1;
    KvCache cache(*idle.backend, layout, 4096);
    for (const bool relay : {false, true}) {
      std::vector<double> times;
      for (int repeat = 0; repeat < 9; ++repeat) {
        StepRows rows;
        rows.add_cache(&cache);
        for (std::int32_t at = 0; at < tokens; ++at) {
          const bool reused = relay && at >= 512 && at < tokens - 16;
          rows.add_row(0, at, at % 250);
          rows.path.push_back(reused ? RowPath{1, 4, 0, true} : RowPath{0, layers, -1});
        }
        const auto every_sixth = [](std::span<const float> deviation, std::span<const float>) {
          std::vector<bool> chosen(deviation.size());
          for (std::size_t i = 0; i < chosen.size(); i += 6) chosen[i] = true;
          return chosen;
        };
        if (relay) rows.detections.push_back({3, 18, every_sixth});
        rows.logits_rows.push_back(tokens - 1);
        rows.choices.emplace_back();
        times.push_back(idle.run(rows));
      }
      std::nth_element(times.begin(), times.begin() + 4, times.end());
      std::printf("%-14s %s of %d tokens %12.0f\n", shape, relay ? "relay  " : "prefill", tokens, times[4]);
    }
  }
}

/// Gives each placeholder of the prompt 20 anchors of other texts. Their offsets lie in one place: nobody reads them.
void add_anchors(LocalEngine& engine, const std::vector<PromptPart>& prompt, const std::string& pool) {
  std::mt19937 random(static_cast<unsigned>(pool.size()));
  const KvWidth shape = width_of(engine.model().kv_layout());
  static const std::vector<std::uint16_t> offsets(std::size_t{1} << 27);
  const std::vector<PlaceKey> places = places_of(prompt, pool);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    for (std::uint64_t a = 0; a < 20 && prompt[i].segment; ++a) {
      auto text = std::make_shared<SketchedText>();
      text->tokens = prompt[i].tokens;  // in another order
      std::shuffle(text->tokens.begin(), text->tokens.end(), random);
      text->hash = hash_of(text->tokens);
      text->sketch.resize(text->tokens.size() * SketchedText::kSketch);
      auto anchor = std::make_shared<Anchor>();
      anchor->shape = shape;
      anchor->length = static_cast<std::int32_t>(text->tokens.size());
      anchor->text = std::move(text);
      const std::size_t numbers = prompt[i].tokens.size() * static_cast<std::size_t>(2 * shape.total());
      anchor->offset = std::span(offsets).first(numbers);
      anchor_store_of(*engine.method_state(anchors_method())).add(places[i], std::move(anchor), 20);
    }
  }
}

/// The last of five agents in a row, each of which reads a role text, a question and what the others answered.
GenerationResult last_of_five(const std::string& shape, std::int32_t role, std::int32_t question, std::int32_t answer,
                              const std::string& method, LayerRange range, bool from_host) {
  auto backend = cuda::make_backend_over(std::make_unique<IdleRuntime>());
  ModelOptions options;
  options.context = 8192;
  auto model = make_random_model(*backend, find_shape(shape), 1, options);
  constexpr std::int64_t kPlenty = std::int64_t{1} << 40;
  StepEngine engine(std::move(backend), std::move(model),
                    {.kv_budget_bytes = kPlenty,
                     .segment_budget_bytes = kPlenty,
                     .host_segment_budget_bytes = kPlenty,
                     .method_budget_bytes = kPlenty});
  const auto words = [](std::int32_t n, std::uint64_t seed) {
    return random_tokens(static_cast<std::size_t>(n), seed);
  };
  const auto answer_of = [&](GenerationRequest request) {
    std::promise<GenerationResult> done;
    request.callbacks.on_finished = [&](GenerationResult r) { done.set_value(std::move(r)); };
    engine.submit(std::move(request));
    GenerationResult result = done.get_future().get();
    INFO(result.error);
    REQUIRE(result.error.empty());
    return result;
  };
  std::vector<PromptPart> prompt = {{}, {"question", words(question, 2), nullptr, 9}};
  GenerationResult result;
  for (std::uint64_t agent = 1; agent <= 5; ++agent) {
    prompt[0].tokens = words(role, 50 + agent);
    GenerationRequest known;
    known.prompt = {prompt[0]};
    known.reuse.method = find_method("prefix");
    known.reuse.record = true;  // with the hidden states that rectify wants
    known.reuse.range = range;
    known.forced = {1};
    answer_of(std::move(known));
    prompt.push_back({"", words(4, 3), nullptr, 0});
    GenerationRequest request;
    request.prompt = prompt;
    request.reuse.method =
        find_method(method == "anchors" && agent < 5 ? "direct" : method);  // learns nothing by itself
    request.reuse.record = takes_segments(request.reuse);
    request.reuse.range = range;
    if (request.reuse.method->name == "rectify") own<RectifyOptions>(request.reuse).selection.share = 0.18;
    if (request.reuse.method->name == "anchors") {  // once before, so that they are on the device
      own<AnchorOptions>(request.reuse).gate = AnchorOptions::Gate::none;
      own<AnchorOptions>(request.reuse).check = 0;
      own<AnchorOptions>(request.reuse).pool = "first";
      add_anchors(engine, prompt, "first");
      GenerationRequest first = request;
      first.reuse.prefix = false;
      first.forced = {1};
      answer_of(std::move(first));
      own<AnchorOptions>(request.reuse).pool = "second";
      add_anchors(engine, prompt, "second");
    }
    request.output_readers = 9;
    request.forced = words(answer, 10 + agent);
    if (from_host) engine.park();
    result = answer_of(std::move(request));
    if (agent == 1) prompt[1].segment = result.segments[1];
    prompt[1].readers = 0;
    prompt.push_back({"answer" + std::to_string(agent), words(answer, 10 + agent), result.output, 0});
  }
  REQUIRE((engine.stats().segments.uploaded > 0) == from_host);
  for (std::size_t i = 0; i < result.uses.size() && method == "anchors"; ++i) {
    if (!prompt[i].segment) continue;
    INFO(i << ": " << result.uses[i].reason);
    REQUIRE(!result.uses[i].numbers.empty());
    REQUIRE(result.uses[i].numbers[0].value == 20);
  }
  return result;
}

TEST_CASE("the time of the host's part of a first token", "[.][host_time]") {
  std::printf("%-14s %-12s %10s %10s   (medians of five)\n", "shape", "method", "match, us", "all, us");
  struct Setup {
    const char* shape;
    std::int32_t role, question, answer;
    LayerRange range;
  };
  for (const Setup& s :
       {Setup{"llama-3.1-8b", 512, 1000, 512, {1, 3, 18}}, {"qwen3-0.6b", 128, 1000, 1000, {2, 3, 19}}}) {
    for (const char* name :
         {"full", "prefix", "direct", "epic", "rectify", "anchors", "direct, host", "rectify, host"}) {
      const std::string method = std::string(name).substr(0, std::string(name).find(','));
      std::vector<GenerationResult> runs;
      for (int i = 0; i < 5; ++i)
        runs.push_back(last_of_five(s.shape, s.role, s.question, s.answer, method, s.range, method != name));
      const auto median = [&](const auto& of) {
        std::vector<double> values;
        for (const GenerationResult& run : runs) values.push_back(1000.0 * of(run));
        std::nth_element(values.begin(), values.begin() + 2, values.end());
        return values[2];
      };
      std::printf("%-14s %-12s %10.0f %10.0f\n", s.shape, name, median([](const auto& r) { return r.prefill.match; }),
                  median([](const auto& r) { return r.ttft_ms; }));
    }
  }
}

}  // namespace
}  // namespace baton::test::host_part_test
