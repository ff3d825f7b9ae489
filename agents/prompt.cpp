// SPDX-License-Identifier: Apache-2.0
#include "agents/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/errors.h"

namespace baton {
namespace {

/// A slot at its position in the rendered text.
struct Mark {
  std::size_t begin = 0;
  std::size_t end = 0;
  const std::string* slot = nullptr;
};

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// Returns a mark that no fixed text holds: a private-use character and a number. Slot values are never rendered.
std::string unused_prefix(const std::vector<PromptMessage>& messages) {
  for (int number = 0;; ++number) {
    const std::string prefix = fmt::format("\uE0B1{}.", number);
    const bool used = std::any_of(messages.begin(), messages.end(), [&](const PromptMessage& message) {
      return std::any_of(message.pieces.begin(), message.pieces.end(),
                         [&](const PromptPiece& piece) { return piece.text.find(prefix) != std::string::npos; });
    });
    if (!used) return prefix;
  }
}

struct Rendered {
  std::string text;
  std::vector<Mark> marks;  // in the order of their positions
};

/// The chat template sees a mark in the place of each slot, so it cannot change a value. A template that trims a
/// message finds the mark at the message's end and keeps the mark and the blanks before it.
Rendered render(const ModelText& model, const std::vector<PromptMessage>& messages) {
  const std::string prefix = unused_prefix(messages);
  std::vector<std::pair<std::string, const std::string*>> sentinels;
  std::vector<ChatMessage> chat;
  for (const PromptMessage& message : messages) {
    ChatMessage& content = chat.emplace_back(ChatMessage{message.role, {}});
    for (const PromptPiece& piece : message.pieces) {
      if (piece.slot.empty()) {
        content.content += piece.text;
      } else {
        sentinels.emplace_back(fmt::format("{}{}\uE0B2", prefix, sentinels.size()), &piece.slot);
        content.content += sentinels.back().first;
      }
    }
  }

  Rendered rendered;
  if (model.chat_template) {
    rendered.text = model.chat_template->render(chat, model.chat_options);
  } else {
    for (std::size_t i = 0; i < chat.size(); ++i) rendered.text += (i == 0 ? "" : "\n") + chat[i].content;
  }
  for (const auto& [sentinel, slot] : sentinels) {
    const std::size_t found = occurrences(rendered.text, sentinel);
    if (found != 1) {
      throw ModelError(fmt::format("{}: the chat template shows the text of '{}' {} times; expected once",
                                   model.path.string(), *slot, found));
    }
    const std::size_t at = rendered.text.find(sentinel);
    rendered.marks.push_back({at, at + sentinel.size(), slot});
  }
  std::sort(rendered.marks.begin(), rendered.marks.end(),
            [](const Mark& a, const Mark& b) { return a.begin < b.begin; });
  return rendered;
}

}  // namespace

std::vector<PromptPart> build_frame(const ModelText& model, const std::vector<PromptMessage>& messages) {
  const Rendered rendered = render(model, messages);
  std::vector<PromptPart> frame;
  const auto add_fixed = [&](std::size_t begin, std::size_t end) {
    const std::string text = rendered.text.substr(begin, end - begin);
    std::vector<TokenId> tokens;
    // A chat template writes its own BOS; without a template the tokeniser's post-processor adds it to the first piece.
    if (begin == 0 && !model.chat_template) {
      tokens = model.tokenizer->encode_with_template(text);
    } else if (!text.empty()) {
      tokens = model.tokenizer->encode(text, SpecialTokens::recognise);
    }
    if (!tokens.empty()) frame.push_back({{}, std::move(tokens)});
  };
  std::size_t begin = 0;
  for (const Mark& mark : rendered.marks) {
    add_fixed(begin, mark.begin);
    frame.push_back({*mark.slot, {}});
    begin = mark.end;
  }
  add_fixed(begin, rendered.text.size());
  return frame;
}

std::vector<PromptPart> fill_frame(const std::vector<PromptPart>& frame, const SlotValue& value) {
  std::vector<PromptPart> prompt;
  std::map<std::string, std::vector<TokenId>> values;  // the value of a repeated slot is requested once
  for (const PromptPart& part : frame) {
    if (!part.tokens.empty()) {
      prompt.push_back(part);
      continue;
    }
    const auto [at, is_new] = values.try_emplace(part.slot);
    if (is_new) at->second = value(part.slot);
    if (!at->second.empty()) prompt.push_back({part.slot, at->second});
  }
  return prompt;
}

std::vector<PromptPart> build_prompt(const ModelText& model, const std::vector<PromptMessage>& messages,
                                     const SlotValue& value) {
  return fill_frame(build_frame(model, messages), value);
}

std::string prompt_text(const ModelText& model, const std::vector<PromptPart>& parts) {
  std::vector<TokenId> ids;
  for (const PromptPart& part : parts) ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
  return model.tokenizer->decode(ids, false);
}

}  // namespace baton
