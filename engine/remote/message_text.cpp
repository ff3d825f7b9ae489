// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/message_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

constexpr TokenId kBytes = 256;
constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
constexpr std::uint64_t kIdentity = 0x6d65'7373'6167'6573u;  // "messages"

std::string marker(std::string_view role) { return fmt::format("<|baton:{}|>", role); }

class MessageStream final : public DecodeStream {
 public:
  explicit MessageStream(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string push(TokenId id) override {
    bytes_ += tokenizer_.decode(std::array{id}, skip_special_);
    std::size_t whole = 0;
    while (whole < bytes_.size()) {
      const utf8::CharacterStep step = utf8::scan(bytes_, whole);
      if (step.kind == utf8::Scan::unfinished) break;
      whole += step.bytes;
    }
    std::string text = utf8::repaired(std::string_view(bytes_).substr(0, whole));
    bytes_.erase(0, whole);
    return text;
  }
  std::string finish() override { return utf8::repaired(std::exchange(bytes_, {})); }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string bytes_;
};

class MessageTokenizer final : public Tokenizer {
 public:
  MessageTokenizer() : Tokenizer(kIdentity) {}

  std::vector<TokenId> encode(std::string_view text, SpecialTokens special, const std::stop_token&) const override {
    const std::string valid = utf8::repaired(text);
    std::vector<TokenId> ids;
    ids.reserve(valid.size());
    for (std::size_t at = 0; at < valid.size();) {
      const int role = special == SpecialTokens::recognise ? role_at(std::string_view(valid).substr(at)) : -1;
      ids.push_back(role < 0 ? static_cast<unsigned char>(valid[at]) : kBytes + role);
      at += role < 0 ? 1 : marker(kRoles[static_cast<std::size_t>(role)]).size();
    }
    return ids;
  }
  std::vector<TokenId> encode_with_template(std::string_view text, const std::stop_token& stop) const override {
    return encode(text, SpecialTokens::recognise, stop);
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id >= 0 && id < kBytes) text += static_cast<char>(id);
      if (is_special(id) && !skip_special) text += marker(kRoles[static_cast<std::size_t>(id - kBytes)]);
    }
    return text;
  }
  std::string token_bytes(TokenId id) const override { return decode(std::array{id}, true); }
  void read_tokens(const ReadToken& read, const std::stop_token&) const override {
    for (TokenId id = 0; id < size(); ++id) read(id, token_bytes(id), token_bytes(id));
  }
  std::optional<TokenId> token_id(std::string_view token) const override {
    if (token.size() == 1) return static_cast<unsigned char>(token.front());
    const int role = role_at(token);
    return role >= 0 && token == marker(kRoles[static_cast<std::size_t>(role)]) ? std::optional(kBytes + role)
                                                                                : std::nullopt;
  }
  bool is_special(TokenId id) const override { return id >= kBytes && id < size(); }
  std::int32_t size() const override { return kBytes + static_cast<std::int32_t>(kRoles.size()); }
  std::unique_ptr<DecodeStream> stream(bool skip_special) const override {
    return std::make_unique<MessageStream>(*this, skip_special);
  }

 private:
  static int role_at(std::string_view text) {
    if (!text.starts_with("<|baton:")) return -1;
    for (std::size_t role = 0; role < kRoles.size(); ++role) {
      if (text.starts_with(marker(kRoles[role]))) return static_cast<int>(role);
    }
    return -1;
  }
};

class MessageTemplate final : public ChatTemplate {
 public:
  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const std::stop_token&) const override {
    std::string text;
    for (const ChatMessage& message : messages) {
      if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end())
        throw ModelError(fmt::format("a message has the role '{}'; expected one of {}", message.role,
                                     "system, user, assistant, tool"));
      text += marker(message.role) + message.content;
    }
    return options.add_generation_prompt ? text + marker("assistant") : text;
  }
};

}  // namespace

ModelText message_text() {
  ModelText text;
  text.tokenizer = std::make_shared<const MessageTokenizer>();
  text.chat_template = std::make_shared<const MessageTemplate>();
  return text;
}

std::vector<ChatMessage> messages_of(const std::vector<TokenId>& prompt) {
  std::vector<ChatMessage> messages;
  for (const TokenId id : prompt) {
    if (id >= kBytes && id < kBytes + static_cast<TokenId>(kRoles.size())) {
      messages.push_back({std::string(kRoles[static_cast<std::size_t>(id - kBytes)]), {}});
      continue;
    }
    if (messages.empty()) messages.push_back({"user", {}});
    messages.back().content += static_cast<char>(id);
  }
  if (!messages.empty() && messages.back().role == "assistant" && messages.back().content.empty()) messages.pop_back();
  return messages;
}

}  // namespace baton
