// SPDX-License-Identifier: Apache-2.0
// A model without weights for tests of what stands above the engine: bytes are tokens, the chat template is ChatML.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"

namespace baton::test {

/// Ids 0 to 255 are bytes; 256 <s>, 257 <|im_start|>, 258 <|im_end|>, then `more` special tokens.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(const std::vector<std::string>& more = {}) {
    specials_.insert(specials_.end(), more.begin(), more.end());
  }

  std::vector<TokenId> encode_piece(std::string_view text, SpecialTokens special, PieceStart,
                                    const std::stop_token& = {}) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      const TokenId found = special == SpecialTokens::recognise ? special_at(text) : -1;
      if (found >= 0) {
        ids.push_back(found);
        text.remove_prefix(specials_[static_cast<std::size_t>(found - 256)].size());
      } else {
        ids.push_back(static_cast<unsigned char>(text.front()));
        text.remove_prefix(1);
      }
    }
    return ids;
  }
  std::vector<TokenId> encode_with_template(std::string_view text, const std::stop_token& = {}) const override {
    std::vector<TokenId> ids = encode(text, SpecialTokens::recognise);
    ids.insert(ids.begin(), 256);
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id < 256) text += static_cast<char>(id);
      if (id >= 256 && !skip_special) text += specials_[static_cast<std::size_t>(id - 256)];
    }
    return text;
  }
  std::string token_bytes(TokenId id) const override { return id < 256 ? std::string(1, static_cast<char>(id)) : ""; }
  void read_tokens(const ReadToken& read, const std::stop_token&) const override {
    for (TokenId id = 0; id < size(); ++id) read(id, token_bytes(id), token_bytes(id));
  }
  std::optional<TokenId> token_id(std::string_view token) const override {
    const TokenId found = special_at(token);
    return found < 0 ? std::nullopt : std::optional<TokenId>(found);
  }
  bool is_special(TokenId id) const override { return id >= 256; }
  std::int32_t size() const override { return static_cast<std::int32_t>(256 + specials_.size()); }
  std::unique_ptr<DecodeStream> stream(bool) const override { throw std::logic_error("the tests do not stream"); }

 private:
  TokenId special_at(std::string_view text) const {
    for (std::size_t i = 0; i < specials_.size(); ++i) {
      if (text.starts_with(specials_[i])) return static_cast<TokenId>(256 + i);
    }
    return -1;
  }

  std::vector<std::string> specials_{"<s>", "<|im_start|>", "<|im_end|>"};
};

class ChatMl : public ChatTemplate {
 public:
  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const std::stop_token& = {}) const override {
    std::string text;
    for (const ChatMessage& message : messages) {
      text += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
    }
    if (options.add_generation_prompt) text += "<|im_start|>assistant\n";
    return text;
  }
};

inline std::shared_ptr<const Model> toy_model(
    std::shared_ptr<const ChatTemplate> chat = std::make_shared<ChatMl>(),
    std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<ByteTokenizer>(), std::int32_t context = 1 << 24) {
  ModelConfig config;
  config.architecture = "Toy";
  config.layers = 2;
  config.heads = config.kv_heads = 1;
  config.head_dim = 8;
  config.vocabulary = 259;
  config.context = context;
  ModelText text{.path = "models/toy",
                 .fingerprint = "toy-1",
                 .tokenizer = std::move(tokenizer),
                 .chat_template = std::move(chat)};
  if (text.chat_template) text.thinking = thinking_form_of(*text.chat_template, text.chat_options);
  ModelOptions options;
  options.context = config.context;
  return std::make_shared<const Model>(Model{std::move(text), config, options, LayerRopes(config), {}, {}});
}

}  // namespace baton::test
