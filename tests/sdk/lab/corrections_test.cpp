// SPDX-License-Identifier: Apache-2.0
// Learned corrections through the engine, and their files.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "engine/base/system/process.h"
#include "engine/cpu/cpu.h"
#include "engine/learning/profile_files.h"
#include "engine/registry.h"
#include "engine/reuse/method_state.h"
#include "engine/reuse/rectify/corrections.h"
#include "engine/reuse/rectify/rectify.h"
#include "sdk/lab/correction_learner.h"
#include "tests/support/asking.h"
#include "tests/support/folders.h"
#include "tests/support/tiny_engine.h"

namespace corrections_test {

using namespace baton;
using namespace baton::lab;
using namespace baton::test;

namespace {

/// Without a method that gives the texts of prompts nothing can be learned.
bool can_learn() {
  if (sampling_method() == nullptr) WARN("no method gives the texts of prompts, so nothing was learned");
  return sampling_method() != nullptr;
}

/// Every prompt in full, every placeholder looked at.
ReuseOptions learning() {
  ReuseOptions reuse;
  reuse.min_tokens = 1;
  reuse.prefix = false;
  reuse.record = true;
  if (const Method* method = sampling_method()) {
    reuse.method = method;
    method->observe(reuse);
  }
  return reuse;
}

/// Relay that recomputes next to nothing.
ReuseOptions relay(bool correct) {
  ReuseOptions reuse = learning();
  reuse.method = find_method("rectify");
  own<RectifyOptions>(reuse).correct = correct;
  reuse.range = {0, 1, 2};
  own<RectifyOptions>(reuse).selection = {
      .suffix = 0, .head = 0, .share = 1e-9, .score = SelectionOptions::Score::author};
  return reuse;
}

ReuseOptions named(const std::string& method) {
  ReuseOptions reuse = learning();
  reuse.method = find_method(method);
  return reuse;
}

PromptPart answer(InferenceEngine& engine, std::vector<TokenId> tokens) {
  GenerationRequest request;
  request.prompt = {text(20, 7)};
  request.reuse = named("full");
  request.output_readers = 4;
  request.forced = tokens;
  const Run made = start(engine, std::move(request)).get();
  REQUIRE(made.result.output);
  return {"answer", std::move(tokens), made.result.output, 0};
}

std::vector<PromptPart> prompt_of(InferenceEngine& engine, std::uint64_t seed, std::size_t behind = 6) {
  return {text(10, 1), answer(engine, random_tokens(40, seed)), text(behind, 3)};
}

Corrections learn(LocalEngine& engine, const std::vector<std::vector<PromptPart>>& prompts) {
  const auto learner = std::make_shared<CorrectionLearner>();
  MethodState& state = *engine.method_state(*sampling_method());
  state.on_sample([learner](const PlaceSample& sample) { learner->add(sample); });
  for (const auto& prompt : prompts) ask(engine, prompt, learning());
  state.flush();
  state.on_sample(nullptr);
  Corrections found;
  for (const LearnedPlace& place : learner->fit({}, {})) {
    if (place.correction) found[place.key] = place.correction;
  }
  return found;
}

}  // namespace

TEST_CASE("corrections: what was learned of a text makes its reuse nearly exact, in its place alone", "[learn]") {
  if (!can_learn()) return;
  for (const TinyOptions& model : {TinyOptions{}, TinyOptions{.kv_dtype = DType::f32}, TinyOptions{.qk_norm = true}}) {
    const auto engine = tiny_engine({}, model);
    const auto prompt = prompt_of(*engine, 11);
    const Run full = ask(*engine, prompt, named("full")), plain = ask(*engine, prompt, relay(true));
    CHECK_FALSE(plain.result.uses[1].corrected);
    const Corrections learned = learn(*engine, {prompt, prompt, prompt});
    REQUIRE(learned.size() == 1);
    CHECK(learned.begin()->second->left < 1e-3f);
    update_calibration(*engine,
                       [&](Calibration& now) { now.corrections = std::make_shared<const Corrections>(learned); });
    const Run corrected = ask(*engine, prompt, relay(true));
    CHECK(corrected.result.uses[1].corrected);
    CHECK(corrected.result.hops == 1);
    CHECK(corrected.result.kv_computed == plain.result.kv_computed);
    CHECK(distance(corrected, full) < 0.1 * distance(plain, full));
    CHECK(same(ask(*engine, prompt, relay(false)), plain));
    CHECK_FALSE(ask(*engine, prompt_of(*engine, 11, 5), relay(true)).result.uses[1].corrected);  // other text behind
    update_calibration(*engine, [&](Calibration& now) { now.corrections = nullptr; });
    CHECK(same(ask(*engine, prompt, relay(true)), plain));
  }
}

TEST_CASE("corrections: no change is relay as it was, bit for bit, and all tokens recomputed are full", "[learn]") {
  if (!can_learn()) return;
  const auto engine = tiny_engine();
  const auto prompt = prompt_of(*engine, 11);
  const Run full = ask(*engine, prompt, named("full")), plain = ask(*engine, prompt, relay(true));
  Corrections learned = learn(*engine, {prompt, prompt});
  ReuseOptions all = relay(true);
  own<RectifyOptions>(all).selection.share = 1.0;
  update_calibration(*engine,
                     [&](Calibration& now) { now.corrections = std::make_shared<const Corrections>(learned); });
  CHECK(same(ask(*engine, prompt, all), full));
  auto nothing = std::make_shared<LinearCorrection>(*learned.begin()->second);
  std::fill(nothing->encoder.begin(), nothing->encoder.end(), std::uint16_t{0});
  std::fill(nothing->bias.begin(), nothing->bias.end(), 0.0f);
  learned.begin()->second = nothing;
  update_calibration(*engine,
                     [&](Calibration& now) { now.corrections = std::make_shared<const Corrections>(learned); });
  CHECK(same(ask(*engine, prompt, relay(true)), plain));
  auto other = std::make_shared<LinearCorrection>(*nothing);
  other->shape.of.pop_back();  // of another model: passed over
  learned.begin()->second = other;
  update_calibration(*engine,
                     [&](Calibration& now) { now.corrections = std::make_shared<const Corrections>(learned); });
  const Run passed = ask(*engine, prompt, relay(true));
  CHECK_FALSE(passed.result.uses[1].corrected);
  CHECK(same(passed, plain));
}

TEST_CASE("corrections: texts of the nano model teach what happens to others", "[learn]") {
  if (!can_learn()) return;
  auto backend = make_cpu_backend(2);
  auto nano = open_model(*backend, source_folder() / "samples/models/nano", {});
  const auto engine = std::make_shared<StepEngine>(std::move(backend), std::move(nano), LocalEngineOptions{});
  const auto part = [&](const std::string& words) {
    return PromptPart{"", engine->model().tokenizer->encode(words, SpecialTokens::recognise), nullptr, 0};
  };
  const std::string open = "<|im_start|>system\nYou are ", close = "<|im_end|>\n<|im_start|>assistant\n";
  std::vector<std::vector<PromptPart>> prompts;
  for (int i = 0; i < 64; ++i) {
    const std::string question = "Ana has " + std::to_string(10 + i) + " red apples and " +
                                 std::to_string(4 + i * (i % 3)) + (i % 2 == 0 ? " pears" : " very small green pears") +
                                 ". How many does she have?";
    GenerationRequest writer;
    writer.prompt = {part(open + "a mathematical analyst.<|im_end|>\n<|im_start|>user\nQuestion:\n"), part(question),
                     part(close)};
    writer.reuse = named("full");
    writer.output_readers = 4;
    writer.max_tokens = 60;
    const Run written = start(*engine, std::move(writer)).get();
    REQUIRE(written.result.output);
    PromptPart asked = part(question);
    asked.slot = "question";
    prompts.push_back({part(open + "an inspector, who checks.<|im_end|>\n<|im_start|>user\nQuestion:\n"), asked,
                       part("\n\nAnalyst:\n"), PromptPart{"answer", written.result.tokens, written.result.output, 0},
                       part(close)});
  }
  const std::vector<std::vector<PromptPart>> others(prompts.end() - 8, prompts.end());
  prompts.resize(56);
  const Corrections learned = learn(*engine, prompts);
  REQUIRE(learned.size() == 1);
  CHECK(learned.begin()->second->left < 0.6f);
  update_calibration(*engine,
                     [&](Calibration& now) { now.corrections = std::make_shared<const Corrections>(learned); });
  double corrected = 0, plain = 0;
  for (const auto& prompt : others) {
    const Run full = ask(*engine, prompt, named("full"));
    corrected += std::pow(distance(ask(*engine, prompt, relay(true)), full), 2);
    plain += std::pow(distance(ask(*engine, prompt, relay(false)), full), 2);
  }
  INFO("squared distance of logits: " << corrected << " corrected, " << plain << " as it was");
  CHECK(corrected < 0.5 * plain);
}

TEST_CASE("correction file: what was saved is there again, and a damaged or foreign file is refused", "[learn]") {
  if (!can_learn()) return;
  const auto engine = tiny_engine();
  Corrections learned = learn(*engine, {prompt_of(*engine, 11), prompt_of(*engine, 12), prompt_of(*engine, 13)});
  auto second = learned.begin()->first;
  second.slot = "a/b.c";
  learned[second] = learned.begin()->second;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("baton-corrections-" + std::to_string(process_number()));
  const std::filesystem::path file = folder / "deeper" / "x.safetensors";
  save_corrections(file, engine->model(), learned);
  const Corrections before = learned, again = load_corrections(file, engine->model());
  REQUIRE(again.size() == 2);
  for (auto a = before.begin(), b = again.begin(); a != before.end(); ++a, ++b) {
    CHECK(a->first == b->first);
    CHECK(a->second->rank == b->second->rank);
    CHECK(a->second->encoder == b->second->encoder);
    CHECK(a->second->decoder == b->second->decoder);
    CHECK(a->second->bias == b->second->bias);
    CHECK(a->second->left == b->second->left);
    CHECK(a->second->texts == b->second->texts);
  }
  const auto other = tiny_engine({}, {.layers = 4});
  CHECK_THROWS_AS(load_corrections(file, other->model()), ModelError);
  std::ifstream in(file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  in.close();  // Windows removes no file that is open
  const auto write = [&](const std::string& text) {
    std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  };
  std::size_t refused = 0, tried = 0;
  for (std::size_t at = 0; at < good.size(); at += at < 2000 ? 7 : good.size() / 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x11);
    write(bad);
    ++tried;
    try {
      load_corrections(file, engine->model());  // a name may be another, a number may not
    } catch (const ModelError&) {
      ++refused;
    }
  }
  CHECK(refused > tried * 3 / 4);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, good.size() / 2, good.size() - 1}) {
    write(good.substr(0, length));
    CHECK_THROWS_AS(load_corrections(file, engine->model()), ModelError);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace corrections_test
