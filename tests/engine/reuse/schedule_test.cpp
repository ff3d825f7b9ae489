// SPDX-License-Identifier: Apache-2.0
// Any schedule against a dense oracle in double: random rows of random layers, hidden states that come in, detections
// that let some rows go on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/cpu/cpu.h"
#include "engine/model/checkpoint_weights.h"
#include "engine/model/forward.h"
#include "engine/model/safetensors.h"
#include "engine/reuse/schedule.h"
#include "tests/support/golden.h"
#include "tests/support/schedule_oracle.h"
#include "tests/support/tiny_model.h"

namespace schedule_test {

using namespace baton;
using namespace baton::test;

namespace {

/// A schedule over some positions of each cache, in random order; choices as Oracle::run takes them.
struct Schedule {
  Schedule(const ModelConfig& c, std::vector<KvCache>& caches, const std::vector<std::int32_t>& lengths,
           std::int32_t hidden_layer, Random& random) {
    struct Row {
      std::int32_t cache, position;
      RowPath path;
    };
    std::vector<Row> all;
    const auto between = [&](std::int32_t low, std::int32_t high) {  // both included
      return low + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    for (std::size_t s = 0; s < caches.size(); ++s) {
      const auto index = rows.add_cache(&caches[s]);
      std::int32_t detection = -1;
      if (random() % 3 != 0) {
        std::int32_t layer = between(0, c.layers - 1);
        while (!c.stores_kv(layer)) layer = between(0, c.layers - 1);
        detection = static_cast<std::int32_t>(rows.detections.size());
        const std::int32_t leave = between(layer + 1, c.layers);
        rows.detections.push_back({layer, leave, {}, random() % 2 == 0 ? ValueMeasure::cosine : ValueMeasure::squared});
        rows.detections.back().readers_begin = between(0, lengths[s]);
        rows.detections.back().readers_end = between(0, lengths[s]);
      }
      const std::uint64_t density = 1 + random() % 10;
      for (std::int32_t at = 0; at < lengths[s]; ++at) {
        if (random() % 10 >= density) continue;
        RowPath path{random() % 2 == 0 ? 0 : hidden_layer, c.layers, -1, random() % 2 == 0};
        if (random() % 2 == 0) path.leave = between(path.enter + 1, c.layers);
        if (detection >= 0 && random() % 2 == 0 && path.enter <= rows.detections.back().layer) {
          path.detection = detection;
          path.leave = rows.detections.back().layer + 1;
        }
        all.push_back({index, at, path});
      }
    }
    std::shuffle(all.begin(), all.end(), random);
    choices.resize(rows.detections.size());
    for (const Row& row : all) {
      if (row.path.detection < 0 && row.path.leave == c.layers && random() % 4 != 0)
        rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()));
      rows.add_row(row.cache, row.position, static_cast<TokenId>(random() % static_cast<std::uint64_t>(c.vocabulary)));
      rows.path.push_back(row.path);
      if (row.path.detection >= 0) choices[static_cast<std::size_t>(row.path.detection)].push_back(random() % 2 == 0);
    }
    std::shuffle(rows.logits_rows.begin(), rows.logits_rows.end(), random);
    seen.resize(choices.size());
    given.resize(choices.size());
    for (std::size_t d = 0; d < choices.size(); ++d) {
      rows.detections[d].choose = [this, d](std::span<const float> deviation, std::span<const float> attention) {
        given[d].assign(attention.begin(), attention.end());
        seen[d].assign(deviation.begin(), deviation.end());
        return choices[d];
      };
    }
  }
  Schedule(const Schedule&) = delete;

  StepRows rows;
  std::vector<std::vector<bool>> choices;
  std::vector<Vec> seen;   // deviations that the engine showed
  std::vector<Vec> given;  // attention that it showed
};

/// Largest difference as a share of the rms of what is expected.
class Difference {
 public:
  void add(double actual, double expected) {
    const double error = std::abs(actual - expected);
    worst_ = std::isnan(error) ? INFINITY : std::max(worst_, error);
    squares_ += expected * expected;
    ++count_;
  }
  double share() const { return count_ == 0 ? 0.0 : worst_ / std::max(1e-3, std::sqrt(squares_ / count_)); }

 private:
  double worst_ = 0, squares_ = 0, count_ = 0;
};

struct Differences {
  double logits = 0, kv = 0, hidden = 0, received = 0, deviation = 0, attention = 0;
  double worst() const { return std::max({logits, kv, hidden, received, deviation, attention}); }
};

/// Runs random schedules, two steps on the same caches, and compares all that they leave behind.
Differences compare(Backend& backend, const Model& model, std::int32_t longest, std::uint64_t seed) {
  Random random(seed);
  const ModelConfig& c = model.config;
  Oracle oracle(backend, model);
  Forward forward(backend, model);
  std::vector<std::int32_t> lengths;
  for (std::uint64_t i = 0; i < 1 + seed % 3; ++i)
    lengths.push_back(1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(longest)));
  const std::int32_t hidden_layer = 1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(c.layers - 1));
  Caches caches(backend, model, oracle, lengths, hidden_layer, random);

  Differences most;
  Difference logits, kv, hidden, received, deviation, attention;
  for (int step = 0; step < 2; ++step) {
    Schedule schedule(c, caches.engine, lengths, hidden_layer, random);
    if (schedule.rows.size() == 0) continue;
    const auto expected = oracle.run(schedule.rows, caches.dense, schedule.choices);
    const std::span<const float> actual = forward.run(schedule.rows);
    REQUIRE(actual.size() == expected.size() * static_cast<std::size_t>(c.vocabulary));
    for (std::size_t i = 0; i < actual.size(); ++i) {
      logits.add(actual[i],
                 expected[i / static_cast<std::size_t>(c.vocabulary)][i % static_cast<std::size_t>(c.vocabulary)]);
    }
    for (std::size_t d = 0; d < schedule.choices.size(); ++d) {
      if (schedule.choices[d].empty()) continue;
      REQUIRE(schedule.seen[d].size() == oracle.deviations[d].size());
      for (std::size_t i = 0; i < schedule.seen[d].size(); ++i)
        deviation.add(schedule.seen[d][i], oracle.deviations[d][i]);
      REQUIRE(schedule.given[d].size() == oracle.attentions[d].size());
      for (std::size_t i = 0; i < schedule.given[d].size(); ++i)
        attention.add(schedule.given[d][i], oracle.attentions[d][i]);
    }
    for (std::size_t i = 0; i < oracle.path.size(); ++i) REQUIRE(schedule.rows.path[i].leave == oracle.path[i].leave);
  }
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const KvCache& cache = caches.engine[s];
    const OracleCache& dense = caches.dense[s];
    for (std::int32_t layer = 0; layer < c.layers; ++layer) {
      if (!c.stores_kv(layer)) continue;
      const std::int64_t kv_cols = cache.layout().shape(layer).width();
      std::vector<float> k(static_cast<std::size_t>(lengths[s] * kv_cols)), v(k.size());
      backend.kv().load_kv(view_of(k.data(), lengths[s], kv_cols), view_of(v.data(), lengths[s], kv_cols),
                           cache.slab(layer), model.kv_shape(layer), 0);
      for (std::size_t i = 0; i < k.size(); ++i) {
        const std::size_t at = i / static_cast<std::size_t>(kv_cols), col = i % static_cast<std::size_t>(kv_cols);
        kv.add(k[i], dense.k[static_cast<std::size_t>(layer)][at][col]);
        kv.add(v[i], dense.v[static_cast<std::size_t>(layer)][at][col]);
      }
    }
    for (std::int32_t at = 0; at < lengths[s]; ++at) {
      for (std::int32_t col = 0; col < c.width; ++col)
        hidden.add(cache.hidden().f32(at)[col],
                   dense.hidden[static_cast<std::size_t>(at)][static_cast<std::size_t>(col)]);
      if (cache.received() == nullptr) continue;
      double sum = 0;
      for (std::int32_t head = 0; head < cache.layout().max_kv_heads(); ++head)
        sum += static_cast<double>(cache.received()[head * cache.capacity() + at]) * kAttentionUnit;
      received.add(sum, dense.received[static_cast<std::size_t>(at)]);
    }
  }
  return {logits.share(), kv.share(), hidden.share(), received.share(), deviation.share(), attention.share()};
}

// fp32 sums of up to 112 products are off by about eps * sqrt(112) = 1.3e-6 of their size each, 4 of them one after the
// other in a layer, and 3 to 6 layers add up: about 2e-5 of the rms. The largest of some thousand values is 4 times
// that. (Seen: 3e-5. A row that runs one layer too many, or sees one key too few, is off by 1e-2 and more.)
constexpr double kTolerance = 1e-4;

void check_schedules(Backend& backend, const Model& model, std::int32_t longest, int trials, const std::string& name) {
  for (int seed = 0; seed < trials; ++seed) {
    const Differences d = compare(backend, model, longest, static_cast<std::uint64_t>(seed));
    INFO(name << ", seed " << seed << ": logits " << d.logits << ", KV " << d.kv << ", hidden states " << d.hidden
              << ", received " << d.received << ", deviation " << d.deviation << ", attention " << d.attention);
    CHECK(d.worst() < kTolerance);
  }
}

Model load_golden_model(Backend& backend, const std::string& name) {
  const Golden golden = load_golden(name);
  const std::string json = read_file(golden.folder / "config.json");
  ModelConfig config = parse_config(json, "config.json");
  const SafetensorsFolder files(golden.folder);
  const CheckpointWeights stored(files, config.quantization, config.mixture.biases);
  Weights weights = load_weights(backend, config, RenamedWeights(stored, config), DType::f32);
  ModelOptions options;
  options.dtype = options.kv_dtype = DType::f32;
  options.context = config.context;
  LayerRopes ropes(config);
  ModelText text{.path = golden.folder, .fingerprint = name};
  return {std::move(text), std::move(config), options, std::move(ropes), std::move(weights), {}};
}

}  // namespace

TEST_CASE("any schedule agrees with a dense oracle in double, for every family", "[reuse][schedule]") {
  const auto cpu = make_cpu_backend(2);
  const auto reference = make_reference_backend();
  int checked = 0;
  for (const std::string& name : golden_names()) {
    const Model model = load_golden_model(*cpu, name);
    if (!model.config.mixers.empty()) continue;  // rows of layers with a state have one schedule: all layers, in order
    if (model.config.altup.streams > 1) continue;  // the dense oracle has one residual stream
    check_schedules(*cpu, model, 90, 9, name);
    check_schedules(*reference, load_golden_model(*reference, name), 30, 3, name + ", reference");
    ++checked;
  }
  CHECK(checked >= 20);
}

TEST_CASE("any schedule agrees with a dense oracle in double, for GQA ratios 1 to 8", "[reuse][schedule]") {
  const auto cpu = make_cpu_backend(2);
  for (std::int32_t ratio = 1; ratio <= 8; ++ratio) {
    const std::int32_t kv_heads = ratio <= 3 ? 2 : 1;
    const TinyOptions options{.layers = 6,
                              .heads = ratio * kv_heads,
                              .kv_heads = kv_heads,
                              .head_dim = 8,
                              .window = ratio % 2 == 0 ? 17 : 0,
                              .qk_norm = ratio % 3 == 0,
                              .bias = ratio % 4 == 1,
                              .dtype = DType::f32,
                              .kv_dtype = DType::f32};
    const auto model = make_tiny_model(*cpu, options);
    check_schedules(*cpu, *model, 150, 4, "GQA " + std::to_string(ratio));
    check_schedules(*cpu, *model, 3, 6, "GQA " + std::to_string(ratio) + ", few rows");
  }
}

namespace {

/// Fills positions [0, n) of a new cache; what comes next may be decoded.
struct Running {
  Running(Backend& backend, const Model& model, std::size_t n, std::uint64_t seed)
      : tokens(random_tokens(n + 1, seed)), cache(backend, model.kv_layout(), static_cast<std::int32_t>(n + 1)) {
    const std::size_t bytes = backend.kv_slab_bytes(model.kv_shape(0), cache.slab(0).capacity);
    for (std::int32_t layer = 0; layer < model.config.layers; ++layer) {  // whole slabs are compared
      backend.clear(cache.slab(layer).keys, bytes);
      backend.clear(cache.slab(layer).values, bytes);
    }
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (std::size_t i = 0; i < n; ++i) rows.add_row(index, static_cast<std::int32_t>(i), tokens[i]);
    Forward(backend, model).run(rows);
    cache.commit(static_cast<std::int32_t>(n));
  }
  void add_decode(StepRows& rows) {
    rows.add_row(rows.add_cache(&cache), cache.length(), tokens.back());
    rows.path.push_back({0, cache.layout().layers(), -1});
  }
  std::vector<TokenId> tokens;
  KvCache cache;
};

}  // namespace

TEST_CASE("sequences that decode beside a scheduled prompt get the bits they get without it", "[reuse][schedule]") {
  for (const int threads : {1, 3}) {
    for (const TinyOptions& options :
         {TinyOptions{.layers = 5},
          TinyOptions{.layers = 4, .window = 9, .qk_norm = true, .bias = true, .kv_dtype = DType::f32},
          TinyOptions{.layers = 4, .head_dim = 32, .window = 9, .qk_norm = true, .gemma = true}}) {
      const auto backend = make_cpu_backend(threads);
      const auto model = make_tiny_model(*backend, options);
      Oracle oracle(*backend, *model);
      Forward forward(*backend, *model);
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        Random random(seed);
        std::vector<Running> alone, beside;
        for (const std::size_t n : {5u, 64u, 130u}) {
          alone.emplace_back(*backend, *model, n, n + seed);
          beside.emplace_back(*backend, *model, n, n + seed);
        }
        StepRows decode;
        for (Running& running : alone) {
          decode.logits_rows.push_back(static_cast<std::int32_t>(decode.size()));
          running.add_decode(decode);
        }
        const auto logits = forward.run(decode);
        const std::vector<float> expected(logits.begin(), logits.end());

        const std::vector<std::int32_t> lengths = {120, 70};
        Caches caches(*backend, *model, oracle, lengths, 2, random);
        Schedule schedule(model->config, caches.engine, lengths, 2, random);
        StepRows& rows = schedule.rows;
        rows.logits_rows.clear();
        for (Running& running : beside) {
          rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()));
          running.add_decode(rows);
        }
        const auto actual = forward.run(rows);
        INFO(threads << " threads, seed " << seed);
        REQUIRE(actual.size() == expected.size());
        CHECK(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)) == 0);
        for (std::size_t i = 0; i < alone.size(); ++i) {
          for (std::int32_t layer = 0; layer < options.layers; ++layer) {
            const KvSlab a = alone[i].cache.slab(layer), b = beside[i].cache.slab(layer);
            CHECK(std::memcmp(a.keys, b.keys, backend->kv_slab_bytes(model->kv_shape(layer), a.capacity)) == 0);
            CHECK(std::memcmp(a.values, b.values, backend->kv_slab_bytes(model->kv_shape(layer), a.capacity)) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("schedules that make no sense are refused", "[reuse][schedule]") {
  using Catch::Contains;
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {.layers = 4});
  KvLayout layout = model->kv_layout();
  layout.hidden_width = model->config.width;
  layout.hidden_layer = 2;
  KvCache cache(*backend, layout, 10), plain(*backend, model->kv_layout(), 10);
  Forward forward(*backend, *model);
  const auto run = [&](KvCache& where, RowPath path, std::vector<Detection> detections = {},
                       std::vector<std::int32_t> logits = {}) {
    StepRows rows;
    rows.add_row(rows.add_cache(&where), 0, 1);
    rows.path = {path};
    rows.detections = std::move(detections);
    rows.logits_rows = std::move(logits);
    forward.run(rows);
  };
  const auto yes = [](std::span<const float> d, std::span<const float>) { return std::vector<bool>(d.size(), true); };
  const auto two = [](std::span<const float>, std::span<const float>) { return std::vector<bool>(2, true); };
  run(cache, {2, 4, -1}, {}, {0});
  run(cache, {0, 2, 0}, {{1, 4, yes}});
  CHECK_THROWS_WITH(run(cache, {2, 2, -1}), Contains("layers [2, 2); the model has 4"));
  CHECK_THROWS_WITH(run(cache, {0, 5, -1}), Contains("layers [0, 5); the model has 4"));
  CHECK_THROWS_WITH(run(cache, {-1, 4, -1}), Contains("layers [-1, 4); the model has 4"));
  CHECK_THROWS_WITH(run(cache, {1, 4, -1}), Contains("enters at layer 1"));
  CHECK_THROWS_WITH(run(plain, {2, 4, -1}), Contains("no hidden states"));
  CHECK_THROWS_WITH(run(cache, {0, 2, 1}, {{1, 4, yes}}), Contains("unknown detection 1"));
  CHECK_THROWS_WITH(run(cache, {0, 3, 0}, {{1, 4, yes}}),
                    Contains("leaves before layer 3; its detection is at layer 1"));
  CHECK_THROWS_WITH(run(cache, {0, 2, 0}, {{1, 5, yes}}), Contains("up to layer 5 is invalid"));
  CHECK_THROWS_WITH(run(cache, {0, 2, 0}, {{1, 1, yes}}), Contains("up to layer 1 is invalid"));
  CHECK_THROWS_WITH(run(cache, {0, 4, -1}, {{9, 10, yes}}), Contains("a detection at layer 9"));
  CHECK_THROWS_AS(run(cache, {0, 2, 0}, {{1, 4, {}}}), std::invalid_argument);
  CHECK_THROWS_WITH(run(cache, {0, 3, -1}, {}, {0}), Contains("logits of row 0"));
  CHECK_THROWS_WITH(run(cache, {0, 4, 0}, {{3, 4, yes}}, {0}), Contains("logits of row 0"));  // it may be dropped
  CHECK_THROWS_WITH(run(cache, {0, 2, 0}, {{1, 4, two}}), Contains("must return one flag for each"));

  StepRows rows;
  rows.add_row(rows.add_cache(&cache), 0, 1);
  rows.detections = {{1, 4, yes}};
  CHECK_THROWS_AS(forward.run(rows), std::invalid_argument);  // a detection, but no paths
}

}  // namespace schedule_test
