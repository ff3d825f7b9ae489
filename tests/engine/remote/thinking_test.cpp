// SPDX-License-Identifier: Apache-2.0
// What models on servers think is separated from their answers: of servers that take messages, which separate it
// themselves or send it in tags, and of servers that take ids, which are asked for it alone.
#include <catch2/catch.hpp>
#include <future>
#include <nlohmann/json.hpp>

#include "engine/base/errors.h"
#include "engine/remote/open_server.h"
#include "engine/remote/server_api.h"
#include "tests/engine/remote/asking.h"
#include "tests/engine/remote/sglang_server.h"
#include "tests/engine/remote/vllm_server.h"

namespace served_thinking_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

/// Sends the given deltas of a chat, its stream cut into HTTP chunks at one byte.
struct ChatServer {
  ChatServer() : server([this](const HttpAsked& asked, HttpAnswer& answer) { respond(asked, answer); }) {}

  void respond(const HttpAsked& asked, HttpAnswer& answer) {
    if (asked.path == "/v1/models") {
      answer.whole(200, R"({"data":[{"id":"m"}]})");
      return;
    }
    if (asked.path != "/v1/chat/completions") {
      answer.whole(404, "{}");
      return;
    }
    std::string stream;
    const auto add = [&](const std::string& event) { stream += "data: " + event + "\n\n"; };
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(Json::parse(asked.body));
      for (const Json& delta : deltas)
        add(Json{{"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", nullptr}}}}}.dump());
      add(Json{{"choices", {{{"index", 0}, {"delta", Json::object()}, {"finish_reason", reason}}}}}.dump());
      if (!usage.is_null()) add(Json{{"choices", Json::array()}, {"usage", usage}}.dump());
      add("[DONE]");
    }
    const std::size_t at = std::min(cut, stream.size());
    answer.begin_stream();
    if (at > 0 && !answer.chunk(stream.substr(0, at))) ++hung_up;
    if (at < stream.size()) answer.chunk(stream.substr(at));
    answer.end_stream();
  }

  std::shared_ptr<InferenceEngine> open() {
    ServerModel model;
    model.patience = AttemptPauses::kAtOpening;
    model.address.endpoint = server.address();
    return open_server(model);
  }

  std::vector<Json> asked() {
    const std::lock_guard lock(mutex);
    return bodies;
  }

  Json deltas = Json::array();
  std::string reason = "stop";
  Json usage;
  std::size_t cut = 0;
  std::mutex mutex;
  std::vector<Json> bodies;
  std::atomic<int> hung_up = 0;
  HttpServer server;
};

struct Heard {
  GenerationResult result;
  std::string thinking, answer;  // of the events
  bool answered_first = false;   // an answer's text came before the thinking was over
};

Heard ask(InferenceEngine& engine, const std::function<void(GenerationRequest&)>& change = nullptr) {
  GenerationRequest request = asking(engine, "<|baton:user|>why?");
  if (change) change(request);
  Heard heard;
  std::promise<GenerationResult> promise;
  request.callbacks.on_thinking = [&](const std::string& text) {
    heard.thinking += text;
    heard.answered_first = heard.answered_first || !heard.answer.empty();
  };
  request.callbacks.on_token = [&](TokenId, const std::string& text) { heard.answer += text; };
  request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
  engine.submit(std::move(request));
  heard.result = promise.get_future().get();
  return heard;
}

void check(const Heard& heard, const std::string& thinking, const std::string& answer) {
  CHECK(heard.result.error.empty());
  CHECK(heard.result.text == answer);
  CHECK(heard.result.thinking == thinking);
  CHECK(heard.answer == answer);
  CHECK(heard.thinking == thinking);
  CHECK_FALSE(heard.answered_first);
}

constexpr const char* kThought = "7 < 8, so </thin \xC3\xA9";
constexpr const char* kAnswer = "Yes </think> \xC3\xA9.";

/// A text as deltas that split it at the given bytes, which are ends of characters.
Json contents(const std::vector<std::string>& texts, const char* name = "content") {
  Json deltas = Json::array();
  for (const std::string& text : texts) deltas.push_back({{name, text}});
  return deltas;
}

bool ends_character(const std::string& text, std::size_t at) {
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

}  // namespace

TEST_CASE("thinking that a server separates is no part of the answer, by whichever name it comes") {
  const std::vector<std::vector<std::string>> all = {
      {"reasoning_content"}, {"reasoning"}, {"reasoning", "reasoning_content"}};
  for (const std::vector<std::string>& names : all) {
    INFO(names.front() << ", " << names.size());
    ChatServer server;
    server.deltas.push_back({{"role", "assistant"}, {"content", ""}});
    for (const char* text : {"7 < 8, ", "so </thin ", "\xC3\xA9"}) {
      Json delta = {{"content", nullptr}};
      for (const std::string& name : names) delta[name] = text;
      server.deltas.push_back(delta);
    }
    for (const char* text : {"\n", "\nYes ", "</think> \xC3\xA9."}) server.deltas.push_back({{"content", text}});
    server.usage = {
        {"prompt_tokens", 12}, {"completion_tokens", 20}, {"completion_tokens_details", {{"reasoning_tokens", 15}}}};
    const auto engine = server.open();
    const Heard heard = ask(*engine);
    check(heard, kThought, kAnswer);
    CHECK(heard.result.thinking_tokens == 15);
    CHECK(heard.result.output_tokens == 5);
    CHECK(heard.result.reason == FinishReason::eos);
    CHECK(engine->text().tokenizer->decode(heard.result.tokens, true) == kAnswer);
  }
}

TEST_CASE("thinking in tags is separated at every split of the text and of the stream") {
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"<think>", "</think>\n\n"},
      {"\n<think>", "</think>"},
      {"[THINK]", "[/THINK]"},
      {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"},
      {"<|channel>thought", "<channel|>"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
      {"<seed:think>", "</seed:think>"},
      {"\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81/think\xE2\x96\xB7"},
      {"<|inner_prefix|>", "<|inner_suffix|>"},
      {"<|begin_of_thought|>", "<|end_of_thought|>"},
  };
  ChatServer server;
  const auto engine = server.open();
  for (const auto& [begin, end] : forms) {
    const std::string text = begin + kThought + end + kAnswer;
    INFO(text);
    for (std::size_t at = 0; at <= text.size(); ++at) {
      if (!ends_character(text, at)) continue;
      server.deltas = contents({text.substr(0, at), text.substr(at)});
      check(ask(*engine), kThought, kAnswer);
    }
    std::vector<std::string> characters;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (ends_character(text, at)) characters.emplace_back();
      characters.back() += text[at];
    }
    server.deltas = contents(characters);
    check(ask(*engine), kThought, kAnswer);
  }
  for (const char* word : {"reasoning", "thought"}) {  // which a prompt may ask for
    const std::string text = std::string("<") + word + ">" + kThought + "</" + word + ">" + kAnswer;
    server.deltas = contents({text.substr(0, 4), text.substr(4)});
    check(ask(*engine), "", text);
  }
  server.deltas = contents({"<think>", kThought, "</think>", "\n\n", kAnswer});
  std::size_t size = 0;
  for (const Json& delta : server.deltas) size += delta.dump().size() + 90;
  for (server.cut = 0; server.cut < size; ++server.cut) {
    INFO("cut at " << server.cut);
    check(ask(*engine), kThought, kAnswer);
  }
}

TEST_CASE("tokens of the thinking are counted by the server, or by its events") {
  ChatServer server;
  server.deltas = contents({"<think>", "one", " two", "</think>", "\n\n", "three", " four"});
  const auto engine = server.open();
  Heard heard = ask(*engine);
  CHECK(heard.result.thinking_tokens == 5);
  CHECK(heard.result.output_tokens == 2);
  server.usage = {{"completion_tokens", 70}, {"completion_tokens_details", {{"reasoning_tokens", 0}}}};
  heard = ask(*engine);
  CHECK(heard.result.thinking_tokens == 50);
  CHECK(heard.result.output_tokens == 20);
  server.usage["completion_tokens_details"]["reasoning_tokens"] = 1'000'000;
  heard = ask(*engine);
  CHECK(heard.result.thinking_tokens == 70);
  CHECK(heard.result.output_tokens == 0);
  server.deltas = contents({"three", " four"});
  heard = ask(*engine);
  CHECK(heard.result.thinking_tokens == 0);
  CHECK(heard.result.output_tokens == 70);
}

TEST_CASE("thinking that ends with the answer's length leaves no answer") {
  ChatServer server;
  server.reason = "length";
  const auto engine = server.open();
  for (const Json& deltas : {contents({"<think>so ", "long</thi"}), contents({"so ", "long</thi"}, "reasoning")}) {
    server.deltas = deltas;
    const Heard heard = ask(*engine);
    check(heard, "so long</thi", "");
    CHECK(heard.result.reason == FinishReason::length);
    CHECK(heard.result.tokens.empty());
    CHECK(heard.result.thinking_tokens == 2);
  }
}

TEST_CASE("what is no text is no thinking, and does not end the request") {
  ChatServer server;
  server.deltas = Json::array({{{"reasoning", {{"a", 1}}}, {"content", "Y"}},
                               {{"reasoning_content", 7}},
                               {{"reasoning", nullptr}, {"reasoning_content", ""}, {"content", "es"}}});
  const auto engine = server.open();
  check(ask(*engine), "", "Yes");
}

TEST_CASE("stop texts count in the answer alone") {
  for (const bool tags : {false, true}) {
    INFO("tags " << tags);
    ChatServer server;
    if (tags)
      server.deltas = contents({"<think>", "no STOP", " yet", "</think>", "\n\n", "one ST", "OP two", " three"});
    else
      server.deltas = Json::array({{{"reasoning", "no STOP"}},
                                   {{"reasoning", " yet"}},
                                   {{"content", "\n\none ST"}},
                                   {{"content", "OP two"}},
                                   {{"content", " three"}}});
    const auto engine = server.open();
    const auto stop = [](GenerationRequest& request) { request.stop = {"STOP"}; };
    for (int request = 1; request <= 2; ++request) {
      const Heard heard = ask(*engine, stop);
      check(heard, "no STOP yet", "one ");
      CHECK(heard.result.reason == FinishReason::stop);
      CHECK(engine->text().tokenizer->decode(heard.result.tokens, true) == "one ");
    }
    const std::vector<Json> bodies = server.asked();
    REQUIRE(bodies.size() == 3);  // it was asked again when it showed that its model thinks, once
    CHECK(bodies[0].contains("stop"));
    CHECK_FALSE(bodies[1].contains("stop"));
    CHECK_FALSE(bodies[2].contains("stop"));
  }
}

namespace {

const ThinkingMarks kMarks{"<think>", "</think>"};

template <class Server>
std::shared_ptr<InferenceEngine> open(const Server& server, const std::string& api) {
  ServerModel model;
  model.patience = AttemptPauses::kAtOpening;
  model.slowdown = 1000.0;
  model.address = {server.address(), {}};
  model.api = api;
  model.text = std::make_shared<const ModelText>(message_text());
  return open_server(model);
}

/// A request for thinking alone, and what the server was to write: the thinking ends where the answer begins.
template <class Server>
void check_alone(Server& server, const std::string& api) {
  const std::string thought = "\nRome?\xC3\xA9 No.\n";
  for (const std::string& blanks : {std::string("\n\n"), std::string()}) {
    for (const int together : {1, 2, 3, 7, 100}) {
      INFO(api << " " << together);
      const std::string whole = "<think>" + thought + "</think>" + blanks + "Paris, of course";
      server.script = [&](const std::string&) {
        return ScriptedServer::Script{
            .text = whole, .per_token = std::chrono::milliseconds(together == 1 ? 1 : 0), .together = together};
      };
      const auto engine = open(server, api);
      const Heard heard = ask(*engine, [](GenerationRequest& request) { request.thinking = kMarks; });
      CHECK(heard.result.error.empty());
      CHECK(heard.result.reason == FinishReason::stop);
      CHECK(heard.result.thought);
      CHECK(heard.result.text == thought);
      CHECK(heard.answer == thought);  // the events of a request for thinking are its thinking
      const std::string kept =
          engine->text().tokenizer->decode(heard.result.tokens, false) + heard.result.thinking_rest;
      CHECK(kept.starts_with("<think>" + thought + "</think>"));
      CHECK(whole.starts_with(kept));
      CHECK(kept.find("Paris") == std::string::npos);
    }
  }
  server.script = [](const std::string&) { return ScriptedServer::Script{.text = "Paris"}; };
  const auto engine = open(server, api);
  const Heard none = ask(*engine, [](GenerationRequest& request) { request.thinking = kMarks; });
  CHECK_FALSE(none.result.thought);
  CHECK(none.result.tokens.empty());
  CHECK(none.result.text.empty());
  CHECK(none.result.reason == FinishReason::stop);
  server.script = [](const std::string&) { return ScriptedServer::Script{.text = "<think>on and on"}; };
  const Heard cut = ask(*engine, [](GenerationRequest& request) {
    request.thinking = kMarks;
    request.max_tokens = 10;
  });
  CHECK(cut.result.reason == FinishReason::length);
  CHECK(cut.result.text == "on ");
  CHECK(cut.result.tokens.size() == 10);
  CHECK(cut.result.thinking_rest == "</think>");
  CHECK(server.faults().empty());
}

}  // namespace

TEST_CASE("vLLM is asked for thinking alone, and the request ends where the answer begins") {
  VllmServer server;
  check_alone(server, "vllm");
  for (const auto& asked : server.asked()) CHECK(asked.body.at("skip_special_tokens") == false);
}

TEST_CASE("SGLang is asked for thinking alone, and the request ends where the answer begins") {
  for (const bool deltas : {false, true}) {
    SglangServer server;
    server.deltas = deltas;
    check_alone(server, "sglang");
    for (const auto& asked : server.asked()) CHECK(asked.body.at("sampling_params").at("skip_special_tokens") == false);
  }
}

}  // namespace served_thinking_test
