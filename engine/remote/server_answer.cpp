// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_answer.h"

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

/// Returns what earlier events did not hold of an answer so far.
void ServerAnswer::keep_new(ServerPiece& piece) const {
  if (!piece.whole) return;
  if (piece.text.size() < bytes_ || piece.ids.size() < ids_)
    throw ModelError(fmt::format("its answer has become shorter: {} bytes and {} ids, expected at least {} and {}",
                                 piece.text.size(), piece.ids.size(), bytes_, ids_));
  piece.text.erase(0, bytes_);
  piece.ids.erase(piece.ids.begin(), piece.ids.begin() + static_cast<std::ptrdiff_t>(ids_));
}

std::string ServerAnswer::add(ServerPiece piece) {
  keep_new(piece);
  for (const TokenId id : piece.ids) {
    if (id < 0 || id >= tokenizer_->size())
      throw ModelError(fmt::format("its answer holds the id {}; expected one below {}", id, tokenizer_->size()));
  }
  const auto given = static_cast<std::int64_t>(piece.ids.size());
  ids_ += piece.ids.size();
  if (piece.tokens >= 0) {
    gap_ = gap_ || (piece.tokens > generated_ + given && !piece.last);
    generated_ = piece.tokens;
  } else {
    generated_ += given;
  }
  waiting_.insert(waiting_.end(), piece.ids.begin(), piece.ids.end());
  if (piece.text.empty()) return {};
  std::vector<TokenId> ids = std::exchange(waiting_, {});
  if (piece.reason)  // with the end's, which has no text
    while (!ids.empty() && tokenizer_->is_special(ids.back())) ids.pop_back();
  if (std::exchange(gap_, false) || ids.empty()) {
    ids = tokenizer_->encode(piece.text, SpecialTokens::as_text);
  } else if (ids.size() == 1 && on_plain_) {
    on_plain_(ids.front());
  }
  bytes_ += piece.text.size();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  ends_.resize(tokens_.size(), bytes_);
  std::string certain = stops_.push(piece.text);
  text_ += certain;
  return certain;
}

void ServerAnswer::end() {
  text_ += stops_.finish();
  if (!stops_.found()) return;
  const auto kept = std::upper_bound(ends_.begin(), ends_.end(), text_.size()) - ends_.begin();
  tokens_.resize(static_cast<std::size_t>(kept));
  const std::size_t covered = kept == 0 ? 0 : ends_[static_cast<std::size_t>(kept) - 1];
  if (covered == text_.size()) return;
  const std::vector<TokenId> rest = tokenizer_->encode(text_.substr(covered), SpecialTokens::as_text);
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
}

}  // namespace baton
