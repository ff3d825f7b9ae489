// SPDX-License-Identifier: Apache-2.0
// baton_bench_constraints: what a constraint costs. It prints the time to compile many tools and long lists of long
// texts, and for some schemas the decode time of a constrained answer over that of the same tokens without a constraint
// (the answer is forced, one token a step). Usage: baton_bench_constraints MODEL [--pairs 9] [--tokens 160]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/local_engine.h"
#include "engine/registry.h"
#include "engine/text/constrain/call_grammar.h"
#include "engine/text/constrain/grammar.h"

namespace {

using namespace baton;

const std::pair<const char*, const char*> kSchemas[] = {
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

template <typename Work>
double median_ms(int times, const Work& work) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    all.push_back(milliseconds(Clock::now() - begin));
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[static_cast<std::size_t>(times) / 2];
}

void compile(int times) {
  std::vector<ToolSchema> tools;
  const char* const kinds[] = {R"({"type": "string"})", R"({"type": "integer", "minimum": 0})",
                               R"({"type": "boolean"})", R"({"enum": ["low", "medium", "high"]})",
                               R"({"type": "array", "items": {"type": "string"}, "maxItems": 5})"};
  for (int tool = 0; tool < 50; ++tool) {
    std::string fields;
    for (int field = 0; field < 40; ++field)
      fields += fmt::format(R"({}"field_{}_{}": {})", field == 0 ? "" : ", ", tool, field, kinds[field % 5]);
    tools.push_back(
        {fmt::format("tool_{}", tool), "", fmt::format(R"({{"type": "object", "properties": {{{}}}}})", fields)});
  }
  fmt::print("compile 50 tools of 40 fields: {:.1f} ms\n",
             median_ms(times, [&] { call_grammar({}, tools, {.max_calls = 4}); }));
  const std::string list = R"({"type": "array", "maxItems": 50, "items": {"type": "string", "maxLength": 10000}})";
  fmt::print("compile 'maxLength' 10,000 in a list of 50: {:.1f} ms\n",
             median_ms(times, [&] { schema_grammar(list); }));
}

GenerationResult generate(InferenceEngine& engine, GenerationRequest request) {
  std::vector<TokenId> prompt;
  for (TokenId id = 0; id < 64; ++id) prompt.push_back(1000 + 17 * id);
  request.prompt = {{"", std::move(prompt)}};
  request.reuse.method = find_method("prefix");
  std::promise<GenerationResult> over;
  request.callbacks.on_finished = [&over](GenerationResult result) { over.set_value(std::move(result)); };
  engine.submit(std::move(request));
  return over.get_future().get();
}

double ms_per_token(const GenerationResult& result) {
  return result.decode_ms / static_cast<double>(std::max<std::size_t>(result.tokens.size(), 2) - 1);
}

void decode(InferenceEngine& engine, int pairs, int tokens) {
  for (const auto& [name, schema] : kSchemas) {
    GenerationRequest constrained;
    constrained.constraint = schema_grammar(schema);
    constrained.max_tokens = tokens;
    GenerationRequest free;
    free.forced = generate(engine, constrained).tokens;
    std::vector<double> ratios;
    double free_ms = 0;
    for (int pair = 0; pair < pairs; ++pair) {
      double ms[2];  // constrained, free
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (pair + turn) % 2;
        const GenerationResult result = generate(engine, which == 0 ? constrained : free);
        if (result.tokens != free.forced) throw std::runtime_error("the runs wrote different tokens");
        ms[which] = ms_per_token(result);
      }
      ratios.push_back(ms[0] / ms[1]);
      free_ms += ms[1] / pairs;
    }
    std::sort(ratios.begin(), ratios.end());
    const std::size_t cut = pairs >= 9 ? 1 : 0;  // of nine, the second and the eighth hold the median with 95 %
    fmt::print("decode under {}: {} tokens, {:.2f} ms each without, {:.3f} x with ({:.3f} to {:.3f}), {} pairs\n", name,
               free.forced.size(), free_ms, ratios[ratios.size() / 2], ratios[cut], ratios[ratios.size() - 1 - cut],
               pairs);
  }
}

}  // namespace

int main(int count, char** values) {
  std::string model;
  int pairs = 9, tokens = 160;
  for (int i = 1; i < count; ++i) {
    const bool more = i + 1 < count;
    if (more && std::strcmp(values[i], "--pairs") == 0) {
      pairs = std::max(1, std::atoi(values[++i]));
    } else if (more && std::strcmp(values[i], "--tokens") == 0) {
      tokens = std::max(2, std::atoi(values[++i]));
    } else if (model.empty() && values[i][0] != '-') {
      model = values[i];
    } else {
      model.clear();
      break;
    }
  }
  if (model.empty()) {
    std::fprintf(stderr, "usage: %s MODEL [--pairs N] [--tokens N]\n", values[0]);
    return 2;
  }
  try {
    compile(pairs);
    LocalEngineOptions own;
    own.device = "cpu";
    own.token_by_token = true;
    own.max_draft = 0;
    decode(*open_engine(model, own), pairs, tokens);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
