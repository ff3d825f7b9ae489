// SPDX-License-Identifier: Apache-2.0
// A trained model under random schemas: whatever it would rather say, its answer is valid by the check of answers.
// BATON_TEST_NIGHTLY=1: 1,000 schemas instead of 60.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/schema/schema.h"
#include "tests/support/folders.h"
#include "tests/support/random_schema.h"

namespace constrained_answers_test {

using namespace baton;
using namespace baton::test;

TEST_CASE("the nano model's answers under random schemas are valid JSON of them", "[constrain]") {
  const char* nightly = std::getenv("BATON_TEST_NIGHTLY");
  const unsigned count = nightly != nullptr && std::string(nightly) == "1" ? 1000 : 60;
  auto backend = make_cpu_backend(2);
  auto model = open_model(*backend, source_folder() / "samples/models/nano", {});
  StepEngine engine(std::move(backend), std::move(model), {});
  std::vector<std::pair<std::string, std::future<GenerationResult>>> answers;
  for (unsigned seed = 0; seed < count; ++seed) {
    const std::string schema = RandomSchema(seed, false).schema(2).dump();
    GenerationRequest request;
    try {
      request.constraint = schema_grammar(schema);
    } catch (const ConstraintError&) {
      continue;  // no value fulfils it
    }
    request.prompt = {{"", engine.text().tokenizer->encode("Q: Ada has 3 apples. A:", SpecialTokens::as_text)}};
    request.sampling = {.temperature = 1.0f, .seed = seed};
    request.max_tokens = 600;
    auto promise = std::make_shared<std::promise<GenerationResult>>();
    answers.emplace_back(schema, promise->get_future());
    request.callbacks.on_finished = [promise](GenerationResult result) { promise->set_value(std::move(result)); };
    engine.submit(std::move(request));
  }
  CHECK(answers.size() > count * 8 / 10);
  std::size_t complete = 0;
  for (auto& [schema, future] : answers) {
    const GenerationResult result = future.get();
    CAPTURE(schema, result.text, result.error);
    CHECK(result.error.empty());
    if (result.reason != FinishReason::eos) continue;  // numbers may run on to max_tokens
    ++complete;
    CHECK(check_json(result.text, schema).empty());
  }
  CHECK(complete == answers.size());
}

}  // namespace constrained_answers_test
