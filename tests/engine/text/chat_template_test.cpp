// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

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
  CHECK_THAT(complaint("{{ range(3) }}"), Contains("printing a view"));
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
