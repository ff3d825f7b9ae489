// SPDX-License-Identifier: Apache-2.0
// Calls in the forms of published families: what a template writes is what its form says, what the constraint allows
// and what is read, byte for byte. The tasks are those of tests/published/function_calls.
#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "agents/prompts/prompt.h"
#include "agents/tools/tool.h"
#include "engine/text/constrain/token_masks.h"
#include "tests/agents/tools/call_forms.h"
#include "tests/support/folders.h"

namespace call_forms_test {

using namespace baton;
using namespace baton::test;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kAny = R"({"type": "object"})";

std::string sorted(const std::string& json) { return nlohmann::json::parse(json).dump(); }

CallableTools offered(const std::vector<std::pair<std::string, std::string>>& schemas, CallLimits limits = {}) {
  std::vector<CallableTool> tools;
  for (const auto& [name, schema] : schemas) tools.push_back({{name, "", schema}, {}, nullptr});
  return {std::move(tools), limits, nullptr};
}

/// The assistant's turn as the template writes it, up to its end, with marked special tokens.
std::string written_by(const ModelText& model, const ToolFormat& format, const std::vector<ChatCall>& calls) {
  ChatMessage answer{"assistant", "", calls};
  for (ChatCall& call : answer.calls) call.as_text = format.arguments_as_text;
  ChatOptions options = model.chat_options;
  options.tools = {R"({"name": "a", "description": "", "parameters": {"type": "object"}})"};
  const std::string before = model.chat_template->render({{"user", "q"}}, options);
  options.add_generation_prompt = false;
  const std::string all = model.chat_template->render({{"user", "q"}, answer}, options);
  REQUIRE(all.starts_with(before));
  REQUIRE(all.ends_with(format.turn_end));
  const std::string turn = all.substr(before.size(), all.size() - before.size() - format.turn_end.size());
  const std::vector<TokenId> ids = model.tokenizer->encode(turn, SpecialTokens::recognise);
  return marked_answer(*model.tokenizer, ids);
}

/// Tasks may accept several values of an argument, among them that it is missing.
std::string first_of_each(Json arguments) {
  Json out = Json::object();
  for (const auto& [name, value] : arguments.items()) {
    const bool several = value.is_object() && value.contains("any");
    const Json one = several ? (value["any"][0].is_null() ? value["any"][1] : value["any"][0]) : value;
    out[name] = one;
  }
  return out.dump();
}

struct Task {
  std::string id;
  std::vector<std::pair<std::string, std::string>> tools;
  std::vector<ChatCall> calls;
};

std::vector<Task> tasks() {
  const auto folder = test_folder() / "published" / "function_calls";
  std::ifstream tools_file(folder / "tools.json"), file(folder / "tasks.jsonl");
  const Json tools = Json::parse(tools_file);
  std::vector<Task> out;
  for (std::string line; std::getline(file, line);) {
    const Json task = Json::parse(line);
    Task& one = out.emplace_back();
    one.id = task["id"];
    for (const Json& name : task["tools"])
      one.tools.emplace_back(name, tools[name.get<std::string>()]["parameters"].dump());
    for (const Json& call : task["expect"])
      one.calls.push_back({"call" + std::string(5, static_cast<char>('a' + one.calls.size())), call["name"],
                           first_of_each(call["arguments"])});
  }
  return out;
}

}  // namespace

TEST_CASE("the form of every family is read off its template") {
  for (const CallForm& form : call_forms()) {
    CAPTURE(form.name);
    const ToolFormat format = tool_format_of(model_of(form));
    CHECK(format.of_template);
    CHECK(format.syntax.several == form.several);
    CHECK(format.has_special_tokens() == !form.special.empty());
  }
}

TEST_CASE("100 tasks in the form of every family: what the template writes is allowed and read byte for byte") {
  const std::vector<Task> all = tasks();
  REQUIRE(all.size() == 100);
  for (const CallForm& form : call_forms()) {
    CAPTURE(form.name);
    const ModelText model = model_of(form);
    const ToolFormat format = tool_format_of(model);
    std::size_t calls_seen = 0;
    for (const Task& task : all) {
      CAPTURE(task.id);
      const CallableTools tools = offered(task.tools);
      std::vector<ChatCall> expected = task.calls;
      if (!form.several && expected.size() > 1) expected.resize(1);
      if (expected.empty()) continue;
      const std::string written = written_by(model, format, expected);
      CAPTURE(written);
      const std::vector<ModelCall> calls = calls_in(written, format, tools);
      REQUIRE(calls.size() == expected.size());
      for (std::size_t i = 0; i < calls.size(); ++i) {
        CHECK(calls[i].problem.empty());
        CHECK(calls[i].tool == expected[i].name);
        CHECK(calls[i].arguments == sorted(expected[i].arguments));
        ++calls_seen;
      }
    }
    CHECK(calls_seen >= 70);
  }
}

TEST_CASE("the constraint allows what the template writes, and no other argument") {
  const std::string schema = R"({"type": "object", "properties": {"city": {"type": "string"},
      "days": {"type": "integer", "minimum": 1, "maximum": 9}, "exact": {"type": "boolean"},
      "unit": {"enum": ["celsius", "kelvin"]}, "more": {"type": "object", "properties": {"a": {"type": "array",
      "items": {"type": "string"}}}, "required": ["a"], "additionalProperties": false}},
      "required": ["city"], "additionalProperties": false})";
  const CallableTools tools = offered({{"weather", schema}, {"now", R"({"type": "object", "properties": {}})"}});
  const std::vector<std::string> good = {
      R"({"city":"Paris"})",
      R"({"city":"Sant'Agata \"di\" <b>Puglia</b>, [5] {x}: 100%","days":3,"exact":true,"unit":"kelvin","more":{"a":["x","y"]}})",
      R"({"city":"two\nlines","exact":false})"};
  const std::vector<std::string> bad = {R"({"city":"Paris","days":12})", R"({"city":"Paris","unit":"rankine"})",
                                        R"({"days":3})", R"({"city":"Paris","more":{"b":1}})"};
  for (const CallForm& form : call_forms()) {
    CAPTURE(form.name);
    const ModelText model = model_of(form);
    const ToolFormat format = tool_format_of(model);
    const auto grammar = tools.grammar(format, 3);
    for (const std::string& arguments : good) {
      const std::string text = written_by(model, format, {{"callaaaaa", "weather", arguments}});
      CAPTURE(text);
      CHECK(accepts(*grammar, text));
      const auto calls = calls_in(text, format, tools);
      REQUIRE(calls.size() == 1);
      CHECK(calls[0].problem.empty());
      CHECK(calls[0].arguments == sorted(arguments));
    }
    const std::string empty = written_by(model, format, {{"callaaaaa", "now", "{}"}});
    CHECK(accepts(*grammar, empty));
    CHECK(calls_in(empty, format, tools).at(0).arguments == "{}");
    for (const std::string& arguments : bad) {
      const std::string text = written_by(model, format, {{"callaaaaa", "weather", arguments}});
      CAPTURE(text);
      CHECK_FALSE(accepts(*grammar, text));
      CHECK_FALSE(calls_in(text, format, tools).at(0).problem.empty());
    }
    if (!form.several) continue;
    const std::vector<ChatCall> two = {{"callaaaaa", "weather", good[1]}, {"callaaaab", "now", "{}"}};
    const std::string both = written_by(model, format, two);
    CAPTURE(both);
    CHECK(accepts(*grammar, both));
    CHECK_FALSE(accepts(*tools.grammar(format, 1), both));
    REQUIRE(calls_in(both, format, tools).size() == 2);
    CHECK(calls_in(both, format, tools)[1].tool == "now");
  }
}

TEST_CASE("a marker inside of an argument is text, in every form") {
  const CallableTools tools = offered({{"note", R"({"type": "object", "properties": {"text": {"type": "string"},
      "last": {"type": "string"}}, "required": ["text"], "additionalProperties": false})"}});
  for (const CallForm& form : call_forms()) {
    const ModelText model = model_of(form);
    const ToolFormat format = tool_format_of(model);
    std::vector<std::string> markers = {"<tool_call>",
                                        "</tool_call>",
                                        "<function=x>",
                                        "]",
                                        "\"}",
                                        "```",
                                        "<arg_key>k</arg_key>",
                                        "</parameter>\n is an end",
                                        "to=functions.x",
                                        "{\"name\": \"note\", \"arguments\": {}}"};
    markers.insert(markers.end(), form.special.begin(), form.special.end());
    for (const std::string& marker : markers) {
      CAPTURE(form.name, marker);
      const std::string arguments = Json{{"text", "a " + marker + " b"}, {"last", marker}}.dump();
      // The text of the argument consists of ordinary tokens, as a model under the constraint writes it.
      const std::string mark = "THE_TEXT", end = "THE_END";
      std::string written =
          written_by(model, format, {{"callaaaaa", "note", Json{{"text", mark}, {"last", end}}.dump()}});
      const bool raw = format.syntax.arguments.form == ValueNotation::Form::elements ||
                       format.syntax.arguments.form == ValueNotation::Form::literals;
      const auto put = [&](const std::string& name, const std::string& text) {
        std::string inside = raw ? text : Json(text).dump();
        if (!raw) inside = inside.substr(1, inside.size() - 2);
        written.replace(written.find(name), name.size(), inside);
      };
      put(mark, "a " + marker + " b");
      put(end, marker);
      CAPTURE(written);
      const auto calls = calls_in(written, format, tools);
      REQUIRE(calls.size() == 1);
      CHECK(calls[0].problem.empty());
      CHECK(calls[0].arguments == sorted(arguments));
    }
  }
}

TEST_CASE("a call that is cut off anywhere is an error that the model is told, and never another call") {
  const CallableTools tools = offered({{"note", R"({"type": "object", "properties": {"text": {"type": "string"},
      "n": {"type": "integer"}}, "required": ["text", "n"], "additionalProperties": false})"}});
  for (const CallForm& form : call_forms()) {
    CAPTURE(form.name);
    const ModelText model = model_of(form);
    const ToolFormat format = tool_format_of(model);
    const std::string arguments = R"({"n":12,"text":"a long text"})";
    const std::string written =
        written_by(model, format, {{"callaaaaa", "note", R"({"text": "a long text", "n": 12})"}});
    std::size_t errors = 0;
    for (std::size_t length = 0; length <= written.size(); ++length) {
      const std::string part = written.substr(0, length);
      if (std::count(part.begin(), part.end(), kSpecialMark) % 2 != 0) continue;  // inside of a token
      CAPTURE(part);
      const auto calls = calls_in(part, format, tools);
      if (calls.empty()) continue;
      REQUIRE(calls.size() == 1);
      errors += calls[0].problem.empty() ? 0 : 1;
      if (calls[0].problem.empty()) CHECK(calls[0].arguments == arguments);
    }
    CHECK(errors > 10);
    CHECK(calls_in(written, format, tools).at(0).problem.empty());
  }
}

TEST_CASE("whatever a constraint allows is a text or calls that fit, token by token") {
  const CallableTools tools =
      offered({{"weather", R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 5},
                 "days": {"type": "integer", "minimum": 1, "maximum": 9}, "on": {"type": "boolean"},
                 "unit": {"enum": ["celsius", "kelvin", 7, null]}}, "required": ["city", "days"],
                 "additionalProperties": false})"},
               {"find", R"({"properties": {"q": {"type": "string", "pattern": "^[a-c]{1,3}$"}}, "required": ["q"]})"}},
              {.choice = ToolChoice::required, .text = TextBefore::forbidden});
  for (const CallForm& form : call_forms()) {
    CAPTURE(form.name);
    const ModelText model = model_of(form);
    const ToolFormat format = tool_format_of(model);
    const std::vector<TokenId> eos = {258};
    const auto vocabulary = std::make_shared<const MaskVocabulary>(*model.tokenizer, model.tokenizer->size(), eos);
    const auto masks = std::make_shared<TokenMasks>(tools.grammar(format, 1, true), vocabulary);
    std::mt19937 random(7);
    std::size_t complete = 0, special = 0;
    for (int round = 0; round < 30; ++round) {
      AnswerMatcher matcher(masks);
      std::vector<TokenId> answer;
      bool ended = false;
      while (!ended && answer.size() < 600) {
        const TokenMask mask = matcher.allowed();
        std::vector<TokenId> possible, printable, specials;
        for (TokenId id = 0; id < model.tokenizer->size(); ++id) {
          if (!allows(mask, id)) continue;
          possible.push_back(id);
          if (id > 0x20 && id < 0x7F) printable.push_back(id);
          if (id > 258) specials.push_back(id);
        }
        REQUIRE_FALSE(possible.empty());
        const bool begins = answer.empty() && !specials.empty() && round % 4 != 0;
        const std::vector<TokenId>& from = begins ? specials : printable.empty() ? possible : printable;
        const TokenId id = allows(mask, 258) ? 258 : from[random() % from.size()];
        ended = id == 258;
        if (ended) break;
        REQUIRE(matcher.take(id));
        special += id > 258 ? 1 : 0;
        answer.push_back(id);
      }
      if (!ended) continue;
      ++complete;
      const std::string text = marked_answer(*model.tokenizer, answer);
      CAPTURE(text);
      const auto calls = calls_in(text, format, tools);
      REQUIRE(calls.size() == 1);
      CHECK(calls[0].problem.empty());
    }
    CHECK(complete > 15);
    CHECK((special > 0) == !form.special.empty());
  }
}

TEST_CASE("hostile answers are read in bounded time, to at most 64 calls, and what has no problem fits", "[hostile]") {
  const std::string schema = R"({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"},
      "deep": {"type": "array"}}, "required": ["text"]})";
  const CallableTools tools = offered({{"note", schema}});
  for (const CallForm& form : call_forms()) {
    const ModelText model = model_of(form);
    const ToolFormat format = tool_format_of(model);
    const std::string call = written_by(
        model, format, {{"callaaaaa", "note", R"({"text": "a \"text\"", "n": 12, "deep": [[1, {"x": "y"}], true]})"}});
    const auto check = [&](const std::string& answer) {
      CAPTURE(form.name, answer.substr(0, 500), answer.size());
      const auto calls = calls_in(answer, format, tools);
      CHECK(calls.size() <= 64);
      for (const ModelCall& one : calls) {
        CHECK(one.problem.size() < 600);
        if (one.problem.empty()) CHECK(Json::parse(one.arguments).is_object());
      }
    };
    std::mt19937 random(11);
    for (int round = 0; round < 400; ++round) {
      std::string answer = call;
      for (std::size_t n = 1 + random() % 4; n > 0; --n) {
        const std::size_t at = random() % answer.size(), from = random() % call.size();
        const std::string part = call.substr(from, 1 + random() % 12);
        if (random() % 2 == 0)
          answer.insert(at, part);
        else
          answer.replace(at, std::min(part.size(), answer.size() - at), part);
      }
      check(answer);
    }
    const std::string head = call.substr(0, call.find('a', call.find("text") + 4));
    for (const std::string& part : {format.syntax.marker(), std::string("["), std::string("{"), std::string("{\"a\":"),
                                    std::string("\\"), std::string("\""), std::string("="), std::string("\n"), call,
                                    format.syntax.arguments.key_open + "k" + format.syntax.arguments.key_close + "{",
                                    format.syntax.arguments.value_close, std::string(1, kSpecialMark)}) {
      std::string many = head;
      while (many.size() < 300'000) many += part.empty() ? "x" : part;
      check(many);
      check(many.substr(head.size()));
    }
  }
}

TEST_CASE("an answer in channels is text behind its header") {
  const CallForm& form = call_forms().back();
  const ModelText model = model_of(form);
  const ToolFormat format = tool_format_of(model);
  const CallableTools tools = offered({{"note", kAny}});
  const auto marked = [&](const std::string& text) {
    return marked_answer(*model.tokenizer, model.tokenizer->encode(text, SpecialTokens::recognise));
  };
  const auto grammar = tools.grammar(format, 2);
  const std::string answer = marked("<|channel|>final<|message|>to=functions.note {\"name\": \"note\"}");
  CHECK(accepts(*grammar, answer));
  CHECK(calls_in(answer, format, tools).empty());
  CHECK(text_of_answer(answer, format) == "to=functions.note {\"name\": \"note\"}");
  for (const char* header : {" to=functions.note<|channel|>commentary json<|message|>",
                             " to=functions.note<|channel|>commentary <|constrain|>json<|message|>",
                             "<|channel|>commentary to=functions.note <|constrain|>json<|message|>",
                             "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
                             "to=functions.note <|constrain|>json<|message|>"}) {
    CAPTURE(header);
    const std::string call = marked(std::string(header) + R"({"text": "x"})");
    CHECK(accepts(*grammar, call));
    const auto calls = calls_in(call, format, tools);
    REQUIRE(calls.size() == 1);
    CHECK(calls[0].problem.empty());
    CHECK(calls[0].arguments == R"({"text":"x"})");
  }
  CHECK_FALSE(accepts(*grammar, "an answer without a header"));
  CHECK_FALSE(accepts(*tools.grammar(format, 0), marked("<|channel|>commentary to=functions.note json<|message|>{}")));
}

TEST_CASE("a template that thinks in front of its last turn keeps its own form") {
  const std::string source = R"({%- if tools %}<|im_start|>system
{% for t in tools %}{{ t | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>{{ m.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and loop.last %}<think>

</think>

{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})";
  ModelText model = *toy_model();
  model.chat_template = ChatTemplate::parse(source, "test");
  const ToolFormat format = tool_format_of(model);
  CHECK(format.of_template);
  CHECK(format.syntax.open == "<tool_call>\n");
  CHECK(format.syntax.close == "\n</tool_call>");
  const std::string text = prompt_text(model, after_calls(model, format, {{"weather", "rain"}}, {}));
  CHECK(text == "<|im_end|>\n<|im_start|>user\n<tool_response>rain</tool_response><|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace call_forms_test
