// SPDX-License-Identifier: Apache-2.0
// Reads the "model" of a tokenizer.json.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"
#include "engine/text/bpe.h"

namespace baton::text {
namespace {

/// "a b" or ["a", "b"].
std::pair<std::string, std::string> parse_pair(const Json& value, const Where& where) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  }
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  where.fail("a merge must be \"a b\" or [\"a\", \"b\"]");
}

void reject_affix(const Json& model, const char* key, const Where& where) {
  if (!optional_string(model, key, where).value_or("").empty()) where.fail(fmt::format("'{}' is not supported", key));
}

}  // namespace

Bpe::Bpe(const Json& model, Vocabulary& vocabulary, const Where& where) {
  // Files of the earliest versions have no type.
  const std::string type = optional_string(model, "type", where).value_or("BPE");
  if (type != "BPE") where.fail(fmt::format("the model type {} is not supported", in_quotes(type)));
  reject_affix(model, "continuing_subword_prefix", where);
  reject_affix(model, "end_of_word_suffix", where);
  if (const Json* dropout = find(model, "dropout", where)) {
    if (!dropout->is_number() || dropout->get<double>() != 0.0) where.fail("'dropout' is not supported");
  }
  fuse_unknown_ = bool_member(model, "fuse_unk", false, where);
  read_vocabulary(model, vocabulary, where);
  read_merges(model, vocabulary, where);
}

void Bpe::read_vocabulary(const Json& model, Vocabulary& vocabulary, const Where& where) {
  const Json& tokens = member(model, "vocab", where);
  const Where inside = where.in("vocab");
  if (!tokens.is_object() || tokens.empty()) inside.fail("expected an object of tokens and their ids");
  low_characters_.fill(-1);
  for (const auto& [token, id] : tokens.items()) {
    vocabulary.add(token, index_of(id, id_limit(tokens.size()), inside.in(in_quotes(token))), inside);
  }
  const bool ignore_merges = bool_member(model, "ignore_merges", false, where);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string* token = vocabulary.token(id);
    if (token == nullptr || token->empty()) continue;
    if (ignore_merges) words_.emplace(*token, id);
    const auto [c, bytes] = utf8::at(*token, 0);
    if (bytes != token->size()) continue;
    if (c < low_characters_.size()) {
      low_characters_[c] = id;
    } else {
      characters_.emplace(c, id);
    }
  }
  if (bool_member(model, "byte_fallback", false, where)) {
    bytes_.emplace();
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto id = vocabulary.id(fmt::format("<0x{:02X}>", byte));
      if (!id) where.fail(fmt::format("byte_fallback needs the token <0x{:02X}>, which is missing", byte));
      (*bytes_)[byte] = *id;
    }
  }
  if (const auto token = optional_string(model, "unk_token", where)) {
    unknown_ = vocabulary.id(*token);
    if (!unknown_) where.fail(fmt::format("the unk_token {} is not in the vocabulary", in_quotes(*token)));
  }
}

void Bpe::read_merges(const Json& model, const Vocabulary& vocabulary, const Where& where) {
  const Json& merges = array_member(model, "merges", where);
  merges_ = MergeTable(merges.size());
  merged_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const Json& merge : merges) {
    const Where inside = where.in("merges").in(rank);
    const auto [left, right] = parse_pair(merge, inside);
    const auto id_of = [&](const std::string& token) {
      const auto id = vocabulary.id(token);
      if (!id) inside.fail(fmt::format("the token {} is not in the vocabulary", in_quotes(token)));
      return *id;
    };
    merged_.push_back(id_of(left + right));
    merges_.set(id_of(left), id_of(right), {rank++, merged_.back()});
  }
}

}  // namespace baton::text
