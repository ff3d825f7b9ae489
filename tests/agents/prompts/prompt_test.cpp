// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/prompt.h"

#include <catch2/catch.hpp>
#include <map>

#include "tests/support/toy_model.h"

namespace prompt_test {

using namespace baton;
using namespace baton::test;

namespace {

/// Renders what it is told to, whatever the messages.
class FixedTemplate : public ChatTemplate {
 public:
  explicit FixedTemplate(std::function<std::string(const std::vector<ChatMessage>&)> render)
      : render_(std::move(render)) {}
  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions&,
                     const std::stop_token&) const override {
    return render_(messages);
  }

 private:
  std::function<std::string(const std::vector<ChatMessage>&)> render_;
};

SlotValue text_values(const Model& model, const std::map<std::string, std::string>& texts) {
  return [&model, texts](const std::string& slot, PieceStart start) {
    return model.tokenizer->encode_piece(texts.at(slot), SpecialTokens::as_text, start);
  };
}

std::vector<std::string> slots_of(const std::vector<PromptPart>& parts) {
  std::vector<std::string> slots;
  for (const PromptPart& part : parts) slots.push_back(part.slot);
  return slots;
}

const std::vector<PromptMessage> kMessages = {{"system", {{"Be brief.", ""}}},
                                              {"user", {{"Q: ", ""}, {"", "question"}, {"\nA: ", ""}, {"", "answer"}}}};

}  // namespace

TEST_CASE("the chat template goes around the slots, and values stand as ids") {
  const auto model = toy_model();
  const auto parts =
      build_prompt(*model, kMessages, text_values(*model, {{"question", "why?"}, {"answer", "<|im_end|>"}}));
  CHECK(prompt_text(*model, parts) ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nQ: why?\nA: "
        "<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  CHECK(slots_of(parts) == std::vector<std::string>{"", "question", "", "answer", ""});
  CHECK(parts[0].tokens.front() == 257);  // the template's own marker is one
  CHECK(parts[3].tokens.size() == 10);    // the value's is ten bytes
  CHECK(parts[3].tokens.front() == '<');
}

TEST_CASE("fixed text of the author may hold special tokens") {
  const auto model = toy_model();
  const auto parts = build_prompt(*model, {{"user", {{"<s>x", ""}}}}, {});
  REQUIRE(parts.size() == 1);
  CHECK(std::count(parts[0].tokens.begin(), parts[0].tokens.end(), 256) == 1);
}

TEST_CASE("fixed text that is data holds no special tokens") {
  const auto model = GENERATE(toy_model(), toy_model(nullptr));
  const auto parts = build_prompt(*model, {{"user", {{"x", ""}, {"<s>", "", true}, {"y", ""}}}}, {});
  CHECK(prompt_text(*model, parts).find("x<s>y") != std::string::npos);
  std::vector<TokenId> data;
  for (const PromptPart& part : parts) {
    CHECK(part.slot.empty());
    if (part.tokens.front() == '<') data = part.tokens;
  }
  CHECK(data == std::vector<TokenId>{'<', 's', '>'});
}

TEST_CASE("without a chat template the messages are joined by newlines after the tokenizer's BOS") {
  const auto model = toy_model(nullptr);
  const auto parts = build_prompt(*model, kMessages, text_values(*model, {{"question", "why?"}, {"answer", "so"}}));
  CHECK(prompt_text(*model, parts) == "<s>Be brief.\nQ: why?\nA: so");
  const auto slot_first =
      build_prompt(*model, {{"user", {{"", "question"}}}}, text_values(*model, {{"question", "why?"}}));
  CHECK(prompt_text(*model, slot_first) == "<s>why?");
  CHECK(slots_of(slot_first) == std::vector<std::string>{"", "question"});
}

TEST_CASE("a slot that stands twice is filled twice and asked for once, an empty value has no part") {
  const auto model = toy_model();
  int asked = 0;
  const auto parts = build_prompt(*model, {{"user", {{"", "a"}, {"", "a"}, {"-", ""}, {"", "b"}}}},
                                  [&](const std::string& slot, PieceStart) {
                                    ++asked;
                                    return slot == "a" ? std::vector<TokenId>{'x'} : std::vector<TokenId>{};
                                  });
  CHECK(asked == 2);
  CHECK(slots_of(parts) == std::vector<std::string>{"", "a", "a", "", ""});
  CHECK(prompt_text(*model, parts) == "<|im_start|>user\nxx-<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a template that drops, repeats or reorders slots") {
  const auto drops =
      toy_model(std::make_shared<FixedTemplate>([](const auto& messages) { return messages[0].content; }));
  const SlotValue value = [](const std::string&, PieceStart) { return std::vector<TokenId>{'v'}; };
  CHECK_THROWS_AS(build_prompt(*drops, kMessages, value), ModelError);
  CHECK_THROWS_WITH(build_prompt(*drops, kMessages, value),
                    "models/toy: the chat template shows the text of 'question' 0 times; expected once");
  const auto repeats = toy_model(
      std::make_shared<FixedTemplate>([](const auto& messages) { return messages[1].content + messages[1].content; }));
  CHECK_THROWS_AS(build_prompt(*repeats, kMessages, value), ModelError);
  const auto reorders = toy_model(std::make_shared<FixedTemplate>(
      [](const auto& messages) { return messages[1].content + "|" + messages[0].content; }));
  const auto parts = build_prompt(*reorders, {{"system", {{"", "first"}}}, {"user", {{"", "second"}}}}, value);
  CHECK(slots_of(parts) == std::vector<std::string>{"second", "", "first"});
}

TEST_CASE("text that looks like a mark is left alone") {
  const auto model = toy_model();
  const std::string mark =
      "\uE0B1"
      "0.0\uE0B2";
  const auto parts = build_prompt(*model, {{"user", {{mark, ""}, {"", "a"}}}}, text_values(*model, {{"a", mark}}));
  CHECK(prompt_text(*model, parts) == "<|im_start|>user\n" + mark + mark + "<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a value that stands in a prompt very often is refused before it fills the memory") {
  const auto model = toy_model();
  const std::vector<FramePart> frame(1000, {"answer", {}, {}, {}});
  const SlotValue value = [](const std::string&, PieceStart) { return std::vector<TokenId>(20'000, 7); };
  CHECK_THROWS_WITH(fill_frame(*model, frame, value), "the prompt has more than 16777216 tokens");
  CHECK(fill_frame(*model, std::vector<FramePart>(800, {"answer", {}, {}, {}}), value).size() == 800);
}

}  // namespace prompt_test
