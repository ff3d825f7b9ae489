// SPDX-License-Identifier: Apache-2.0
// A replayed step does what the step would have done: compared, bit for bit, with a backend that never replays.
#include "engine/cuda/host/staging.h"
#include "engine/cuda/kernels/simt.cuh"

#include <catch2/catch.hpp>
#include <optional>
#include <random>

#include "tests/engine/cuda/steps.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/strict/strict.h"

namespace baton::test::replay_test {
namespace {

struct Counted {
  static std::uint64_t launched() {
    const auto& calls = strict::calls();
    const auto found = calls.find("cudaGraphLaunch");
    return found == calls.end() ? 0 : found->second;
  }
  std::uint64_t before = launched();
  std::uint64_t count() const { return launched() - before; }
};

/// Runs something that is never captured, and so never replayed.
template <class Subject, class... Args>
auto run_plainly(Subject& subject, const Args&... args) {
  const strict::WithoutCaptures none;
  return subject.run(args...);
}

TEST_CASE("decode steps are replayed, and give what they gave before", "[replay]") {
  const TinyOptions models[] = {{.layers = 3, .heads = 6, .kv_heads = 2, .head_dim = 32, .qk_norm = true},
                                {.layers = 3, .window = 40, .bias = true}};  // windows; a width without tiles
  for (const TinyOptions& options : models) {
    for (const bool keeps_all : {false, true}) {
      INFO("head width " << options.head_dim << ", keeps all " << keeps_all);
      Steps replaying(make_emulated_backend(), options, 2, keeps_all);
      Steps plain(make_emulated_backend(), options, 2, keeps_all);
      replaying.run({60, 70}, {}, 3);
      plain.run({60, 70}, {}, 3);
      const Counted replays;
      constexpr int kSteps = 24;
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<TokenChoice> how = {{.entropy = 1},
                                              {.uniform = step / 24.0, .temperature = 0.8f, .top_p = 0.9f}};
        const auto actual = replaying.run({1, 1}, how, step),
                   expected = run_plainly(plain, std::vector<std::int32_t>{1, 1}, how, step);
        REQUIRE(actual == expected);
      }
      REQUIRE(replaying.kept() == plain.kept());
      REQUIRE(replays.count() >= kSteps - 8);  // all but when the split of the keys grows, twice each
    }
  }
}

TEST_CASE("batches that change, and sequences that come and go, are replayed rightly", "[replay]") {
  std::mt19937 random(11);
  const TinyOptions options{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 32};
  Steps replaying(make_emulated_backend(), options, 3, true);
  Steps plain(make_emulated_backend(), options, 3, true);
  const Counted replays;
  for (int step = 0; step < 80; ++step) {
    std::vector<std::int32_t> counts = {1, 0, 0};
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (random() % 3 == 0) counts[i] = 1;
      if (random() % 16 == 0) counts[i] = static_cast<std::int32_t>(random() % 12);  // rows of a prompt ride along
      if (replaying.length(i) > 250 || random() % 40 == 0) {
        replaying.begin_anew(i);
        plain.begin_anew(i);
      }
    }
    const std::vector<TokenChoice> how(random() % 2);
    REQUIRE(replaying.run(counts, how, step) == run_plainly(plain, counts, how, step));
  }
  REQUIRE(replaying.kept() == plain.kept());
  REQUIRE(replays.count() > 20);
}

/// A prompt of 120 tokens is run again and again as rectify runs one: 20 of text, 100 reused from the first run.
struct Relayed {
  explicit Relayed(std::unique_ptr<Backend> own)
      : backend(std::move(own)), model(make_tiny_model(*backend, {.layers = 6})), forward(*backend, *model) {
    KvLayout layout = model->kv_layout();
    layout.hidden_width = model->config.width;
    layout.hidden_layer = 1;
    cache.emplace(*backend, layout, 130);
    run(0, false);
  }
  std::vector<float> run(int salt, bool relay) {
    StepRows rows;
    rows.add_cache(&*cache);
    for (std::int32_t at = 0; at < 120; ++at) {
      const bool reused = relay && at >= 5 && at < 105;
      rows.add_row(0, at, (reused ? 7 * at : 11 * at + salt) % 200);
      rows.path.push_back(reused ? RowPath{1, 4, -1, true} : RowPath{0, 6, -1});
    }
    rows.logits_rows.push_back(119);
    const std::span<const float> logits = forward.run(rows);
    return {logits.begin(), logits.end()};
  }
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
  Forward forward;
  std::optional<KvCache> cache;
};

TEST_CASE("the layers of rectify in which text runs alone are replayed", "[replay]") {
  strict::restart({.marks = true});
  Relayed replaying(make_emulated_backend()), plain(make_emulated_backend());
  const Counted replays;
  constexpr int kRuns = 6;
  for (int i = 0; i < kRuns; ++i) REQUIRE(replaying.run(i, true) == run_plainly(plain, i, true));
  REQUIRE(replays.count() == 2 * (kRuns - 1));         // before the reused rows enter, and behind where they leave
  const StepTimes& times = replaying.forward.times();  // marks lie a millisecond apart
  CHECK(times.layer == std::vector<double>{1.0, 1.0, 1.0, 1.0, 0.5, 0.5});
  CHECK(times.other == 0.0);
}

TEST_CASE("work beside the steps is timed with the next one", "[replay]") {
  strict::restart({.marks = true});
  Relayed subject(make_emulated_backend());
  for (const int pieces : {2, 0, 1}) {
    for (int i = 0; i < pieces; ++i) subject.forward.alongside([] {});
    subject.run(1, true);
    CHECK(subject.forward.times().alongside == std::vector<double>(static_cast<std::size_t>(pieces), 1.0));
    CHECK(subject.forward.times().layer == std::vector<double>{1.0, 1.0, 1.0, 1.0, 0.5, 0.5});
  }
  REQUIRE_THROWS(subject.forward.alongside([] { throw std::runtime_error("no"); }));
  subject.forward.alongside([] {});
  subject.run(1, true);  // times of what failed, and beside it, are lost, no others
  CHECK(subject.forward.times().alongside.empty());
  CHECK(subject.forward.times().layer == std::vector<double>{1.0, 1.0, 1.0, 1.0, 0.5, 0.5});
}

TEST_CASE("a replayed step is timed as a whole", "[replay]") {
  strict::restart({.marks = true});
  const TinyOptions options{.layers = 4};
  Steps steps(make_emulated_backend(), options, 1, false);  // whose marks lie a millisecond apart
  steps.run({70}, {}, 1);                                   // measures products
  steps.run({70}, {}, 1);
  REQUIRE(steps.times().layer == std::vector<double>(4, 1.0));
  REQUIRE(steps.times().other == 1.0);
  for (int step = 0; step < 4; ++step) steps.run({1}, {}, step);
  REQUIRE(steps.times().layer == std::vector<double>(4, 0.25));
  REQUIRE(steps.times().other == 0.0);
}

__global__ void write_value(float* out, const float* in) { out[0] = in[0]; }

/// Work with arrays of its own, straight over the runtime.
struct Bench {
  std::unique_ptr<cuda::Runtime> runtime = cuda::make_device_runtime(0);
  std::unique_ptr<cuda::Staging> staging = std::make_unique<cuda::Staging>(*runtime, 4096);
  std::unique_ptr<cuda::KeptArrays> arrays = std::make_unique<cuda::KeptArrays>(*runtime, *staging);
  std::unique_ptr<cuda::Replays> replays = std::make_unique<cuda::Replays>(*runtime, *staging);
  float* out = static_cast<float*>(runtime->allocate(1024 * sizeof(float)));
  ~Bench() {
    runtime->release(out);
    replays.reset();
    arrays.reset();
    staging.reset();
  }
  void write(int at, float value) {
    const float* sent = arrays->put(std::span<const float>(&value, 1));
    launch(replays->stream(), dim3(1), 1, 0, write_value, out + at, sent);
  }
  void fill(float value) {
    const std::vector<float> values(8, value);
    staging->to_device(out, std::as_bytes(std::span(values)));
  }
  std::vector<float> values(std::size_t count) { return read_back(*staging, out, count); }
};

TEST_CASE("work that sends more than there are places for is never captured", "[replay]") {
  Bench bench;
  const Counted replays;
  for (int step = 0; step < 5; ++step) {
    bench.replays->run([&] {
      for (int i = 0; i < 600; ++i) bench.write(i, static_cast<float>(i + step));
    });
    const std::vector<float> out = bench.values(600);
    for (int i = 0; i < 600; ++i) REQUIRE(out[static_cast<std::size_t>(i)] == static_cast<float>(i + step));
  }
  REQUIRE(replays.count() == 0);
}

TEST_CASE("work of another form in the same place is not taken for what was captured", "[replay]") {
  Bench bench;
  const Counted replays;
  for (int step = 0; step < 12; ++step) {
    bench.fill(-1.0f);
    bench.replays->run([&] {
      bench.write(step % 3, 5.0f);
      if (step % 2 == 0) bench.write(5, 7.0f);
    });
    const std::vector<float> out = bench.values(8);
    for (int i = 0; i < 8; ++i) {
      REQUIRE(out[static_cast<std::size_t>(i)] == (i == step % 3 ? 5.0f : i == 5 && step % 2 == 0 ? 7.0f : -1.0f));
    }
  }
  REQUIRE(replays.count() == 6);  // six forms, each seen twice
}

TEST_CASE("work that cannot be captured runs as it is", "[replay]") {
  Bench bench;
  const Counted replays;
  int calls = 0;
  for (int step = 0; step < 4; ++step) {
    bench.fill(0.0f);
    bench.replays->run([&] {
      bench.write(0, 3.0f);
      if (++calls == 5) bench.runtime->release(bench.runtime->allocate(8));  // in the capture, which refuses it
    });
    REQUIRE(bench.values(1)[0] == 3.0f);
  }
  REQUIRE(replays.count() == 0);
}

TEST_CASE("work that throws leaves nothing behind", "[replay]") {
  Bench bench;
  const auto run = [&](bool fails) {
    bench.replays->run([&] {
      bench.write(0, 3.0f);
      if (fails) throw std::runtime_error("no");
    });
  };
  run(false);
  REQUIRE_THROWS(run(true));
  bench.fill(0.0f);
  run(false);
  REQUIRE(bench.values(1)[0] == 3.0f);
  // In the capture itself: the fifth call of the work.
  int calls = 0;
  Bench other;
  const auto failing_in_capture = [&] {
    other.replays->run([&] {
      other.write(1, 4.0f);
      if (++calls == 5) throw std::runtime_error("no");  // written down, run; written down twice, captured
    });
  };
  failing_in_capture();
  REQUIRE_THROWS(failing_in_capture());
  other.fill(0.0f);
  failing_in_capture();
  REQUIRE(other.values(2)[1] == 4.0f);
}

}  // namespace
}  // namespace baton::test::replay_test
