// SPDX-License-Identifier: Apache-2.0
// Reads the "model" of a tokenizer.json.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"
#include "engine/text/bpe.h"

namespace baton::text {
namespace {

/// "a b" or ["a", "b"].
Merge merge_of(const Json& value, const Where& where) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>()};
  if (value.is_string()) {
    if (const auto merge = parse_merge(value.get_ref<const std::string&>())) return *merge;
  }
  where.fail("a merge must be \"a b\" or [\"a\", \"b\"]");
}

void reject_affix(const Json& model, const char* key, const Where& where) {
  if (!optional_string(model, key, where).value_or("").empty()) where.fail(fmt::format("'{}' is not supported", key));
}

}  // namespace

std::optional<Merge> parse_merge(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return std::nullopt;
  return Merge(text.substr(0, space), text.substr(space + 1));
}

BpeTables tables_of(const Json& model, const Where& where) {
  BpeTables tables;
  const Json& tokens = member(model, "vocab", where);
  const Where in_vocabulary = where.in("vocab");
  if (!tokens.is_object()) in_vocabulary.fail("expected an object of tokens and their ids");
  tables.tokens.reserve(tokens.size());
  const TokenId limit = id_limit(tokens.size());
  for (const auto& [token, id] : tokens.get_ref<const Json::object_t&>())
    tables.tokens.push_back({token, index_of(id, limit, in_vocabulary.in(in_quotes(token)))});
  const Json& merges = array_member(model, "merges", where);
  tables.merges = [&merges, inside = where.in("merges")](const Vocabulary&) {
    return BpeTables::Merges{merges.size(),
                             [&merges, inside](std::size_t rank) { return merge_of(merges[rank], inside.in(rank)); }};
  };
  return tables;
}

Bpe::Bpe(const Json& model, const BpeTables& tables, Vocabulary& vocabulary, const Where& where) {
  // Files of the earliest versions have no type.
  const std::string type = optional_string(model, "type", where).value_or("BPE");
  if (type != "BPE") where.fail(fmt::format("the model type {} is not supported", in_quotes(type)));
  reject_affix(model, "continuing_subword_prefix", where);
  reject_affix(model, "end_of_word_suffix", where);
  if (const Json* dropout = find(model, "dropout", where)) {
    if (!dropout->is_number() || dropout->get<double>() != 0.0) where.fail("'dropout' is not supported");
  }
  fuse_unknown_ = bool_member(model, "fuse_unk", false, where);
  add_tokens(tables, model, vocabulary, where);
  add_merges(tables, vocabulary, where);
}

void Bpe::add_tokens(const BpeTables& tables, const Json& model, Vocabulary& vocabulary, const Where& where) {
  const Where inside = where.in("vocab");
  if (tables.tokens.empty()) inside.fail("expected an object of tokens and their ids");
  low_characters_.fill(-1);
  for (const BpeTables::Token& token : tables.tokens) vocabulary.add(token.text, token.id, inside);
  const bool ignore_merges = bool_member(model, "ignore_merges", false, where);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto token = vocabulary.token(id);
    if (!token || token->empty()) continue;
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

void Bpe::add_merges(const BpeTables& tables, const Vocabulary& vocabulary, const Where& where) {
  const BpeTables::Merges merges = tables.merges(vocabulary);
  merges_ = MergeTable(merges.size);
  merged_.reserve(merges.size);
  std::string joined;
  for (std::uint32_t rank = 0; rank < merges.size; ++rank) {
    const auto [left, right] = merges.at(rank);
    const auto id_of = [&](std::string_view token) {
      const auto id = vocabulary.id(token);
      if (!id) where.in("merges").in(rank).fail(fmt::format("the token {} is not in the vocabulary", in_quotes(token)));
      return *id;
    };
    joined = left;
    joined += right;
    merged_.push_back(id_of(joined));
    merges_.set(id_of(left), id_of(right), rank);
  }
}

}  // namespace baton::text
