// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>

#include "engine/model/config.h"
#include "engine/text/templates.h"
#include "tests/support/golden_files.h"

namespace baton::test::chat_template_test {
namespace {

using Catch::Matchers::Contains;

std::string render(const ChatTemplate& chat, const Json& question) {
  std::vector<ChatMessage> messages;
  for (const Json& message : question["messages"]) messages.push_back({message["role"], message["content"]});
  ChatOptions options;
  options.add_generation_prompt = question["add_generation_prompt"];
  options.bos_token = question["bos_token"];
  options.eos_token = question["eos_token"];
  for (const auto& [name, value] : question["flags"].items()) options.variables.emplace_back(name, value.dump());
  return chat.render(messages, options);
}

std::string run(const std::string& source) { return ChatTemplate::parse(source, "t")->render({{"user", "hi"}}, {}); }

std::string complaint(const std::string& source) {
  try {
    run(source);
  } catch (const ModelError& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a ChatML template") {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor "
      "%}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "chatml");
  ChatOptions options;
  CHECK(chat->render({{"system", "Be brief."}, {"user", "Hi"}}, options) ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  options.add_generation_prompt = false;
  CHECK(chat->render({{"user", "{{ x }}"}}, options) == "<|im_start|>user\n{{ x }}<|im_end|>\n");
  CHECK(chat->render({{"user", "\xFF"}}, options) == "<|im_start|>user\n\xEF\xBF\xBD<|im_end|>\n");
}

TEST_CASE("every construct renders as in Transformers") {
  const Json golden = golden_json("chat/snippets.json");
  for (const Json& snippet : golden["rendered"]) {
    CAPTURE(snippet[0]);
    try {
      CHECK(render(*ChatTemplate::parse(snippet[0].get<std::string>(), "t"), golden["question"]) ==
            snippet[1].get<std::string>());
    } catch (const ModelError& error) {
      FAIL_CHECK(error.what());
    }
  }
}

TEST_CASE("what fails in Transformers fails with a place") {
  const Json golden = golden_json("chat/snippets.json");
  for (const Json& source : golden["failing"]) {
    CAPTURE(source);
    try {
      const std::string text = render(*ChatTemplate::parse(source.get<std::string>(), "t"), golden["question"]);
      FAIL_CHECK("rendered: " << text);
    } catch (const ModelError& error) {
      CHECK_THAT(error.what(), Catch::Matchers::Matches("t:[0-9]+:[0-9]+: .+"));
    }
  }
}

TEST_CASE("templates in the manner of the families render as in Transformers") {
  const Json families = golden_json("chat/families.json");
  for (const auto& [name, cases] : families.items()) {
    const auto chat = ChatTemplate::parse(golden_text("chat/families/" + name + ".jinja"), name);
    for (const Json& one : cases) {
      CAPTURE(name, one["question"]);
      if (one["text"].is_null()) {
        CHECK_THROWS_AS(render(*chat, one["question"]), ModelError);
      } else {
        CHECK(render(*chat, one["question"]) == one["text"].get<std::string>());
      }
    }
  }
}

namespace {

ChatMessage message_of(const Json& json, std::size_t value) {
  ChatMessage message{json["role"], json["content"]};
  message.name = json.value("name", "");
  message.call_id = json.value("call_id", "");
  message.thinking = json.value("thinking", "");
  for (const Json& call : json.value("calls", Json::array()))
    message.calls.push_back({call["id"], call["name"], call["arguments"]});
  if (!message.content.empty()) message.values = {{0, message.content.size(), value, 0, true}};
  return message;
}

/// The longest run of letters of a text: what no template writes itself.
std::string word_in(const std::string& text) {
  std::string longest, word;
  for (const char c : text + " ") {
    if ((c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80) {
      word += c;
    } else {
      if (word.size() > longest.size()) longest = word;
      word.clear();
    }
  }
  return longest;
}

/// Whether all bytes of the text in [begin, end) come from values.
bool is_of_values(const ChatText& text, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; ++at) {
    if (std::none_of(text.values.begin(), text.values.end(),
                     [at](const ValueSpan& span) { return span.begin <= at && at < span.end; }))
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("templates in the manner of current families render as in Transformers, and know where values stand") {
  const Json golden = golden_json("chat/manners.json");
  CHECK(golden["templates"].size() >= 40);
  for (const Json& one : golden["templates"]) {
    const std::string source = one["source"];
    const auto chat = ChatTemplate::parse(source, one["name"]);
    for (const Json& asked : one["cases"]) {
      ChatOptions options{.add_generation_prompt = asked[3], .bos_token = "<s>", .eos_token = "</s>"};
      options.local_seconds = local_seconds_of(golden["local_time"].get<std::string>());
      for (const auto& [name, value] : golden["variables"][asked[1].get<std::size_t>()].items())
        options.variables.emplace_back(name, value.dump());
      if (asked[2]) options.tools = golden["tools"].get<std::vector<std::string>>();
      std::vector<ChatMessage> messages;
      for (const Json& message : golden["talks"][asked[0].get<std::size_t>()])
        messages.push_back(message_of(message, messages.size()));
      CAPTURE(one["name"], asked[0], asked[1], asked[2], asked[3]);
      if (asked[4].is_null()) {
        CHECK_THROWS_AS(chat->render(messages, options), ModelError);
        continue;
      }
      ChatText made;
      try {
        made = chat->render_values(messages, options).value();
      } catch (const ModelError& error) {
        FAIL_CHECK(error.what());
        continue;
      }
      CHECK(made.text == asked[4].get<std::string>());
      std::size_t end = 0;
      for (const ValueSpan& span : made.values) {
        CHECK(span.begin >= end);
        CHECK(span.end > span.begin);
        REQUIRE(span.end <= made.text.size());
        end = span.end;
        if (span.is_verbatim)
          CHECK(messages.at(span.value).content.substr(span.offset, span.end - span.begin) ==
                made.text.substr(span.begin, span.end - span.begin));
      }
      for (const ChatMessage& message : messages) {
        const std::string word = word_in(message.content);
        const bool is_elsewhere = (source + message.thinking + golden["tools"].dump()).find(word) != std::string::npos;
        if (word.size() < 4 || is_elsewhere) continue;
        for (std::size_t at = 0; (at = made.text.find(word, at)) != std::string::npos; at += word.size()) {
          CAPTURE(word, at);
          CHECK(is_of_values(made, at, at + word.size()));
        }
      }
    }
  }
}

namespace {

/// "text" as it is, [text] for a part of the value, {text} for what was made of it.
std::string shown_values(const std::string& source, const std::string& content) {
  ChatMessage message{"user", content};
  message.values = {{0, content.size(), 0, 0, true}};
  const ChatText made = ChatTemplate::parse(source, "t")->render_values({message}, {}).value();
  std::string out;
  std::size_t at = 0;
  for (const ValueSpan& span : made.values) {
    out += made.text.substr(at, span.begin - at);
    const std::string part = made.text.substr(span.begin, span.end - span.begin);
    out += span.is_verbatim ? "[" + part + "]" : "{" + part + "}";
    at = span.end;
  }
  return out + made.text.substr(at);
}

}  // namespace

TEST_CASE("whatever a template does to a text, what comes from a value is known") {
  const auto shown = [](const std::string& expression, const std::string& content) {
    return shown_values("{% set c = messages[0].content %}<{{ " + expression + " }}>", content);
  };
  CHECK(shown("c", " a ") == "<[ a ]>");
  CHECK(shown("c|trim", " a ") == "<[a]>");
  CHECK(shown("c.strip('x')", "xax") == "<[a]>");
  CHECK(shown("c.lstrip() ~ '!'", " a ") == "<[a ]!>");
  CHECK(shown("c.split('</think>')[-1].lstrip('\n')", "<think>hm</think>\n\nso") == "<[so]>");
  CHECK(shown("c.split('</think>')[0].split('<think>')[-1]", "<think>hm</think>so") == "<[hm]>");
  CHECK(shown("'(' + c + ')' + c[1:]", "abc") == "<([abc])[bc]>");
  CHECK(shown("c[0] ~ c[-1] ~ c[::-1]", "abc") == "<[a][c][c][b][a]>");
  CHECK(shown("c.replace('b', '-')", "abc") == "<[a]-[c]>");
  CHECK(shown("'x-y'|replace('-', c)", "abc") == "<x[abc]y>");
  CHECK(shown("c.partition('=')[2]", "k=v") == "<[v]>");
  CHECK(shown("c.splitlines()|join('|')", "a\nb") == "<[a]|[b]>");
  CHECK(shown("c|indent(1)", "a\nb") == "<[a]\n [b]>");
  CHECK(shown("c|list|join", "abc") == "<[abc]>");
  CHECK(shown("c|list|join('-')", "ab") == "<[a]-[b]>");
  CHECK(shown("c * 2", "ab") == "<[ab][ab]>");
  CHECK(shown("c|upper", "ab") == "<{AB}>");
  CHECK(shown("c|title", "ab") == "<{Ab}>");
  CHECK(shown("c|tojson", "ab") == "<\"[ab]\">");
  CHECK(shown("c|tojson", "a\nb") == "<\"{a\\nb}\">");
  CHECK(shown("{'k': [c]}|tojson", "ab") == "<{\"k\": [\"[ab]\"]}>");
  CHECK(shown("[c]", "ab") == "<['[ab]']>");
  CHECK(shown("'%s!' % c", "ab") == "<[ab]!>");
  CHECK(shown("'%5s' % c", "ab") == "<{   ab}>");
  CHECK(shown("'{}!'.format(c)", "ab") == "<[ab]!>");
  CHECK(shown("c|e", "a<b") == "<{a&lt;b}>");
  CHECK(shown("(c|safe) + '<'", "ab") == "<[ab]&lt;>");
  CHECK(shown("c if 'a' in c else 'none'", "ab") == "<[ab]>");
  CHECK(shown("c|length", "ab") == "<2>");
  CHECK(shown("c.removeprefix('a')", "ab") == "<[b]>");
  CHECK(shown("c.center(4)", "ab") == "<{ ab }>");
  CHECK(shown("messages|map(attribute='content')|join('+')", "ab") == "<[ab]>");
  CHECK(shown("c|default('x')|string|first", "ab") == "<[a]>");
  CHECK(shown_values("{% macro m(x) %}({{ x|trim }}){% endmacro %}{{ m(messages[0].content) }}", " a ") == "([a])");
  CHECK(shown_values("{% set x %}({{ messages[0].content }}){% endset %}{{ x[1:] }}", "ab") == "[ab])");
  CHECK(shown_values("{% filter trim %} {{ messages[0].content }}{% endfilter %}", " a ") == "[a]");
  CHECK(shown_values("{% set n = namespace(t='') %}{% for p in messages[0].content.split('-') %}{% set n.t = n.t + p %}"
                     "{% endfor %}{{ n.t }}",
                     "a-b-c") == "[a][b][c]");
}

TEST_CASE("a date is told in English and from the given time") {
  const auto chat = ChatTemplate::parse(
      "{{ strftime_now('%A %a %d %-d %e %B %b %Y %y %j %H %I %p %M %S %m %u %w %U %W %F %T %D %R %^b %% %h') }}", "t");
  ChatOptions options;
  options.local_seconds = local_seconds_of("2026-11-28T13:05:09");
  REQUIRE(options.local_seconds);
  CHECK(chat->render({}, options) ==
        "Saturday Sat 28 28 28 November Nov 2026 26 332 13 01 PM 05 09 11 6 6 47 47 2026-11-28 13:05:09 11/28/26 13:05 "
        "NOV % Nov");
  options.local_seconds = local_seconds_of("2024-01-01T00:00:00");
  CHECK(chat->render({}, options) ==
        "Monday Mon 01 1  1 January Jan 2024 24 001 00 12 AM 00 00 01 1 1 00 01 2024-01-01 00:00:00 01/01/24 00:00 "
        "JAN % Jan");
  CHECK(local_time_text(*local_seconds_of("1969-12-31T23:59:59")) == "1969-12-31T23:59:59");
  CHECK(local_seconds_of("1970-01-02T00:00:01") == 86'401);
  for (const char* wrong : {"", "2026-11-28", "2026-13-01T00:00:00", "2026-02-30T00:00:00", "2026-11-28T24:00:00",
                            "2026-11-28 13:05:09", "2026-11-28T13:05:09Z", "0000-01-01T00:00:00"})
    CHECK_FALSE(local_seconds_of(wrong));
  CHECK(std::abs(local_seconds_now() - static_cast<std::int64_t>(std::time(nullptr))) <= 15 * 3600);
}

TEST_CASE("messages that a template does not take are merged") {
  const auto rendered = [](const std::string& source, const std::vector<ChatMessage>& messages) {
    ChatOptions options{.bos_token = "<s>", .eos_token = "</s>"};
    options.merges_roles = true;
    return ChatTemplate::parse(source, "t")->render(messages, options);
  };
  const Json golden = golden_json("chat/manners.json");
  const auto source_of = [&](const std::string& name) {
    for (const Json& one : golden["templates"]) {
      if (one["name"] == name) return one["source"].get<std::string>();
    }
    return std::string();
  };
  const std::vector<ChatMessage> talk = {
      {"system", "S"}, {"user", "a"}, {"user", "b"}, {"assistant", "c"}, {"user", "d"}};
  CHECK(rendered(source_of("gemma2"), talk) ==
        "<s><start_of_turn>user\nS\n\na\n\nb<end_of_turn>\n<start_of_turn>model\nc<end_of_turn>\n<start_of_turn>user\nd"
        "<end_of_turn>\n<start_of_turn>model\n");
  CHECK(rendered(source_of("gemma3"), talk) == rendered(source_of("gemma2"), talk));
  CHECK(rendered(source_of("mistral_v01"), talk) == "<s>[INST] S\n\na\n\nb [/INST]c</s> [INST] d [/INST]");
  CHECK(rendered(source_of("gemma2"), {{"system", "S"}}) ==
        "<s><start_of_turn>user\nS<end_of_turn>\n<start_of_turn>model\n");
  // What a template takes stays as it is.
  CHECK(rendered(source_of("phi4"), talk) ==
        "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>a<|im_end|><|im_start|>user<|im_sep|>b"
        "<|im_end|><|im_start|>assistant<|im_sep|>c<|im_end|><|im_start|>user<|im_sep|>d<|im_end|><|im_start|>assistant"
        "<|im_sep|>");
  // One that leaves system messages out, and one that wants them at the beginning.
  const std::string drops =
      "{% for m in messages if m.role != 'system' %}[{{ m.role[0] }}:{{ m.content }}]{% endfor %}";
  CHECK(rendered(drops, talk) == "[u:S\n\na][u:b][a:c][u:d]");
  const std::string first =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}"
      "[{{ m.role[0] }}:{{ m.content }}]{% endfor %}";
  CHECK(rendered(first, {{"system", "S"}, {"user", "a"}, {"system", "T"}, {"system", "U"}, {"user", "b"}}) ==
        "[s:S][u:a][u:T\n\nU\n\nb]");
  CHECK(rendered(first, {{"system", "S"}, {"system", "T"}, {"user", "b"}}) == "[s:S\n\nT][u:b]");
  // Where merging does not help, the template's own error is told.
  CHECK_THROWS_WITH(rendered(source_of("gemma2"), {{"assistant", "a"}}), Contains("must alternate"));
  CHECK_THROWS_WITH(rendered("{{ raise_exception('never') }}", talk), Contains("never"));

  const auto rules = [](const std::string& source) { return ChatTemplate::parse(source, "t")->role_rules({}); };
  CHECK(rules(source_of("gemma2")) == RoleRules{.no_system = true, .no_repeats = true});
  CHECK(rules(source_of("gemma3")) == RoleRules{.no_second_system = true, .no_later_system = true, .no_repeats = true});
  CHECK(rules(source_of("phi4")) == RoleRules{});
  CHECK(rules(drops) == RoleRules{.no_system = true});
  CHECK(rules(first) == RoleRules{.no_second_system = true, .no_later_system = true});
  CHECK(rules("{{ raise_exception('never') }}") == RoleRules{});

  // Values of merged messages are known.
  ChatMessage system{"system", "S"}, user{"user", "v"};
  system.values = {{0, 1, 0, 0, true}};
  user.values = {{0, 1, 1, 0, true}};
  ChatOptions options{.bos_token = "<s>"};
  options.merges_roles = true;
  const ChatText made = ChatTemplate::parse(source_of("gemma2"), "t")->render_values({system, user}, options).value();
  REQUIRE(made.values.size() == 2);
  CHECK(made.text.substr(made.values[0].begin, made.values[1].end - made.values[0].begin) == "S\n\nv");
  CHECK(made.values[1].value == 1);
}

TEST_CASE("what is not supported is named with its place") {
  CHECK(complaint("ok\n  {% include 'x' %}") == "t:2:6: the tag 'include' is not supported");
  CHECK(complaint("{{ 'x'|groupby('a') }}") == "t:1:8: the filter 'groupby' is not supported");
  CHECK(complaint("{{ 1 is nosuch }}") == "t:1:9: the test 'nosuch' is not supported");
  CHECK_THAT(complaint("{{ ('<'|safe) % 1 }}"), Contains("safe"));
  CHECK_THAT(complaint("{{ '%c' % 1 }}"), Contains("%c"));
  CHECK_THAT(complaint("{{ '{.x}'.format(1) }}"), Contains("format()"));
  CHECK_THAT(complaint("{{ strftime_now('%E') }}"), Contains("strftime_now"));
  CHECK_THAT(complaint("{% extends 'x' %}"), Contains("'extends'"));
  CHECK_THAT(complaint("{{ 'abc'.encode() }}"), Contains("'encode'"));
  CHECK_THAT(complaint("{{ cycler(1) }}"), Contains("'cycler'"));
  CHECK_THAT(complaint("{{ range(3) }}"), Contains("printing a range"));
  CHECK_THAT(complaint("{{ 99999999999999999999 }}"), Contains("too large"));
  CHECK_THAT(complaint("{{ 9223372036854775807 + 1 }}"), Contains("too large"));
  CHECK_THAT(complaint("{{ raise_exception('roles!') }}"), Contains("t:1:19: the template refuses: roles!"));
  CHECK_THAT(complaint("{{ messages[0].content.nothing.more }}"), Contains("no member 'nothing'"));
  CHECK_THAT(complaint("{{ '\xC4\xB0'|lower }}"), Contains("the other case of this character"));
  CHECK_THAT(complaint("\xFF"), Contains("not valid UTF-8"));
}

TEST_CASE("hostile templates end") {
  const auto repeated = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  CHECK_THAT(complaint("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), Contains("too deeply"));
  CHECK_THAT(
      complaint("{% macro f(x) %}{% for i in [1, 2] %}{{ f(x + 1) if x < 60 }}{% endfor %}{% endmacro %}{{ f(0) }}"),
      Contains("limit of steps"));
  CHECK_THAT(complaint("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
             Contains("limit of steps"));
  CHECK_THAT(
      complaint("{% set ns = namespace(s='x') %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"),
      Contains("limit of steps") || Contains("too long"));
  CHECK_THAT(
      complaint("{% set ns = namespace(l=[1]) %}{% for a in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
      Contains("limit of steps"));
  CHECK_THAT(
      complaint(
          "{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}"),
      Contains("too deep"));
  CHECK_THAT(
      complaint("{% set ns = namespace(l=[1]) %}{% for a in range(80) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
                "{{ ns.l == ns.l + [] }}{{ ns.l|tojson|length }}"),
      Contains("limit of steps") || Contains("too long"));
  CHECK_THAT(complaint("{{ 'x' * 9999999999 }}"), Contains("too long"));
  CHECK_THAT(complaint("{{ [1] * 9999999999 }}"), Contains("limit of steps"));
  CHECK_THAT(complaint("{{ 'ab'.replace('', 'x' * 1000000) * 100 }}"), Contains("too long"));
  CHECK_THAT(complaint(repeated("{% if true %}", 1000)), Contains("too deep"));
  CHECK_THAT(complaint("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"), Contains("too deep"));
  CHECK_THAT(complaint("{{ " + repeated("-", 5000) + "1 }}"), Contains("too deep"));
  CHECK_THAT(complaint("{{ " + repeated("not ", 5000) + "1 }}"), Contains("too deep"));
  CHECK_THAT(complaint("{{ 1" + repeated("+1", 5000) + " }}"), Contains("too deep"));
  CHECK_THAT(complaint("{{ a" + repeated(".b", 5000) + " }}"), Contains("too deep"));
  CHECK_THAT(complaint("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% endif %}"), Contains("too deep"));
  CHECK_THAT(complaint(std::string(2'000'000, 'x')), Contains("expected at most 1048576"));
  // Circles of values are freed (the leak checker looks).
  CHECK(run("{% set ns = namespace() %}{% set ns.me = ns %}{% macro f() %}{% endmacro %}{% set ns.f = f %}ok") == "ok");
}

}  // namespace baton::test::chat_template_test
