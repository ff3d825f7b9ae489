// SPDX-License-Identifier: Apache-2.0
// The remote engine against a strict llama-server: answers, failures, cancelling, prompts sent ahead.
#include <catch2/catch.hpp>

#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/remote/open_server.h"
#include "engine/text/constrain/grammar.h"
#include "tests/engine/remote/asking.h"
#include "tests/engine/remote/llama_server.h"

namespace llama_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

std::shared_ptr<InferenceEngine> open(const LlamaServer& server, const std::string& key = {}) {
  ServerModel model;
  model.patience = AttemptPauses::kAtOpening;
  model.slowdown = 1000.0;  // times of tests are not those of a machine with nothing else to do
  model.address = {server.address(), key};
  return open_server(model);
}

std::vector<TokenId> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

TEST_CASE("a llama-server tells its vocabulary and its template, and answers a prompt of token ids") {
  LlamaServer server;
  const auto engine = open(server);
  CHECK(engine->info().context == 4096);
  const ModelText& text = engine->text();
  CHECK(text.path.string() == server.address());
  CHECK(text.chat_template->render({{"user", "hi"}}, text.chat_options) ==
        "<|begin|>user:hi<|end|><|begin|>assistant:");
  CHECK(text.tokenizer->encode("a<|end|>", SpecialTokens::recognise) == std::vector<TokenId>{'a', LlamaServer::kEnd});
  CHECK(text.tokenizer->encode("<|end|>", SpecialTokens::as_text) == bytes("<|end|>"));
  CHECK(text.tokenizer->is_special(LlamaServer::kEnd));
  CHECK_FALSE(text.tokenizer->is_special('a'));
  CHECK(text.tokenizer->decode(std::vector<TokenId>{'a', LlamaServer::kEnd, 'b'}, true) == "ab");
  CHECK(text.tokenizer->token_id("<|begin|>") == LlamaServer::kBegin);
  CHECK(text.tokenizer->token_id("ab") == std::nullopt);

  GenerationRequest request = asking(*engine, "<|begin|>user:hi");
  request.sampling.seed = 0xFFFF'FFFF'FFFFu;
  request.stop = {"STOP"};
  AskedServer asked(*engine, request);
  const GenerationResult& result = asked.wait();
  CHECK(result.reason == FinishReason::eos);
  CHECK(result.text == "an answer");
  CHECK(result.tokens == bytes("an answer"));
  CHECK(asked.pieces().size() == 9);
  CHECK(asked.prefilled() == 1);
  CHECK(result.prompt_tokens == 8);
  CHECK(result.kv_entries == 8);
  CHECK(result.kv_computed == 8);
  CHECK(result.prefill_ms == 1.5);
  CHECK_THAT(result.uses.at(0).reason, Contains("computed by the server"));
  const Json body = server.completions().at(0).body;
  CHECK(body["seed"] < 0xFFFF'FFFFu);
  CHECK(body["stop"] == Json{"STOP"});
  CHECK(body["samplers"].front() == "penalties");
  CHECK_FALSE(body.contains("id_slot"));
  CHECK(server.faults().empty());

  AskedServer again(*engine, asking(*engine, "<|begin|>user:hi"));
  CHECK(again.wait().kv_computed == 1);  // the server computes the last token anew
  CHECK(again.wait().uses.at(0).method == &prefix_method());
  CHECK_THAT(again.wait().uses.at(0).reason, Contains("exact up to the server's numerics"));
}

TEST_CASE("an answer has the server's ids, and its text's where the server leaves some out") {
  LlamaServer server;
  server.script = [](const std::string&) { return LlamaServer::Script{.text = "a\xC3\xA9z", .hidden = {1}}; };
  const auto engine = open(server);
  AskedServer asked(*engine, asking(*engine, "x"));
  CHECK(asked.wait().text == "a\xC3\xA9z");
  CHECK(asked.wait().tokens == std::vector<TokenId>{'a', 0xC3, 0xA9, 'z'});
  CHECK(asked.pieces() == std::vector<std::string>{"a", "\xC3\xA9", "z"});
}

TEST_CASE("a llama-server ends an answer for a stop text or for its length") {
  LlamaServer server;
  server.script = [](const std::string& prompt) {
    return LlamaServer::Script{.text = "abcdef", .stop_type = prompt == "word" ? "word" : "limit"};
  };
  const auto engine = open(server);
  AskedServer word(*engine, asking(*engine, "word"));
  CHECK(word.wait().reason == FinishReason::stop);
  GenerationRequest request = asking(*engine, "limit");
  request.max_tokens = 3;
  AskedServer limit(*engine, request);
  CHECK(limit.wait().reason == FinishReason::length);
  CHECK(limit.wait().text == "abc");
}

TEST_CASE("a llama-server is asked for thinking alone, and the request ends where the answer begins") {
  LlamaServer server;
  const auto engine = open(server);
  for (const std::vector<int>& hidden : {std::vector<int>{}, std::vector<int>{9, 10}, std::vector<int>{20}}) {
    server.script = [hidden](const std::string&) {
      return LlamaServer::Script{.text = "<think>Rome? No.</think>\n\nParis", .per_token = 1ms, .hidden = hidden};
    };
    GenerationRequest request = asking(*engine, "x");
    request.thinking = ThinkingMarks{"<think>", "</think>"};
    AskedServer asked(*engine, request);
    const GenerationResult& result = asked.wait();
    CHECK(result.error.empty());
    CHECK(result.thought);
    CHECK(result.reason == FinishReason::stop);
    CHECK(result.text == "Rome? No.");
    CHECK(engine->text().tokenizer->decode(result.tokens, false) == "<think>Rome? No.</think>\n\n");
    CHECK(server.completions().back().body.at("preserved_tokens") == Json{"<think>", "</think>"});
  }
  CHECK(server.faults().empty());
}

TEST_CASE("a llama-server gets the constraint of an answer as GBNF") {
  LlamaServer server;
  const auto engine = open(server);
  GenerationRequest request = asking(*engine, "x");
  request.constraint = regex_grammar("ab?");
  AskedServer asked(*engine, request);
  CHECK(asked.wait().reason == FinishReason::eos);
  const std::string grammar = server.completions().at(0).body.at("grammar");
  CHECK(accepts(*gbnf_grammar(grammar), "ab"));
  CHECK_FALSE(accepts(*gbnf_grammar(grammar), "abb"));
}

TEST_CASE("what a llama-server cannot do is refused with the reason") {
  LlamaServer server;
  const auto engine = open(server);
  GenerationRequest request = asking(*engine, "x");
  request.forced = {1, 2};
  CHECK_THROWS_WITH(engine->submit(request), Contains(server.address()) && Contains("tokens of its answer"));
  request = asking(*engine, "x");
  request.choices = {{1}, {2}};
  CHECK_THROWS_WITH(engine->submit(request), Contains("probabilities"));
  request = asking(*engine, "x");
  request.callbacks.on_logits = [](std::span<const float>) {};
  CHECK_THROWS_WITH(engine->submit(request), Contains("no logits"));
  CHECK_THROWS_WITH(engine->submit(asking(*engine, std::string(5000, 'x'))), Contains("5000") && Contains("4096"));
  CHECK(server.completions().empty());
}

TEST_CASE("a request is tried again before its first token and never after it") {
  LlamaServer server;
  const auto engine = open(server);
  server.busy = 2;
  AskedServer loading(*engine, asking(*engine, "x"));
  CHECK(loading.wait().text == "an answer");
  CHECK(server.busy == 0);

  server.refused = 1;
  AskedServer refused(*engine, asking(*engine, "x"));
  CHECK(refused.wait().reason == FinishReason::error);
  CHECK(refused.wait().error ==
        "server " + server.address() + ": it answered with status 400: Failed to parse grammar");

  server.script = [](const std::string&) { return LlamaServer::Script{.cut_after = 4}; };
  const std::size_t before = server.completions().size();
  AskedServer cut(*engine, asking(*engine, "x"));
  CHECK(cut.wait().reason == FinishReason::error);
  CHECK_THAT(cut.wait().error, Contains(server.address()));
  CHECK(cut.wait().text == "an a");
  CHECK(server.completions().size() == before + 1);
}

TEST_CASE("what is no answer ends the request and not the engine") {
  LlamaServer server;
  std::string fault;
  server.script = [&](const std::string& prompt) {
    return prompt == "fine" ? LlamaServer::Script{} : LlamaServer::Script{.fault = fault};
  };
  const auto engine = open(server);
  for (const std::string& what :
       {std::string("no json"), std::string("[]"), std::string(R"({"content":7})"), std::string(R"({"tokens":[-1]})"),
        std::string(100'000, '['), R"({"error":{"message":"out of )" + std::string(100'000, 'x') + R"("}})",
        std::string(20 << 20, 'x'), std::string(R"({"content":"x","tokens":[1e300]})")}) {
    fault = what;
    AskedServer asked(*engine, asking(*engine, "x"));
    CHECK(asked.wait().reason == FinishReason::error);
    CHECK_THAT(asked.wait().error, Contains(server.address()));
    CHECK(asked.wait().error.size() < 1000);
  }
  AskedServer fine(*engine, asking(*engine, "fine"));
  CHECK(fine.wait().reason == FinishReason::eos);
}

TEST_CASE("cancelling closes the request, and an engine's end ends all of them") {
  LlamaServer server(4);
  server.script = [](const std::string&) {
    return LlamaServer::Script{.text = std::string(5000, 'y'), .per_token = 2ms};
  };
  auto engine = open(server);
  GenerationRequest request = asking(*engine, "x");
  request.max_tokens = 3000;
  {
    AskedServer asked(*engine, request);
    asked.wait_for_pieces(3);
    engine->cancel(asked.id);
    CHECK(asked.wait().reason == FinishReason::cancelled);
    CHECK(asked.wait().text.size() >= 3);
  }
  for (int i = 0; i < 2000 && server.hung_up == 0; ++i) std::this_thread::sleep_for(5ms);
  CHECK(server.hung_up == 1);
  AskedServer first(*engine, request), second(*engine, request);
  first.wait_for_pieces(2);
  engine.reset();
  CHECK(first.wait().reason == FinishReason::cancelled);
  CHECK(second.wait().reason == FinishReason::cancelled);
}

TEST_CASE("connections are used again") {
  LlamaServer server;
  const auto engine = open(server);
  GenerationRequest request = asking(*engine, "x");
  AskedServer(*engine, request).wait();
  const int before = server.connections();
  for (int i = 0; i < 5; ++i) {
    AskedServer asked(*engine, request);
    CHECK(asked.wait().reason == FinishReason::eos);
  }
  CHECK(server.connections() == before);
}

TEST_CASE("a waiting prompt is sent ahead while its author decodes") {
  LlamaServer server(3);
  server.script = [](const std::string&) {
    return LlamaServer::Script{.text = std::string(200, 'y'), .per_token = 3ms};
  };
  const auto engine = open(server);
  const std::string before(40, 'b'), behind = "<|end|>what of it?";
  GenerationRequest request = asking(*engine, "author");
  AskedServer author(*engine, request);
  EarlyPrompt early;
  early.parts.push_back({bytes(before), 0, false, ""});
  early.parts.push_back({{}, author.id, false, "agent_author_current"});
  early.reuse = request.reuse;
  const EarlyId id = engine->prepare(early);
  REQUIRE(id != 0);
  CHECK(author.wait().text == std::string(200, 'y'));

  GenerationRequest reader = asking(*engine, before);
  reader.prompt.push_back({"agent_author_current", author.wait().tokens});
  reader.prompt.push_back({"", engine->text().tokenizer->encode(behind, SpecialTokens::recognise)});
  reader.early = id;
  server.busy = 1;  // and is found again by the second try
  AskedServer asked(*engine, reader);
  const GenerationResult& result = asked.wait();
  CHECK(server.faults().empty());
  CHECK(server.most_ahead == 1);

  const auto all = server.completions();
  REQUIRE(all.size() >= 4);
  std::size_t known = 0;
  for (const auto& one : all) {
    if (!one.warm_up()) continue;
    CHECK(one.slot >= 0);
    CHECK(one.slot == all.back().slot);  // all of them, and the request, at one place
    CHECK(one.slot != all.front().ran);
    CHECK(one.prompt.size() >= known + 16);
    known = one.prompt.size();
  }
  CHECK(known > 100);
  CHECK_FALSE(all.back().warm_up());
  CHECK(all.back().cached == static_cast<int>(known));
  CHECK(result.kv_ahead == static_cast<std::int64_t>(known));
  CHECK(result.kv_computed == result.prompt_tokens);
  CHECK(result.uses.at(1).ahead_tokens == static_cast<std::int64_t>(known) - 40);
  CHECK(result.uses.at(1).method == &lockstep_method());
  CHECK_THAT(result.uses.at(1).reason, Contains("exact up to the server's numerics"));
}

namespace {

LlamaServer::Script writes_slowly(const std::string&) { return {.text = std::string(60, 'y'), .per_token = 2ms}; }

EarlyPrompt waiting_prompt() {
  EarlyPrompt early;
  early.parts.push_back({std::vector<TokenId>(50, 'b'), 0, false, ""});
  return early;
}

}  // namespace

TEST_CASE("nothing is sent ahead to a server of one slot, or for a prompt that waits no longer") {
  LlamaServer one(1);
  CHECK(open(one)->prepare({}) == 0);
  LlamaServer server(2);
  server.script = writes_slowly;
  const auto engine = open(server);
  AskedServer author(*engine, asking(*engine, "author"));
  const EarlyPrompt early = waiting_prompt();
  engine->forget(engine->prepare(early));
  author.wait();
  CHECK(server.completions().size() == 1);
}

TEST_CASE("a prompt whose request was refused is not sent ahead") {
  LlamaServer server(2);
  server.script = writes_slowly;
  const auto engine = open(server);
  AskedServer author(*engine, asking(*engine, "author"));
  const EarlyPrompt early = waiting_prompt();
  GenerationRequest wrong = asking(*engine, std::string(50, 'b'));
  wrong.max_tokens = 0;
  wrong.early = engine->prepare(early);
  REQUIRE(wrong.early != 0);
  CHECK_THROWS_AS(engine->submit(wrong), EngineError);
  author.wait();
  CHECK(server.completions().size() == 1);
}

TEST_CASE("two prompts that wait at a server of two slots share the one that is free") {
  LlamaServer server(2);
  server.script = [](const std::string&) {
    return LlamaServer::Script{.text = std::string(250, 'y'), .per_token = 2ms};
  };
  const auto engine = open(server);
  AskedServer author(*engine, asking(*engine, "author"));
  EarlyPrompt early = waiting_prompt();
  const EarlyId first = engine->prepare(early);
  early.parts[0].tokens = std::vector<TokenId>(50, 'c');
  engine->prepare(early);
  author.wait();
  const auto all = server.completions();
  CHECK(std::count_if(all.begin(), all.end(), [](const auto& sent) { return sent.warm_up(); }) == 1);
  engine->forget(first);
}

TEST_CASE("a server that was started anew is asked for its model") {
  auto server = std::make_unique<LlamaServer>();
  const std::uint16_t port = server->port();
  const auto engine = open(*server);
  const GenerationRequest request = asking(*engine, "x");
  server.reset();
  {
    AskedServer asked(*engine, request);
    std::this_thread::sleep_for(100ms);
    server = std::make_unique<LlamaServer>(2, port);
    CHECK(asked.wait().text == "an answer");
  }
  server.reset();
  AskedServer asked(*engine, request);
  std::this_thread::sleep_for(100ms);
  server = std::make_unique<LlamaServer>(2, port, "/models/other.gguf");
  CHECK(asked.wait().reason == FinishReason::error);
  CHECK_THAT(asked.wait().error, Contains("/models/other.gguf") && Contains("/models/toy.gguf"));
}

TEST_CASE("a server wants its key, and nobody else learns it") {
  LlamaServer server;
  server.key = "Bearer abc";
  CHECK_THROWS_WITH(open(server), Contains("401") && Contains("Invalid API Key"));
  const auto engine = open(server, "abc");
  AskedServer asked(*engine, asking(*engine, "x"));
  CHECK(asked.wait().reason == FinishReason::eos);
  CHECK_THAT(engine->info().device_description, !Contains("abc"));
  CHECK_THROWS_WITH(open(server, "a\r\nb: c"), Contains("invalid key"));
}

TEST_CASE("an endpoint is an address of HTTP, shown without its secrets") {
  for (const char* endpoint : {"", "host:8000", "file:///etc/passwd", "http://a b", "http://a/?q=1", "ftp://a"}) {
    ServerModel model;
    model.patience = AttemptPauses::kAtOpening;
    model.address.endpoint = endpoint;
    CHECK_THROWS_AS(open_server(model), BackendError);
  }
  ServerModel model;
  model.patience = AttemptPauses::kAtOpening;
  model.address.endpoint = "http://user:secret@127.0.0.1:1/v1";
  CHECK_THROWS_WITH(open_server(model), Contains("server http://127.0.0.1:1:") && !Contains("secret"));
}

}  // namespace llama_test
