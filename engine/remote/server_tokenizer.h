// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a llama-server, asked over HTTP, so that no tokenizer file is needed.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "engine/remote/model_server.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// Members throw BackendError where the server does not answer, so they may take as long as that does. What it says of
/// single tokens is remembered.
class ServerTokenizer final : public Tokenizer {
 public:
  /// `size`: of the vocabulary. Its calls must not be made on the thread of the server's loop.
  ServerTokenizer(std::shared_ptr<ModelServer> server, std::uint64_t identity, std::int32_t size);

  std::vector<TokenId> encode(std::string_view text, SpecialTokens special, const std::stop_token& stop) const override;
  std::vector<TokenId> encode_with_template(std::string_view text, const std::stop_token& stop) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  /// Throws ModelError for a token that is a part of a character: the server tells texts, not bytes.
  std::string token_bytes(TokenId id) const override;
  void read_tokens(const ReadToken& read, const std::stop_token& stop) const override;
  std::optional<TokenId> token_id(std::string_view token) const override;
  bool is_special(TokenId id) const override;
  std::int32_t size() const override { return size_; }
  /// All of the text comes at the end.
  std::unique_ptr<DecodeStream> stream(bool skip_special) const override;

  /// The token has a text of its own, so it is not special.
  void is_plain(TokenId id) const;

 private:
  std::vector<TokenId> ask(std::string_view text, bool special, bool template_tokens,
                           const std::stop_token& stop) const;
  std::string text_of(std::span<const TokenId> ids) const;

  std::shared_ptr<ModelServer> server_;
  std::int32_t size_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<TokenId, bool> special_;
};

}  // namespace baton
