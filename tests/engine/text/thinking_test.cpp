// SPDX-License-Identifier: Apache-2.0
// Where the thinking of a model ends in its output, and what its chat template says of it.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "engine/base/random.h"
#include "engine/text/templates.h"
#include "engine/text/thinking.h"

namespace baton::test::thinking_test {
namespace {

struct Form {
  ThinkingMarks marks;
  std::string between;  // the end of the thinking and the answer
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {{"<think>", "</think>"}, "\n\n"},
      {{"", "</think>"}, "\n\n"},
      {{"<think>", "</think>"}, ""},
      {{"<|channel|>analysis<|message|>", "<|end|>"}, ""},
      {{"<|channel>thought", "<channel|>"}, "\n"},
      {{"[THINK]", "[/THINK]"}, " "},
      {{"<|START_THINKING|>", "<|END_THINKING|>"}, ""},
      {{"◁think▷", "◁/think▷"}, "\n"},
      {{"<seed:think>", "</seed:think>"}, ""},
  };
  return all;
}

struct Read {
  std::string thought;
  std::string kept;  // the text of the tokens that belong to the thinking
  ThinkingReader reader;
};

Read read(const ThinkingMarks& marks, const std::vector<std::string>& tokens) {
  Read out{{}, {}, ThinkingReader(marks)};
  for (const std::string& token : tokens) {
    if (out.reader.over()) break;
    out.thought += out.reader.push(token);
  }
  out.thought += out.reader.finish();
  for (std::size_t i = 0; i < out.reader.tokens(); ++i) out.kept += tokens[i];
  return out;
}

/// Cuts a text between characters.
std::vector<std::string> split(const std::string& text, std::uint64_t seed) {
  std::vector<std::string> tokens(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool inside = (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    seed = mixed_bits(seed + 1);
    if (!tokens.back().empty() && !inside && seed % 3 == 0) tokens.emplace_back();
    tokens.back() += text[i];
  }
  return tokens;
}

TEST_CASE("thinking is found however its markers are split into tokens") {
  const std::string thought = "\nIs it 7 < 8? </thin <think a_\n", answer = "Yes </think> é";
  for (const Form& form : forms()) {
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      const std::string begin = seed % 5 == 0 ? "\n" + form.marks.begin : form.marks.begin;
      const std::vector<std::string> tokens = split(begin + thought + form.marks.end + form.between + answer, seed);
      const Read out = read(form.marks, tokens);
      INFO(form.marks.end << ", seed " << seed);
      REQUIRE(out.reader.begun());
      REQUIRE(out.reader.ended());
      REQUIRE(out.reader.over());
      REQUIRE(out.thought == (form.marks.begin.empty() && seed % 5 == 0 ? "\n" : "") + thought);
      // The tokens and the rest are the thinking, its markers and blanks, and nothing of the answer.
      const std::string whole = out.kept + out.reader.rest();
      const std::string marked = begin + thought + form.marks.end;
      REQUIRE(whole.starts_with(marked));
      REQUIRE((marked + form.between).starts_with(whole));
      if (!out.reader.rest().empty()) REQUIRE(whole == marked);
    }
  }
}

TEST_CASE("an answer that does not begin with the marker is no thinking") {
  for (const std::string text : {"Yes.", "<b>think</b>", "\n\n<thin", "", "{\"a\": 1}", "x<think>y</think>z"}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Read out = read({"<think>", "</think>"}, split(text, seed));
      INFO(text);
      CHECK(!out.reader.begun());
      CHECK(out.reader.tokens() == 0);
      CHECK(out.thought.empty());
      CHECK(out.reader.rest().empty());
    }
  }
}

TEST_CASE("thinking that does not end lacks the marker of its end") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Read out = read({"<think>", "</think>"}, split("<think>so </thin", seed));
    CHECK(out.reader.begun());
    CHECK(!out.reader.ended());
    CHECK(!out.reader.over());
    CHECK(out.thought == "so </thin");
    CHECK(out.kept == "<think>so </thin");
    CHECK(out.reader.rest() == "</think>");
  }
}

TEST_CASE("blanks around thinking are read to a bound") {
  ThinkingReader before({"<think>", "</think>"});
  for (int i = 0; i < 20 && !before.over(); ++i) before.push("\n");
  CHECK(before.over());
  ThinkingReader behind({"", "</think>"});
  behind.push("</think>");
  int blanks = 0;
  for (; blanks < 100 && !behind.over(); ++blanks) behind.push("\n");
  CHECK(blanks < 20);
  CHECK(behind.tokens() == static_cast<std::size_t>(blanks));  // the last one is the answer's
}

std::shared_ptr<const ChatTemplate> chat(const std::string& source) { return ChatTemplate::parse(source, "t"); }

constexpr const char* kBegin = "{% for m in messages %}<|im_start|>{{ m.role }}\n";
constexpr const char* kEnd = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n";

std::string with_thinking(const std::string& tail) {
  return std::string(kBegin) +
         "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}" +
         kEnd + tail + "{% endif %}";
}

TEST_CASE("a chat template says how its model thinks") {
  CHECK(!thinking_form_of(*chat(std::string(kBegin) + "{{ m.content }}" + kEnd + "{% endif %}"), {}));

  const auto qwen = chat(with_thinking(
      "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"));
  const auto form = thinking_form_of(*qwen, {});
  REQUIRE(form);
  CHECK(form->marks == ThinkingMarks{"<think>", "</think>"});
  CHECK(form->behind == "\n\n");
  CHECK(thinking_start(*form, *qwen, {}) == ThinkingStart::model);
  ChatOptions off;
  off.variables = {{"enable_thinking", "false"}};
  CHECK(thinking_start(*form, *qwen, off) == ThinkingStart::closed);
  CHECK(without_thinking(*form, ThinkingStart::closed, false).empty());
  CHECK(without_thinking(*form, ThinkingStart::model, false) == "<think>\n\n</think>\n\n");

  const auto begins = chat(with_thinking("<think>\n"));
  CHECK(thinking_start(*thinking_form_of(*begins, {}), *begins, {}) == ThinkingStart::begun);
  CHECK(without_thinking(*form, ThinkingStart::begun, false) == "\n</think>\n\n");

  // What a user says of a marker is no marker of the template.
  const auto last = chat(
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if false %}<think></think>{% endif %}"
      "{% if add_generation_prompt %}>{% endif %}");
  CHECK(thinking_start(*thinking_form_of(*last, {}), *last, {}) == ThinkingStart::model);
}

TEST_CASE("the channels of harmony are thinking and an answer") {
  const auto gpt = chat(
      "{% for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}"
      "<|end|><|start|>assistant{% endif %}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>"
      "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}");
  const auto form = thinking_form_of(*gpt, {});
  REQUIRE(form);
  CHECK(form->marks == ThinkingMarks{"<|channel|>analysis<|message|>", "<|end|>"});
  CHECK(form->behind == "<|start|>assistant");
  CHECK(form->no_thinking == "<|channel|>final<|message|>");
  CHECK(without_thinking(*form, ThinkingStart::model, false) == "<|channel|>final<|message|>");

  // Phi's templates have the marker of the end, too, and no thinking.
  CHECK(!thinking_form_of(*chat("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"), {}));
}

TEST_CASE("a template that fails for a probe has the form that its text names") {
  const auto strict = chat(
      "{% if messages|length > 1 %}{{ raise_exception('no history') }}{% endif %}{{ messages[0].content }}"
      "{% if add_generation_prompt %}<think>{% endif %}{# </think> #}{{ '</think>'[:0] }}");
  const auto form = thinking_form_of(*strict, {});
  REQUIRE(form);
  CHECK(form->behind == "\n\n");
  CHECK(thinking_start(*form, *strict, {}) == ThinkingStart::begun);
}

/// What the splitter makes of a text that comes in pieces.
ThinkingSplitter::Texts separated(const std::vector<std::string>& pieces, bool elsewhere = false) {
  ThinkingSplitter splitter;
  if (elsewhere) splitter.thought_elsewhere();
  ThinkingSplitter::Texts all;
  const auto add = [&](const ThinkingSplitter::Texts& some) {
    all.thinking += some.thinking;
    all.answer += some.answer;
  };
  for (const std::string& piece : pieces) add(splitter.push(piece));
  add(splitter.finish());
  return all;
}

TEST_CASE("thinking of an unknown form is separated from the answer at every split of the text") {
  const std::string thought = "\nIs it 7 < 8? </thin <think a_\n", answer = "Yes </think> é\n";
  std::vector<std::string> texts;
  for (const Form& form : forms()) {
    if (form.marks.begin.empty()) continue;
    for (const char* blanks : {"", "\n", "\n\n "})
      texts.push_back(form.marks.begin + thought + form.marks.end + blanks + answer);
  }
  texts.push_back("<|channel|>analysis<|message|>" + thought + "<|end|><|start|>assistant<|channel|>final<|message|>" +
                  answer);
  texts.push_back(" \n<think>" + thought + "</think>" + answer);
  for (const std::string& text : texts) {
    INFO(text);
    for (std::size_t at = 0; at <= text.size(); ++at) {
      const ThinkingSplitter::Texts out = separated({text.substr(0, at), text.substr(at)});
      REQUIRE(out.thinking == thought);
      REQUIRE(out.answer == answer);
    }
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const ThinkingSplitter::Texts out = separated(split(text, seed));
      REQUIRE(out.thinking == thought);
      REQUIRE(out.answer == answer);
    }
  }
}

TEST_CASE("a text that does not begin with thinking is the answer, byte for byte") {
  for (const std::string text :
       {"Yes.", "<b>think</b>", "\n\n<thin", "", "x<think>y</think>z", "  \n a", "[THI", "<", "</think>", " "}) {
    INFO(text);
    for (std::size_t at = 0; at <= text.size(); ++at) {
      const ThinkingSplitter::Texts out = separated({text.substr(0, at), text.substr(at)});
      REQUIRE(out.thinking.empty());
      REQUIRE(out.answer == text);
    }
  }
}

TEST_CASE("thinking without an end is no answer, and an answer behind thinking from elsewhere has no blanks in front") {
  for (const std::string end : {"", "<", "</think"}) {
    const ThinkingSplitter::Texts out = separated({"<think>so long", end});
    CHECK(out.thinking == "so long" + end);
    CHECK(out.answer.empty());
  }
  const ThinkingSplitter::Texts out = separated({"\n", "\n <think>", "x"}, true);
  CHECK(out.thinking.empty());
  CHECK(out.answer == "<think>x");
  CHECK(separated({"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|chan"}).answer ==
        "<|start|>assistant<|chan");
}

TEST_CASE("long hostile texts are separated in linear time, with little held back") {
  ThinkingSplitter splitter;
  std::size_t told = 0;
  const auto push = [&](const std::string& text) {
    const ThinkingSplitter::Texts some = splitter.push(text);
    told += some.thinking.size() + some.answer.size();
  };
  push("<think>");
  for (int i = 0; i < 200'000; ++i) push("</think");
  CHECK(told + 7 == 200'000u * 7);
  ThinkingSplitter blanks;
  std::size_t answer = 0;
  for (int i = 0; i < 100'000; ++i) answer += blanks.push(" ").answer.size();
  CHECK(answer > 99'000);
}

}  // namespace
}  // namespace baton::test::thinking_test
