// SPDX-License-Identifier: Apache-2.0
// The remote engine against strict servers of vLLM and SGLang: what is alike for both.
#include <catch2/catch.hpp>

#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/remote/open_server.h"
#include "engine/remote/server_api.h"
#include "engine/text/constrain/grammar.h"
#include "tests/engine/remote/asking.h"
#include "tests/engine/remote/sglang_server.h"
#include "tests/engine/remote/vllm_server.h"

namespace serving_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

template <class Server>
std::shared_ptr<InferenceEngine> open(const Server& server, const std::string& api = "auto", bool tokenizer = true) {
  ServerModel model;
  model.patience = AttemptPauses::kAtOpening;
  model.slowdown = 1000.0;  // times of tests are not those of a machine with nothing else to do
  model.address = {server.address(), {}};
  model.api = api;
  if (tokenizer) model.text = std::make_shared<const ModelText>(message_text());
  return open_server(model);
}

/// Runs a test against both.
template <class Test>
void on_each(Test test) {
  SECTION("vLLM") {
    VllmServer server;
    test(server, "vllm");
    CHECK(server.faults().empty());
  }
  SECTION("SGLang") {
    SglangServer server;
    test(server, "sglang");
    CHECK(server.faults().empty());
  }
  SECTION("SGLang, whose events hold what is new") {
    SglangServer server;
    server.deltas = true;
    test(server, "sglang");
    CHECK(server.faults().empty());
  }
}

std::vector<TokenId> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

TEST_CASE("pauses between attempts double up to eight seconds, and end with the patience") {
  HttpEnd refused;
  refused.passing = true;
  const auto pauses_of = [&](AttemptPauses pauses) {
    std::vector<double> all;
    while (const std::optional<double> pause = pauses.next(refused)) all.push_back(*pause);
    return all;
  };
  CHECK(pauses_of(AttemptPauses()) == std::vector<double>{0.25, 0.5, 1, 2});
  CHECK(pauses_of(AttemptPauses(60)) == std::vector<double>{0.25, 0.5, 1, 2, 4, 8, 8, 8, 8, 8, 8});
  CHECK(pauses_of(AttemptPauses(0)).empty());
  refused.wait_seconds = 7;  // that the server asks for
  CHECK(pauses_of(AttemptPauses(0)) == std::vector<double>{7, 7, 7, 7});
  refused.wait_seconds = 61;
  CHECK(pauses_of(AttemptPauses(60)).empty());
  refused = {};
  CHECK(pauses_of(AttemptPauses(60)).empty());  // another attempt would fail, too
}

TEST_CASE("a tokenizer that is not the server's is refused when it is opened") {
  VllmServer server;
  server.tokenize = [](const std::string& text) {
    return std::vector<int>(reinterpret_cast<const unsigned char*>(text.data()),
                            reinterpret_cast<const unsigned char*>(text.data()) + text.size());
  };
  CHECK_NOTHROW(open(server));
  server.tokenize = [](const std::string& text) { return std::vector<int>(text.size(), 7); };
  CHECK_THROWS_WITH(open(server), Contains("its tokenizer is not that of 'tokenizer' in the workflow's file"));
}

TEST_CASE("vLLM and SGLang take the ids of a prompt and give those of the answer") {
  on_each([](auto& server, const std::string& api) {
    for (const int together : {1, 4, 100}) {
      server.script = [=](const std::string&) {
        return ScriptedServer::Script{.text = "an answ\xC3\xA9r", .together = together};
      };
      const auto engine = open(server, api);
      CHECK(engine->info().context == 4096);
      AskedServer asked(*engine, asking(*engine, "<|baton:user|>hello" + std::to_string(together)));
      const GenerationResult& result = asked.wait();
      CHECK(result.error.empty());
      CHECK(result.reason == FinishReason::eos);
      CHECK(result.text == "an answ\xC3\xA9r");
      CHECK(engine->text().tokenizer->decode(result.tokens, false) == result.text);  // without the token that ended it
      CHECK(asked.prefilled() == 1);
      CHECK(server.asked().back().prompt.front() == 257);
    }
    server.script = nullptr;
    const auto engine = open(server, api);
    GenerationRequest request = asking(*engine, "x");
    request.max_tokens = 3;
    AskedServer asked(*engine, request);
    CHECK(asked.wait().reason == FinishReason::length);
    CHECK(asked.wait().tokens == bytes("an "));
  });
}

TEST_CASE("an answer of vLLM or SGLang ends before a stop text of which nothing is handed on") {
  on_each([](auto& server, const std::string& api) {
    for (const int together : {1, 3, 100}) {
      server.script = [=](const std::string&) {
        return ScriptedServer::Script{.text = "one STO, two STOP three", .together = together};
      };
      const auto engine = open(server, api);
      GenerationRequest request = asking(*engine, "x");
      request.stop = {"STOP", "never"};
      AskedServer asked(*engine, request);
      const GenerationResult& result = asked.wait();
      CHECK(result.reason == FinishReason::stop);
      CHECK(result.text == "one STO, two ");
      CHECK(result.tokens == bytes(result.text));
      std::string streamed;
      for (const std::string& piece : asked.pieces()) streamed += piece;
      CHECK(streamed == result.text);
    }
    const auto engine = open(server, api);
    GenerationRequest request = asking(*engine, "x");
    request.stop = {"threeX"};
    AskedServer asked(*engine, request);
    CHECK(asked.wait().text ==
          "one STO, two STOP three");  // and not without its end, which might have been a stop text
    CHECK(asked.wait().tokens == bytes(asked.wait().text));
    request.stop = {""};
    CHECK_THROWS_WITH(engine->submit(request), Contains("a stop text is empty"));
  });
}

TEST_CASE("vLLM and SGLang tell how much of a prompt they had") {
  on_each([](auto& server, const std::string& api) {
    const auto engine = open(server, api);
    const std::string prompt(40, 'p');
    AskedServer(*engine, asking(*engine, prompt)).wait();
    AskedServer again(*engine, asking(*engine, prompt + " and more"));
    again.wait();
    const int had = server.asked().back().cached;
    CHECK(had == (api == "vllm" ? 32 : 40));
    CHECK(again.wait().prompt_tokens == 49);
    CHECK(again.wait().kv_computed == 49 - had);
    CHECK(again.wait().uses.at(0).method == &prefix_method());
    CHECK_THAT(again.wait().uses.at(0).reason, Contains("exact up to the server's numerics"));

    GenerationRequest full = asking(*engine, prompt);
    full.reuse.method = &full_method();
    AskedServer unaided(*engine, full);
    CHECK(unaided.wait().kv_computed == 40);
    AskedServer once_more(*engine, full);
    CHECK(once_more.wait().kv_computed == 40);
  });
}

TEST_CASE("a server that does not tell what its cache had is believed to have had nothing") {
  on_each([](auto& server, const std::string& api) {
    server.tells_cached = false;
    const auto engine = open(server, api);
    AskedServer(*engine, asking(*engine, "the same")).wait();
    AskedServer again(*engine, asking(*engine, "the same"));
    CHECK(again.wait().kv_computed == 8);
    CHECK(again.prefilled() == 1);
    CHECK_THAT(again.wait().uses.at(0).reason, Contains("does not tell"));
  });
}

TEST_CASE("vLLM and SGLang get sampling in full and refuse nothing of it") {
  on_each([](auto& server, const std::string& api) {
    const auto engine = open(server, api);
    GenerationRequest request = asking(*engine, "x");
    request.sampling.seed = ~std::uint64_t{0};
    AskedServer(*engine, request).wait();
    const bool vllm = api == "vllm";
    const auto body = [&] {
      const auto sent = server.asked().back().body;
      return vllm ? sent : sent.at("sampling_params");
    };
    CHECK(body().at("top_k") == -1);
    CHECK(body().at(vllm ? "seed" : "sampling_seed") == INT64_MAX);
    request.sampling = {.temperature = 0.5f, .top_k = 7, .top_p = 0.25f, .min_p = 0.125f, .repetition_penalty = 1.5f};
    AskedServer asked(*engine, request);
    CHECK(asked.wait().error.empty());
    CHECK(body().at("temperature") == 0.5);
    CHECK(body().at("top_k") == 7);
    CHECK(body().at("top_p") == 0.25);
    CHECK(body().at("min_p") == 0.125);
    CHECK(body().at("repetition_penalty") == 1.5);
  });
}

TEST_CASE("vLLM and SGLang get the constraint of an answer as a grammar") {
  on_each([](auto& server, const std::string& api) {
    const auto engine = open(server, api);
    GenerationRequest request = asking(*engine, "x");
    request.constraint = regex_grammar("ab?");
    AskedServer asked(*engine, request);
    CHECK(asked.wait().error.empty());
    const auto body = server.asked().back().body;
    const std::string grammar =
        api == "vllm" ? body.at("structured_outputs").at("grammar") : body.at("sampling_params").at("ebnf");
    CHECK(accepts(*gbnf_grammar(grammar), "ab"));
    CHECK_FALSE(accepts(*gbnf_grammar(grammar), "abb"));
  });
}

TEST_CASE("what no server can do is refused for vLLM and SGLang, too") {
  on_each([](auto& server, const std::string& api) {
    const auto engine = open(server, api);
    GenerationRequest request = asking(*engine, "x");
    request.choices = {{1}, {2}};
    CHECK_THROWS_WITH(engine->submit(request), Contains("probabilities"));
    CHECK_THROWS_WITH(engine->submit(asking(*engine, std::string(5000, 'x'))), Contains("5000") && Contains("4096"));
    request = asking(*engine, std::string(4000, 'x'));
    request.max_tokens = 500;
    AskedServer asked(*engine, request);
    CHECK(asked.wait().error.empty());  // its length is cut to the room that is left
  });
}

TEST_CASE("a request to vLLM or SGLang is tried again before its first token and never after it") {
  on_each([](auto& server, const std::string& api) {
    const auto engine = open(server, api);
    server.busy = 2;
    AskedServer starting(*engine, asking(*engine, "x"));
    CHECK(starting.wait().text == "an answer");
    CHECK(server.busy == 0);
    server.refused = 1;
    AskedServer refused(*engine, asking(*engine, "x"));
    CHECK(refused.wait().reason == FinishReason::error);
    CHECK(refused.wait().error ==
          "server " + server.address() + ": it answered with status 400: Grammar error: unknown rule");
    server.script = [](const std::string&) { return ScriptedServer::Script{.cut_after = 4}; };
    const std::size_t before = server.asked().size();
    AskedServer cut(*engine, asking(*engine, "x"));
    CHECK(cut.wait().reason == FinishReason::error);
    CHECK(cut.wait().text == "an a");
    CHECK(server.asked().size() == before + 1);
  });
}

TEST_CASE("what is no answer of vLLM or SGLang ends the request and not the engine") {
  on_each([](auto& server, const std::string& api) {
    std::string fault;
    server.script = [&](const std::string& prompt) {
      return prompt == "fine" ? ScriptedServer::Script{} : ScriptedServer::Script{.fault = fault};
    };
    const auto engine = open(server, api);
    for (const std::string& what :
         {std::string("no json"), std::string("[]"), std::string(R"({"choices":[7]})"),
          std::string(R"({"choices":[{"token_ids":[-1]}],"output_ids":[-1]})"),
          std::string(R"({"choices":[{"text":"x","token_ids":[260]}],"text":"x","output_ids":[260],"meta_info":{}})"),
          std::string(R"({"choices":[{"text":7}],"text":7})"), std::string(100'000, '['),
          std::string(R"({"error":{"message":"out of memory","type":"InternalServerError","code":500}})"),
          std::string(R"({"choices":[{"text":"","finish_reason":"abort"}],)"
                      R"("meta_info":{"finish_reason":{"type":"abort"}}})")}) {
      fault = what;
      AskedServer asked(*engine, asking(*engine, "x"));
      CHECK(asked.wait().reason == FinishReason::error);
      CHECK_THAT(asked.wait().error, Contains(server.address()));
      CHECK(asked.wait().error.size() < 1000);
    }
    AskedServer fine(*engine, asking(*engine, "fine"));
    CHECK(fine.wait().reason == FinishReason::eos);
  });
}

TEST_CASE("cancelling closes the request at vLLM and SGLang") {
  on_each([](auto& server, const std::string& api) {
    server.script = [](const std::string&) {
      return ScriptedServer::Script{.text = std::string(2000, 'y'), .per_token = 2ms};
    };
    const auto engine = open(server, api);
    GenerationRequest request = asking(*engine, "x");
    request.max_tokens = 1500;
    AskedServer asked(*engine, request);
    asked.wait_for_pieces(3);
    engine->cancel(asked.id);
    CHECK(asked.wait().reason == FinishReason::cancelled);
    CHECK(asked.wait().text.size() >= 3);
    for (int i = 0; i < 2000 && server.hung_up == 0; ++i) std::this_thread::sleep_for(5ms);
    CHECK(server.hung_up == 1);
  });
}

TEST_CASE("waiting prompts are sent ahead to vLLM and SGLang, each once at a time") {
  on_each([](auto& server, const std::string& api) {
    server.script = [](const std::string& prompt) {
      return ScriptedServer::Script{.text = std::string(prompt == "author" ? 400 : 3, 'y'), .per_token = 2ms};
    };
    const auto engine = open(server, api);
    GenerationRequest writing = asking(*engine, "author");
    writing.max_tokens = 400;
    AskedServer author(*engine, writing);
    std::vector<EarlyId> ids;
    const std::vector<std::string> before = {std::string(40, 'b'), std::string(50, 'c')};
    for (const std::string& known : before) {
      EarlyPrompt early;
      early.parts.push_back({bytes(known), 0, false, ""});
      early.parts.push_back({{}, author.id, false, "agent_author_current"});
      early.reuse.method = &lockstep_method();
      ids.push_back(engine->prepare(early));
      REQUIRE(ids.back() != 0);
    }
    CHECK(author.wait().text == std::string(400, 'y'));
    for (std::size_t i = 0; i < before.size(); ++i) {
      GenerationRequest reader = asking(*engine, before[i]);
      reader.prompt.push_back({"agent_author_current", author.wait().tokens});
      reader.prompt.push_back({"", bytes("what of it?")});
      reader.early = ids[i];
      AskedServer asked(*engine, reader);
      const GenerationResult& result = asked.wait();
      std::size_t known = 0, sent = 0;
      for (const auto& one : server.asked()) {
        if (!one.warm_up || one.prompt.front() != before[i].front()) continue;
        CHECK(one.prompt.size() >= known + 16);
        known = one.prompt.size();
        ++sent;
      }
      CHECK(sent + i >= 2);  // later prompts in larger pieces
      CHECK(known > 100);
      const int cached = server.asked().back().cached;
      CHECK(cached == (api == "vllm" ? static_cast<int>(known) / 16 * 16 : static_cast<int>(known)));
      CHECK(result.kv_ahead == cached);
      CHECK(result.uses.at(1).ahead_tokens == cached - static_cast<int>(before[i].size()));
      CHECK(result.uses.at(1).method == &lockstep_method());
    }
    CHECK(server.most_ahead <= 2);
    const auto all = server.asked();
    for (const auto& one : all) {
      const bool has = one.body.contains("priority");
      CHECK(has == (one.warm_up && api == "vllm"));
    }
  });
}

TEST_CASE("vLLM and SGLang are recognised, and get messages where no tokenizer was given") {
  on_each([](auto& server, const std::string& api) {
    const auto engine = open(server);
    CHECK_THAT(engine->info().device_description,
               Contains(api == "vllm" ? "vLLM 0.33.0 at" : "SGLang 0.5.23 at") && Contains("toy"));
    CHECK(engine->prepare({}) != 0);
    const auto messages = open(server, "auto", false);
    CHECK(messages->prepare({}) == 0);
    AskedServer asked(*messages, asking(*messages, "<|baton:user|>x"));
    CHECK(asked.wait().text == "chat");
    CHECK_THROWS_WITH(open(server, api, false), Contains("'tokenizer'") && Contains("special"));
    CHECK_THROWS_WITH(open(server, "llama"), Contains("/props") || Contains("404"));
  });
}

TEST_CASE("a vLLM or SGLang server that was started anew is asked for its model") {
  const auto restarted = [](auto make) {
    auto server = make(0, "toy");
    const std::uint16_t port = server->port();
    const auto engine = open(*server);
    const GenerationRequest request = asking(*engine, "x");
    server.reset();
    {
      AskedServer asked(*engine, request);
      std::this_thread::sleep_for(100ms);
      server = make(port, "toy");
      CHECK(asked.wait().text == "an answer");
    }
    server.reset();
    AskedServer asked(*engine, request);
    std::this_thread::sleep_for(100ms);
    server = make(port, "another");
    CHECK(asked.wait().reason == FinishReason::error);
    CHECK_THAT(asked.wait().error, Contains("another model now: 'another'") && Contains("toy"));
  };
  const auto maker = [](auto* kind) {
    return [](std::uint16_t port, const std::string& model) {
      auto server = std::make_unique<std::remove_pointer_t<decltype(kind)>>(port);
      server->model = model;
      return server;
    };
  };
  restarted(maker(static_cast<VllmServer*>(nullptr)));
  restarted(maker(static_cast<SglangServer*>(nullptr)));
}

TEST_CASE("a vLLM server without priorities refuses one, and gets none from then on") {
  VllmServer server;
  server.has_priorities = false;
  server.script = [](const std::string&) {
    return ScriptedServer::Script{.text = std::string(200, 'y'), .per_token = 3ms};
  };
  const auto engine = open(server);
  AskedServer author(*engine, asking(*engine, "author"));
  EarlyPrompt early;
  early.parts.push_back({bytes(std::string(20, 'b')), 0, false, ""});
  early.parts.push_back({{}, author.id, false, "agent_author_current"});
  REQUIRE(engine->prepare(early) != 0);
  author.wait();
  int ahead = 0;
  for (const auto& one : server.asked()) {
    CHECK_FALSE(one.body.contains("priority"));
    ahead += one.warm_up ? 1 : 0;
  }
  CHECK(ahead >= 2);
}

TEST_CASE("a vLLM server older than 0.11 gets guided_grammar, and one that tells no version the newest form") {
  const auto sent = [](VllmServer& server) {
    const auto engine = open(server, "vllm");
    GenerationRequest request = asking(*engine, "x");
    request.constraint = regex_grammar("ab?");
    request.reuse.method = &full_method();
    AskedServer asked(*engine, request);
    CHECK(asked.wait().error.empty());
    CHECK(server.faults().empty());
    return server.asked().back().body;
  };
  VllmServer old;
  old.version = "0.10.2";
  CHECK(sent(old).contains("guided_grammar"));
  CHECK_FALSE(sent(old).contains("cache_salt"));
  for (const char* version : {"0.11.0", "0.33.0rc1", "1.0.0", "0.1.dev1+gabc", "main", ""}) {
    VllmServer now;
    now.version = version;
    now.tells_version = *version != 0;
    CHECK(sent(now).contains("structured_outputs"));
  }
}

TEST_CASE("a server that lists a model of vLLM and tells no version is not recognised as one") {
  VllmServer server;
  server.tells_version = false;
  CHECK(open(server)->prepare({}) == 0);  // it may be a gateway whose requests cost money
  CHECK(open(server, "vllm")->prepare({}) != 0);
}

TEST_CASE("an SGLang server is asked at its older paths, and keeps no prompts without its cache") {
  SglangServer older;
  older.is_older = true;
  older.deltas = true;
  const auto engine = open(older);
  AskedServer asked(*engine, asking(*engine, "x"));
  CHECK(asked.wait().text == "an answer");
  CHECK(engine->prepare({}) != 0);
  SglangServer without;
  without.caches = false;
  CHECK(open(without)->prepare({}) == 0);
}

TEST_CASE("a request that SGLang takes and then gives up fails with its words") {
  SglangServer server;
  const auto engine = open(server);
  server.queue_full = 1;
  AskedServer asked(*engine, asking(*engine, "x"));
  CHECK(asked.wait().reason == FinishReason::error);
  CHECK_THAT(asked.wait().error, Contains("The request queue is full."));
}

TEST_CASE("what SGLang tells of itself is read with care") {
  SglangServer server;
  server.told = R"({"version":7})";
  CHECK_THROWS_WITH(open(server), Contains(server.address()) && Contains("/server_info: \"version\" is 7"));
  server.told = R"({"incremental_streaming_output":"yes"})";
  CHECK_THROWS_AS(open(server), ModelError);
  server.told = "[]";
  CHECK(open(server)->prepare({}) == 0);  // it is another server
}

}  // namespace serving_test
