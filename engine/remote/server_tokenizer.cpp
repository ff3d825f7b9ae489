// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/base/utf8.h"
#include "engine/remote/request_body.h"
#include "engine/remote/server_json.h"

namespace baton {
namespace {

class LateStream final : public DecodeStream {
 public:
  LateStream(const ServerTokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer), skip_(skip_special) {}
  std::string push(TokenId id) override {
    ids_.push_back(id);
    return {};
  }
  std::string finish() override { return tokenizer_.decode(std::exchange(ids_, {}), skip_); }

 private:
  const ServerTokenizer& tokenizer_;
  bool skip_;
  std::vector<TokenId> ids_;
};

}  // namespace

ServerTokenizer::ServerTokenizer(std::shared_ptr<ModelServer> server, std::uint64_t identity, std::int32_t size)
    : Tokenizer(identity), server_(std::move(server)), size_(size) {}

std::vector<TokenId> ServerTokenizer::ask(std::string_view text, bool special, bool template_tokens,
                                          const std::stop_token& stop) const {
  if (text.empty() && !template_tokens) return {};
  RequestBody body;
  body.set("content", utf8::repaired(text)).set("add_special", template_tokens).set("parse_special", special);
  const JsonDocument answer = server_->fetch("/tokenize", body.text(), stop);
  try {
    const std::string origin = "its answer to /tokenize";
    const JsonFields fields(*answer, origin);
    if (fields.find("tokens") == nullptr) fields.fail("tokens", "expected a list of ids");
    return fields.integers("tokens", 0, size_ - 1);
  } catch (const ModelError& error) {
    throw BackendError(server_->problem(error.what()));
  }
}

std::vector<TokenId> ServerTokenizer::encode(std::string_view text, SpecialTokens special,
                                             const std::stop_token& stop) const {
  return ask(text, special == SpecialTokens::recognise, false, stop);
}

std::vector<TokenId> ServerTokenizer::encode_with_template(std::string_view text, const std::stop_token& stop) const {
  return ask(text, true, true, stop);
}

std::string ServerTokenizer::text_of(std::span<const TokenId> ids) const {
  if (ids.empty()) return {};
  const JsonDocument answer = server_->fetch("/detokenize", RequestBody().set("tokens", ids).text());
  const std::string origin = "its answer to /detokenize";
  try {
    return JsonFields(*answer, origin).text_or("content", "");
  } catch (const ModelError& error) {
    throw BackendError(server_->problem(error.what()));
  }
}

std::string ServerTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<TokenId> known;
  for (const TokenId id : ids) {
    if (id >= 0 && id < size_ && !(skip_special && is_special(id))) known.push_back(id);
  }
  return text_of(known);
}

std::string ServerTokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= size_ || is_special(id)) return {};
  std::string text = text_of(std::array{id});
  if (text.find(utf8::kReplacement) != std::string::npos)
    throw ModelError(server_->problem(fmt::format("token {} is a part of a character, which it does not tell", id)));
  return text;
}

void ServerTokenizer::read_tokens(const ReadToken&, const std::stop_token&) const {
  throw ModelError(server_->problem("its vocabulary cannot be read token by token"));
}

std::optional<TokenId> ServerTokenizer::token_id(std::string_view token) const {
  const std::vector<TokenId> ids = ask(token, true, false, {});
  if (ids.size() != 1 || text_of(ids) != token) return std::nullopt;
  return ids.front();
}

void ServerTokenizer::is_plain(TokenId id) const {
  const std::lock_guard lock(mutex_);
  special_.try_emplace(id, false);
}

/// A special token's text becomes the token where special tokens are recognised, and other tokens where they are not.
/// What the server does not tell counts as special: such tokens are handed on as text.
bool ServerTokenizer::is_special(TokenId id) const {
  if (id < 0 || id >= size_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = special_.find(id); known != special_.end()) return known->second;
  }
  bool special = true;
  const bool told = try_to([&] {
    const std::string text = text_of(std::array{id});
    const std::vector<TokenId> alone = {id};
    special = ask(text, true, false, {}) == alone && ask(text, false, false, {}) != alone;
  });
  const std::lock_guard lock(mutex_);
  if (told) special_[id] = special;
  return special;
}

std::unique_ptr<DecodeStream> ServerTokenizer::stream(bool skip_special) const {
  return std::make_unique<LateStream>(*this, skip_special);
}

}  // namespace baton
