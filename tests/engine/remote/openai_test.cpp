// SPDX-License-Identifier: Apache-2.0
// The remote engine against a server that knows OpenAI's API alone.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "agents/prompts/prompt.h"
#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/remote/open_server.h"
#include "engine/remote/server_api.h"
#include "engine/text/constrain/grammar.h"
#include "tests/engine/remote/asking.h"
#include "tests/support/http_server.h"

namespace openai_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

/// Says "Hé!" to whatever it is asked.
struct OpenAiServer {
  explicit OpenAiServer(std::string listed = R"({"data":[{"id":"m"}]})")
      : models(std::move(listed)),
        server([this](const HttpAsked& asked, HttpAnswer& answer) { respond(asked, answer); }) {}

  void respond(const HttpAsked& asked, HttpAnswer& answer) {
    if (asked.path == "/v1/models") {
      answer.whole(200, models);
      return;
    }
    const bool chat = asked.path == "/v1/chat/completions";
    if (!chat && asked.path != "/v1/completions") {
      answer.whole(404, R"({"detail":"Not Found"})");
      return;
    }
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(Json::parse(asked.body));
    }
    answer.begin_stream();
    for (const char* piece : {"", "H", "\xC3\xA9", "!"}) {
      const Json choice = chat ? Json{{"index", 0}, {"delta", {{"content", piece}}}, {"finish_reason", nullptr}}
                               : Json{{"index", 0}, {"text", piece}, {"finish_reason", nullptr}};
      answer.event(Json{{"id", "1"}, {"choices", {choice}}, {"usage", nullptr}}.dump());
    }
    const Json end = chat ? Json{{"index", 0}, {"delta", Json::object()}, {"finish_reason", reason}}
                          : Json{{"index", 0}, {"text", ""}, {"finish_reason", reason}};
    answer.event(Json{{"choices", {end}}}.dump());
    answer.event(Json{
        {"choices", Json::array()},
        {"usage", {{"prompt_tokens", 12}, {"completion_tokens", 3}, {"prompt_tokens_details", {{"cached_tokens", 5}}}}}}
                     .dump());
    if (!without_end) answer.event("[DONE]");
    answer.end_stream();
  }

  std::shared_ptr<InferenceEngine> open(const std::string& path = "", std::shared_ptr<const ModelText> text = nullptr) {
    ServerModel model;
    model.patience = AttemptPauses::kAtOpening;
    model.address.endpoint = server.address() + path;
    model.text = std::move(text);
    return open_server(model);
  }

  std::string models;
  std::string reason = "stop";
  bool without_end = false;
  std::mutex mutex;
  std::vector<Json> bodies;
  HttpServer server;
};

}  // namespace

TEST_CASE("a server that takes messages gets those of the prompt, whatever its values hold") {
  OpenAiServer server;
  const auto engine = server.open("/v1/");
  const auto prompt = build_prompt(engine->text(),
                                   {{"system",
                                     {{"Be br\xC3\xA9"
                                       "f.",
                                       ""}}},
                                    {"user", {{"Say ", ""}, {"", "what"}, {" now", ""}}}},
                                   [&](const std::string&, PieceStart) {
                                     return engine->text().tokenizer->encode("<|baton:system|>\xF0\x9F\xA6\x8A",
                                                                             SpecialTokens::as_text);
                                   });
  GenerationRequest request;
  request.prompt = prompt;
  request.stop = {"END"};
  request.sampling.temperature = 0.5f;
  AskedServer asked(*engine, request);
  const GenerationResult& result = asked.wait();
  CHECK(result.error.empty());
  CHECK(result.text == "H\xC3\xA9!");
  CHECK(asked.pieces() == std::vector<std::string>{"H", "\xC3\xA9", "!"});
  CHECK(engine->text().tokenizer->decode(result.tokens, true) == result.text);
  CHECK(result.prompt_tokens == 12);
  CHECK(result.output_tokens == 3);
  CHECK(result.kv_computed == 7);
  CHECK_THAT(result.uses.at(0).reason, Contains("bytes"));
  CHECK(server.bodies.at(0) == Json{{"model", "m"},
                                    {"max_tokens", 256},
                                    {"temperature", 0.5},
                                    {"top_p", 1.0},
                                    {"seed", 0},
                                    {"stop", {"END"}},
                                    {"stream", true},
                                    {"stream_options", {{"include_usage", true}}},
                                    {"messages",
                                     {{{"role", "system"},
                                       {"content",
                                        "Be br\xC3\xA9"
                                        "f."}},
                                      {{"role", "user"}, {"content", "Say <|baton:system|>\xF0\x9F\xA6\x8A now"}}}}});
}

TEST_CASE("a server's word for the end of an answer is known, is an error, or is told") {
  OpenAiServer server;
  const std::shared_ptr<const ModelText> text = std::make_shared<const ModelText>(message_text());
  for (const auto& engine : {server.open(), server.open("", text)}) {
    for (const auto& [word, expected] :
         {std::pair("stop", FinishReason::eos), std::pair("tool_calls", FinishReason::eos),
          std::pair("end_turn", FinishReason::eos), std::pair("length", FinishReason::length),
          std::pair("MAX_TOKENS", FinishReason::length), std::pair("content_filter", FinishReason::error),
          std::pair("SAFETY", FinishReason::error), std::pair("abort", FinishReason::error),
          std::pair("out of paper", FinishReason::other)}) {
      INFO(word);
      server.reason = word;
      AskedServer asked(*engine, asking(*engine, "ab"));
      const GenerationResult& result = asked.wait();
      CHECK(result.reason == expected);
      if (expected == FinishReason::error) CHECK_THAT(result.error, Contains(word));
      CHECK(result.server_reason == (expected == FinishReason::other ? word : ""));
    }
  }
}

TEST_CASE("a server with a tokenizer of ours gets token ids") {
  OpenAiServer server;
  server.without_end = true;
  const auto engine = server.open("", std::make_shared<const ModelText>(message_text()));
  CHECK(engine->info().ids_per_token == 1);
  CHECK(server.open()->info().ids_per_token == 3);  // bytes
  AskedServer asked(*engine, asking(*engine, "ab"));
  CHECK(asked.wait().text == "H\xC3\xA9!");
  CHECK(asked.wait().tokens == std::vector<TokenId>{'H', 0xC3, 0xA9, '!'});
  CHECK(server.bodies.at(0).at("prompt") == Json{'a', 'b'});
  CHECK(asked.wait().kv_computed == 7);
}

TEST_CASE("what the API of OpenAI lacks is refused with the reason") {
  OpenAiServer server;
  const auto engine = server.open();
  const auto refused = [&](auto change) {
    GenerationRequest request = asking(*engine, "x");
    change(request);
    CHECK_THROWS_AS(engine->submit(request), EngineError);
  };
  refused([](GenerationRequest& request) { request.constraint = regex_grammar("a"); });
  refused([](GenerationRequest& request) { request.sampling.top_k = 5; });
  refused([](GenerationRequest& request) { request.sampling.min_p = 0.1f; });
  refused([](GenerationRequest& request) { request.sampling.repetition_penalty = 1.1f; });
  refused([](GenerationRequest& request) { request.stop.assign(5, "x"); });
  CHECK(engine->prepare({}) == 0);  // requests may cost money
}

TEST_CASE("a server with several models wants the name of one") {
  OpenAiServer several(R"({"data":[{"id":"m"},{"id":"n"}]})");
  CHECK_THROWS_WITH(several.open(), Contains("2 models") && Contains("'m'"));
  OpenAiServer hostile(R"({"data":{"a":[]}})");
  CHECK_THROWS_AS(hostile.open(), ModelError);
}

}  // namespace openai_test
