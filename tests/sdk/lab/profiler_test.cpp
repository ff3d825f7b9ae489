// SPDX-License-Identifier: Apache-2.0
#include "engine/base/files.h"
#include "sdk/lab/layer_profiler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "engine/cpu/cpu.h"
#include "engine/learning/profile_files.h"
#include "engine/loop/step_engine.h"
#include "sdk/lab/effect_profiler.h"
#include "tests/support/own_cache.h"
#include "tests/support/tiny_model.h"

namespace profiler_test {

using namespace baton;
using namespace baton::lab;
using namespace baton::test;
namespace fs = std::filesystem;

namespace {

std::shared_ptr<StepEngine> tiny_engine(const TinyOptions& model) {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), LocalEngineOptions());
}

/// Forced answers, so that random weights have something to say.
std::vector<CalibrationHandOver> hand_overs(std::size_t count, std::size_t answer = 24) {
  std::vector<CalibrationHandOver> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.push_back({random_tokens(20 + i, i), random_tokens(answer, 100 + i), random_tokens(40 + 9 * i, 200 + i),
                    random_tokens(5, 300 + i)});
  }
  return made;
}

StoredProfile stored() {
  const auto engine = tiny_engine({.layers = 6});
  StoredProfile profile = to_stored(*measure_profile(*engine, hand_overs(3), {}), engine->model(), "test");
  profile.reading = RangeReading::level;
  profile.effect = measure_effect(*engine, hand_overs(3), {}, {.reply_tokens = 4});
  return profile;
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("baton_profile_" + std::to_string(process_number()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("values of a decoded answer and of its full prefill", "[profile]") {
  for (const DType kv : {DType::bf16, DType::f32}) {
    const auto engine = tiny_engine({.layers = 6, .kv_dtype = kv});
    double last = 0;
    ProfilerOptions options;
    options.on_progress = [&](double share) {
      CHECK(share >= last);
      last = share;
    };
    const auto profile = measure_profile(*engine, hand_overs(4), options);
    REQUIRE(profile);
    CHECK(last <= 1.0);
    CHECK(profile->hand_overs == 4);
    CHECK(profile->tokens >= 4 * 23);             // the last token of an answer need not have KV
    CHECK(profile->curves.similarity[0] == 1.0);  // a value of the first layer knows nothing of the context
    CHECK(std::isnan(profile->curves.correlation[0]));
    for (std::size_t l = 1; l < 6; ++l) CHECK(profile->curves.similarity[l] < 1 - 1e-4);
    CHECK(profile->slope.range.valid(6));
    CHECK(profile->level.range.valid(6));
    // Nothing of it stays in the engine, and the same again gives the same.
    CHECK(engine->stats().kv_bytes == 0);
    for (int i = 0; i < 500 && engine->stats().segments.segments > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(engine->stats().segments.segments == 0);  // the last callback may still be on its way out
    CHECK(measure_profile(*engine, hand_overs(4), {})->curves.similarity == profile->curves.similarity);
  }
}

TEST_CASE("behind the same tokens values do not deviate", "[profile]") {
  const auto engine = tiny_engine({.layers = 5});
  std::vector<CalibrationHandOver> same = hand_overs(2);
  for (CalibrationHandOver& one : same) one.before = one.producer;
  const auto profile = measure_profile(*engine, same, {});
  REQUIRE(profile);
  for (const double s : profile->curves.similarity) CHECK(s == Approx(1.0).margin(1e-12));
  for (const double rho : profile->curves.correlation) CHECK(std::isnan(rho));
}

TEST_CASE("hand-overs that cannot be measured", "[profile]") {
  using Catch::Contains;
  const auto engine = tiny_engine({.layers = 4});
  std::vector<CalibrationHandOver> mixed = hand_overs(3);
  mixed[0].answer = random_tokens(3, 1);
  mixed[1].before = random_tokens(600, 1);  // longer than the context
  const auto profile = measure_profile(*engine, mixed, {});
  REQUIRE(profile);
  CHECK(profile->hand_overs == 1);
  CHECK(profile->left_out == 2);
  CHECK_THROWS_WITH(measure_profile(*engine, std::span(mixed).first(1), {}), Contains("3 tokens"));
  CHECK_THROWS_AS(measure_profile(*engine, {}, {}), ModelError);
  mixed[2].producer = {1 << 20};
  CHECK_THROWS_WITH(measure_profile(*engine, mixed, {}), Contains("vocabulary"));
  CHECK_THROWS_WITH(measure_profile(*tiny_engine({.layers = 3}), hand_overs(1), {}), Contains("at least 4"));
  CHECK(engine->stats().kv_bytes == 0);
}

TEST_CASE("a stopped measurement leaves nothing behind", "[profile]") {
  const auto engine = tiny_engine({.layers = 4});
  std::stop_source stop;
  ProfilerOptions options;
  options.stop = stop.get_token();
  options.on_progress = [&](double) { stop.request_stop(); };
  CHECK_FALSE(measure_profile(*engine, hand_overs(100), options));
  CHECK(engine->stats().kv_bytes == 0);
  options.on_progress = [](double) { throw std::runtime_error("host"); };
  options.stop = {};
  CHECK_THROWS_WITH(measure_profile(*engine, hand_overs(100), options), "host");
  CHECK(engine->stats().kv_bytes == 0);
}

TEST_CASE("a profile comes back from its text", "[profile]") {
  const StoredProfile profile = stored();
  const StoredProfile again = parse_profile(to_json(profile), "p.json");
  CHECK(to_json(again) == to_json(profile));
  CHECK(again.range().end == profile.level.end);
  CHECK(std::isnan(again.correlation[0]));
  CHECK(again.source == "test");
}

TEST_CASE("a hostile profile is refused with file and field", "[profile]") {
  using Catch::Contains;
  const std::string good = to_json(stored());
  const auto with = [&](const std::string& field, const std::string& value) {
    std::string text = good;
    const std::size_t at = text.find("\"" + field + "\": ") + field.size() + 4;
    return text.replace(at, text.find('\n', at) - at - (text[text.find('\n', at) - 1] == ',' ? 1 : 0), value);
  };
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"schema", "2"},
           {"schema", "\"1\""},
           {"fingerprint", "7"},
           {"layers", "7"},
           {"layers", "3"},
           {"layers", "99999999999"},
           {"hand_overs", "0"},
           {"tokens", "-1"},
           {"reading", "\"x\""},
           {"similarity", "[1,2,3]"},
           {"similarity", "[1,1,1,1,1,1e300]"},
           {"similarity", "[1,1,1,1,1,null]"},
           {"similarity_error", "{}"},
           {"correlation", "[1,1,1,1,\"1\"]"},
           {"correlation_error", "null"},
           {"slope", "[]"},
           {"slope", R"({"start":2,"detect":2,"end":5,"agreement":1,"agreement_by_layer":[1,1,1]})"},
           {"level", R"({"start":0,"detect":1,"end":6,"agreement":1,"agreement_by_layer":[1,1,1]})"},
           {"level", R"({"start":0,"detect":1,"end":5,"agreement":2,"agreement_by_layer":[1,1,1]})"},
           {"level", R"({"start":-1,"detect":1,"end":5,"agreement":1,"agreement_by_layer":[1,1,1]})"}}) {
    INFO(field << " " << value);
    CHECK_THROWS_WITH(parse_profile(with(field, value), "p.json"),
                      Contains("p.json") && (Contains("\"" + field) || Contains("similarity")));
  }
  for (const std::string text : {"", "{", "[]", "7", "null", "{}"}) {
    CHECK_THROWS_AS(parse_profile(text, "p.json"), ModelError);
  }
}

TEST_CASE("the profile beside the model wins unless it is of another", "[profile]") {
  using Catch::Contains;
  const Folder folder;
  const auto engine = tiny_engine({.layers = 6});
  const ModelConfig& config = engine->model().config;
  Model model{{.path = folder.path / "model", .fingerprint = "f00d"}, config, {}, LayerRopes(config), {}, {}};
  const OwnCache cache;
  CHECK(profile_in_cache("f00d") == cache.path() / "baton/profiles/f00d.json");
  CHECK_FALSE(find_profile(model).profile);
  StoredProfile profile = stored();
  profile.fingerprint = "f00d";
  write_whole(profile_in_cache("f00d"), to_json(profile));
  CHECK(find_profile(model).file == profile_in_cache("f00d"));
  profile.fingerprint = "other";
  write_whole(profile_beside(model.path), to_json(profile));
  const FoundProfile found = find_profile(model);
  CHECK(found.file == profile_in_cache("f00d"));
  CHECK_THAT(found.ignored, Contains("other weights"));
  profile.fingerprint = "f00d";
  write_whole(profile_beside(model.path), to_json(profile));
  CHECK(find_profile(model).file == profile_beside(model.path));
  model.config.layers = 9;
  CHECK_THROWS_WITH(find_profile(model), Contains("layers") && Contains("9"));
  write_whole(profile_beside(model.path), "{");
  CHECK_THROWS_WITH(find_profile(model), Contains("baton.profile.json"));
  fs::remove(profile_beside(model.path));
  fs::create_directory(profile_beside(model.path));
  CHECK_THROWS_WITH(find_profile(model), Contains("not a file"));
  CHECK(std::distance(fs::directory_iterator(model.path), {}) == 1);  // no temporary file stays
}

}  // namespace profiler_test
