// SPDX-License-Identifier: Apache-2.0
// Published models, the GGUF files in the folder that BATON_TEST_MODELS names: what must be equal bit for bit on every
// model is so on these, and their tokenizers give back what went in. Without the folder nothing runs: see ./dev
// published.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/model/forward.h"
#include "engine/model/gguf.h"
#include "engine/registry.h"
#include "engine/reuse/rectify/rectify.h"
#include "engine/text/constrain/call_grammar.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/constrain/token_masks.h"
#include "engine/text/schema/schema.h"
#include "tests/support/golden_files.h"
#include "tests/support/published_models.h"
#include "tests/support/random_schema.h"
#include "tests/support/reuse_cases.h"
#include "tests/support/tiny_model.h"

namespace published_test {

using namespace baton;
using namespace baton::test;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (const char* name : {"prompts.jsonl", "texts.jsonl"}) {
    std::istringstream lines(read_file(test_folder() / "published" / name));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line).get<std::string>());
  }
  return all;
}

struct Answer {
  GenerationResult result;
  std::vector<std::vector<float>> logits;  // of each token
};

Answer run(InferenceEngine& engine, GenerationRequest request) {
  Answer answer;
  std::promise<GenerationResult> promise;
  request.callbacks.on_logits = [&](std::span<const float> logits) {
    answer.logits.emplace_back(logits.begin(), logits.end());
  };
  request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
  engine.submit(std::move(request));
  answer.result = promise.get_future().get();
  REQUIRE(answer.result.error.empty());
  return answer;
}

Answer ask(InferenceEngine& engine, std::vector<PromptPart> prompt, const ReuseOptions& reuse) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.max_tokens = 3;
  return run(engine, std::move(request));
}

ReuseOptions method(const std::string& name, std::int32_t layers) {
  ReuseOptions reuse;
  reuse.method = find_method(name);
  reuse.range = {1, 2, layers - 2};
  own<RectifyOptions>(reuse).selection = {};
  reuse.min_tokens = 1;
  reuse.prefix = false;
  return reuse;
}

/// A question that any schema fits. False: no value fulfils the schema.
bool ask_for_record(GenerationRequest& request, const std::string& schema, const Tokenizer& tokenizer) {
  request.prompt = {{"", tokenizer.encode("The record of a museum visitor as JSON: ", SpecialTokens::as_text)}};
  try {
    request.constraint = schema_grammar(schema);
    return true;
  } catch (const ConstraintError&) {
    return false;
  }
}

}  // namespace

TEST_CASE("published: text goes through the tokenizer and back") {
  for (const fs::path& path : published_models()) {
    INFO(path.filename());
    const ModelText text = open_model_files(path)->text();
    const Tokenizer& tokenizer = *text.tokenizer;
    for (const std::string& line : texts()) {
      CAPTURE(line);
      for (const auto special : {SpecialTokens::recognise, SpecialTokens::as_text}) {
        const std::vector<TokenId> ids = tokenizer.encode(line, special);
        const auto unnormalised = line.find("e\u0301") != line.npos;  // two of the texts' characters compose
        if (!unnormalised) CHECK(tokenizer.decode(ids, false) == line);
        StreamDecoder stream(tokenizer, false);
        std::string streamed;
        for (const TokenId id : ids) streamed += stream.push(id);
        CHECK(streamed + stream.finish() == tokenizer.decode(ids, false));
      }
    }
  }
}

TEST_CASE("published: every token of the metadata has its id, and control tokens are recognised") {
  for (const fs::path& path : published_models()) {
    INFO(path.filename());
    const GgufFiles files(path);
    const auto tokens = files.metadata().texts("tokenizer.ggml.tokens");
    const auto types = files.metadata().integers("tokenizer.ggml.token_type");
    const auto model = open_model_files(path);
    const ModelText text = model->text();
    std::size_t controls = 0;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (types[id] == 5) continue;  // unused
      const auto found = text.tokenizer->token_id(tokens[id]);
      if (found != static_cast<TokenId>(id)) FAIL("token " << id << " " << tokens[id]);
      if (types[id] != 3) continue;
      ++controls;
      if (text.tokenizer->encode(tokens[id], SpecialTokens::recognise) != std::vector{static_cast<TokenId>(id)})
        FAIL("control token " << id << " " << tokens[id]);
      const auto plain = text.tokenizer->encode(tokens[id], SpecialTokens::as_text);
      CHECK(std::ranges::find(plain, static_cast<TokenId>(id)) == plain.end());
    }
    CHECK(controls > 0);
    CHECK_FALSE(model->config().eos_tokens.empty());
    if (text.chat_template) {
      const std::string rendered = text.chat_template->render({{"user", "Hello there"}}, text.chat_options);
      CHECK(rendered.find("Hello there") != rendered.npos);
    }
  }
}

TEST_CASE("published: answers under random schemas are valid JSON of them") {
  for (const fs::path& path : published_models()) {
    INFO(path.filename());
    auto backend = make_cpu_backend(2);
    auto model = open_model(*backend, path, {});
    StepEngine engine(std::move(backend), std::move(model), {});
    const Tokenizer& tokenizer = *engine.text().tokenizer;
    int complete = 0;
    for (unsigned seed = 0; seed < 12; ++seed) {
      const std::string schema = RandomSchema(seed, false).schema(2).dump();
      GenerationRequest request;
      if (!ask_for_record(request, schema, tokenizer)) continue;
      request.sampling = {.temperature = seed % 2 == 0 ? 1.0f : 0.0f, .seed = seed};
      request.max_tokens = 300;
      const GenerationResult result = run(engine, std::move(request)).result;
      CAPTURE(schema, result.text);
      CHECK(result.reason == FinishReason::eos);
      CHECK(check_json(result.text, schema).empty());
      CHECK(tokenizer.decode(result.tokens, true) == result.text);
      ++complete;
    }
    CHECK(complete > 8);
  }
}

/// Answers under BATON_RANDOM_SCHEMAS random schemas (default 100) at temperature 1 are valid, and each one's tokens
/// again, forced without a constraint: prints the times of both. Slow, so it runs when it is named.
TEST_CASE("published: many random schemas, and what they cost", "[.schemas]") {
  const char* number = std::getenv("BATON_RANDOM_SCHEMAS");
  const unsigned wanted = number == nullptr ? 100 : static_cast<unsigned>(std::stoul(number));
  for (const fs::path& path : published_models()) {
    INFO(path.filename());
    auto backend = make_cpu_backend(2);
    auto model = open_model(*backend, path, {});
    StepEngine engine(std::move(backend), std::move(model), {.max_draft = 0});
    const Tokenizer& tokenizer = *engine.text().tokenizer;
    engine.read_vocabulary({});
    std::vector<double> ratios;
    double constrained_ms = 0, free_ms = 0;
    std::size_t tokens = 0, valid = 0;
    unsigned asked = 0;
    for (unsigned seed = 0; asked < wanted; ++seed) {
      const std::string schema = RandomSchema(seed, false).schema(2).dump();
      GenerationRequest request;
      if (!ask_for_record(request, schema, tokenizer)) continue;
      ++asked;
      request.sampling = {.temperature = 1.0f, .seed = seed};
      request.max_tokens = 4000;
      GenerationRequest again;
      again.prompt = request.prompt;
      again.max_tokens = request.max_tokens;
      const GenerationResult result = run(engine, std::move(request)).result;
      CAPTURE(seed, schema, result.text);
      CHECK(result.reason == FinishReason::eos);
      CHECK(check_json(result.text, schema).empty());
      valid += result.reason == FinishReason::eos && check_json(result.text, schema).empty() ? 1 : 0;
      again.forced = result.tokens;
      const GenerationResult forced = run(engine, std::move(again)).result;
      CHECK(forced.tokens == result.tokens);
      if (result.tokens.size() < 8) continue;  // too short to be timed
      tokens += result.tokens.size();
      constrained_ms += result.decode_ms;
      free_ms += forced.decode_ms;
      ratios.push_back(result.decode_ms / forced.decode_ms);
    }
    std::sort(ratios.begin(), ratios.end());
    const auto at = [&](double part) {
      return ratios[static_cast<std::size_t>(part * static_cast<double>(ratios.size() - 1))];
    };
    fmt::print(
        "{}: {} of {} valid; {} tokens in {} answers: {:.3f} ms per token, {:.3f} without a constraint; "
        "paired ratio {:.3f} ({:.3f} to {:.3f}, 10 to 90 %)\n",
        path.filename().string(), valid, asked, tokens, ratios.size(), constrained_ms / static_cast<double>(tokens),
        free_ms / static_cast<double>(tokens), at(0.5), at(0.1), at(0.9));
  }
}

namespace {

const std::pair<const char*, const char*> kTimedSchemas[] = {
    {"a record",
     R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
         "city": {"type": "string"}, "kind": {"enum": ["guest", "host", "other"]}, "note": {"type": "string"}},
         "required": ["name", "age", "city", "kind", "note"], "additionalProperties": false})"},
    {"a list of records",
     R"({"type": "array", "minItems": 6, "maxItems": 20, "items": {"type": "object", "properties": {
         "id": {"type": "string", "format": "uuid"}, "day": {"type": "string", "format": "date"},
         "amount": {"type": "number", "minimum": 0, "maximum": 100000}, "paid": {"type": "boolean"}},
         "required": ["id", "day", "amount", "paid"], "additionalProperties": false}})"},
    {"long texts", R"({"type": "array", "minItems": 4, "maxItems": 50,
                       "items": {"type": "string", "minLength": 80, "maxLength": 10000}})"},
};

double ms_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Prints how long 50 tools of 40 fields each take to compile, and a list of long texts.
void print_cost_of_compiling() {
  const char* const kinds[] = {R"({"type": "string"})", R"({"type": "integer", "minimum": 0})",
                               R"({"type": "boolean"})", R"({"enum": ["low", "medium", "high"]})",
                               R"({"type": "array", "items": {"type": "string"}, "maxItems": 5})"};
  std::vector<ToolSchema> tools;
  for (int tool = 0; tool < 50; ++tool) {
    std::string fields;
    for (int field = 0; field < 40; ++field)
      fields += fmt::format(R"({}"field_{}_{}": {})", field == 0 ? "" : ", ", tool, field, kinds[field % 5]);
    tools.push_back({fmt::format("tool_{}", tool), "", fmt::format(R"({{"properties": {{{}}}}})", fields)});
  }
  const std::string list = R"({"type": "array", "maxItems": 50, "items": {"type": "string", "maxLength": 10000}})";
  fmt::print("compiling: 50 tools of 40 fields {:.1f} ms; 'maxLength' 10,000 in a list of 50 {:.1f} ms\n",
             ms_of([&] { call_grammar({}, tools, {.max_calls = 4}); }), ms_of([&] { schema_grammar(list); }));
}

/// Prints the decode time under the schema over that of the same tokens, which are then forced: of the first answer,
/// whose masks are all new, and the median of 9 pairs afterwards, with the second and the eighth ratio, which hold the
/// median with 95 %.
void print_cost_of_decoding(StepEngine& engine, const Tokenizer& tokenizer, const char* name, const char* schema) {
  constexpr std::size_t kPairs = 9;
  const std::shared_ptr<const Grammar> grammar = schema_grammar(schema);
  const auto decode = [&](std::vector<TokenId> forced) {
    GenerationRequest request;
    request.prompt = {{"", tokenizer.encode("Once upon a time", SpecialTokens::as_text)}};
    request.max_tokens = 160;
    if (forced.empty()) request.constraint = grammar;
    request.forced = std::move(forced);
    std::promise<GenerationResult> promise;
    request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
    engine.submit(std::move(request));
    return promise.get_future().get();
  };
  const GenerationResult first = decode({});
  const std::vector<TokenId>& tokens = first.tokens;
  const double cold = first.decode_ms / decode(tokens).decode_ms;
  std::vector<double> ratios;
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    double constrained = 0, forced = 0;
    for (const bool free : {pair % 2 == 0, pair % 2 != 0}) {
      const GenerationResult result = decode(free ? tokens : std::vector<TokenId>());
      CHECK(result.tokens == tokens);
      (free ? forced : constrained) = result.decode_ms;
    }
    ratios.push_back(constrained / forced);
  }
  std::sort(ratios.begin(), ratios.end());
  fmt::print("  decoding {}: {} tokens, {:.3f} x the time without a constraint ({:.3f} to {:.3f}); at first {:.3f} x\n",
             name, tokens.size(), ratios[4], ratios[1], ratios[7], cold);
}

}  // namespace

/// Not a test: prints how long masks and constrained steps take. docs/performance.md has the figures.
TEST_CASE("published: times of constraints", "[.times]") {
  print_cost_of_compiling();
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  };
  for (const fs::path& path : published_models()) {
    auto backend = make_cpu_backend(2);
    auto model = open_model(*backend, path, {});
    const Tokenizer& tokenizer = *model->tokenizer;
    Clock::time_point begin = Clock::now();
    const auto vocabulary =
        std::make_shared<const MaskVocabulary>(tokenizer, model->config.vocabulary, model->config.eos_tokens);
    fmt::print("{}: {} ids, trie of {} nodes in {:.0f} ms\n", path.filename().string(), model->config.vocabulary,
               vocabulary->later->nodes().size(), ms_since(begin));
    const std::pair<const char*, std::shared_ptr<const Grammar>> constraints[] = {
        {"enum of 3", enum_grammar(std::vector<std::string>{"yes", "no", "unclear"})},
        {"regex [a-z ]{1,200}", regex_grammar("[a-z ]{1,200}")},
        {"schema, free strings", schema_grammar(R"({"properties": {"why": {"type": "string"}, "n": {"type": "integer"},
            "of": {"type": "array", "items": {"type": "string"}}}, "required": ["why", "n", "of"]})")},
        {"schema, maxLength 200", schema_grammar(R"({"properties": {"why": {"type": "string", "maxLength": 200},
            "n": {"type": "integer", "minimum": 0, "maximum": 100}}, "required": ["why", "n"]})")},
        {"any JSON", schema_grammar("true")},
    };
    for (const auto& [name, grammar] : constraints) {
      const auto masks = std::make_shared<TokenMasks>(grammar, vocabulary);
      double cold = 0, slowest = 0, cached = 0;
      int steps = 0, cold_steps = 0;
      for (unsigned seed = 0; seed < 10; ++seed) {
        std::mt19937 random(seed);
        AnswerMatcher matcher(masks);
        for (int step = 0; step < 60 && !matcher.complete(); ++step, ++steps) {
          const std::size_t known = masks->cached();
          begin = Clock::now();
          const TokenMask mask = matcher.allowed();
          const double ms = ms_since(begin);
          if (masks->cached() > known) {
            cold += ms;
            slowest = std::max(slowest, ms);
            ++cold_steps;
          } else {
            cached += ms;
          }
          std::vector<TokenId> possible;
          for (TokenId id = 0; id < model->config.vocabulary; ++id)
            if (allows(mask, id) && !tokenizer.token_bytes(id).empty()) possible.push_back(id);
          if (possible.empty() || !matcher.take(possible[random() % possible.size()])) break;
        }
      }
      fmt::print("  {}: {} masks, {:.3f} ms each, slowest {:.3f} ms; {} cached, {:.4f} ms each\n", name, cold_steps,
                 cold / std::max(cold_steps, 1), slowest, steps - cold_steps, cached / std::max(steps - cold_steps, 1));
    }
    if (fs::file_size(path) > (std::size_t{600} << 20)) continue;
    StepEngine engine(std::move(backend), std::move(model), {.max_draft = 0});
    for (const auto& [name, schema] : kTimedSchemas) print_cost_of_decoding(engine, tokenizer, name, schema);
  }
}

TEST_CASE("published: a prompt's logits are the same however it is split into steps") {
  for (const fs::path& path : published_models()) {
    INFO(path.filename());
    const auto backend = make_cpu_backend(2);
    const auto model = open_model(*backend, path, {});
    std::vector<TokenId> ids;
    for (const std::string& line : texts())
      for (const TokenId id : model->tokenizer->encode(line, SpecialTokens::as_text)) ids.push_back(id);
    ids.resize(150);
    const auto last = [&](std::size_t chunk) {
      KvCache cache(*backend, model->kv_layout(), static_cast<std::int32_t>(ids.size()));
      Forward forward(*backend, *model);
      std::vector<float> logits;
      for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
        StepRows rows;
        const std::int32_t index = rows.add_cache(&cache);
        const std::size_t end = std::min(ids.size(), begin + chunk);
        for (std::size_t at = begin; at < end; ++at) rows.add_row(index, static_cast<std::int32_t>(at), ids[at]);
        rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()) - 1);
        const auto values = forward.run(rows);
        logits.assign(values.begin(), values.end());
        cache.commit(static_cast<std::int32_t>(end));
      }
      return logits;
    };
    const std::vector<float> whole = last(ids.size());
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{37}}) {
      INFO("steps of " << chunk);
      const std::vector<float> split = last(chunk);
      CHECK(std::memcmp(whole.data(), split.data(), whole.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("published: every row recomputed in every layer is full prefill, bit for bit") {
  for (const fs::path& path : published_models()) {
    INFO(path.filename());
    auto backend = make_cpu_backend(2);
    auto opened = open_model(*backend, path, {});
    const Model& model = *opened;  // goes with the engine, before its backend
    const std::int32_t layers = model.config.layers;
    const auto part = [&](const std::string& text) {
      return PromptPart{"", model.tokenizer->encode(text, SpecialTokens::as_text), nullptr, 0};
    };
    const PromptPart question = part("List three facts about the sea.\n"), before = part("Here is a report:\n"),
                     between = part("\nAnd here is it again:\n"), after = part("\nSummarise both in one line:");
    StepEngine engine(std::move(backend), std::move(opened), {});

    GenerationRequest request;
    request.prompt = {question};
    request.reuse = method("full", layers);
    request.reuse.record = true;
    request.max_tokens = 40;
    request.output_readers = 8;
    const Answer author = run(engine, std::move(request));
    REQUIRE(author.result.output);
    const PromptPart report{"report", author.result.tokens, author.result.output, 0};

    const std::vector<PromptPart> prompt = {before, report, between, report, after};
    const Answer full = ask(engine, prompt, method("full", layers));
    CHECK(full.result.kv_computed == full.result.kv_entries);
    ReuseOptions rectify = method("rectify", layers);
    rectify.range = {0, 2, layers - 1};
    std::vector<ReuseOptions> all = recomputing_all(rectify);
    own<RectifyOptions>(rectify).selection.all = true;
    all.push_back(rectify);
    for (const ReuseOptions& reuse : all) {
      INFO(reuse.method->name);
      const Answer other = ask(engine, prompt, reuse);
      CHECK(other.result.tokens == full.result.tokens);
      REQUIRE(other.logits.size() == full.logits.size());
      for (std::size_t i = 0; i < full.logits.size(); ++i)
        CHECK(std::memcmp(other.logits[i].data(), full.logits[i].data(), full.logits[i].size() * sizeof(float)) == 0);
    }
    // What a method does not recompute it takes over.
    const Answer direct = ask(engine, prompt, method("direct", layers));
    CHECK(direct.result.kv_computed < full.result.kv_computed);
  }
}

}  // namespace published_test
