// SPDX-License-Identifier: Apache-2.0
#include "engine/model/gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "engine/base/hash.h"
#include "engine/base/json_fields.h"
#include "engine/base/utf8.h"
#include "engine/model/word_rules.h"
#include "engine/text/bpe.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer_steps.h"

namespace baton {
namespace {

const std::string kTokens = "tokenizer.ggml.tokens", kTypes = "tokenizer.ggml.token_type",
                  kScores = "tokenizer.ggml.scores", kMerges = "tokenizer.ggml.merges", kModel = "tokenizer.ggml.model",
                  kPre = "tokenizer.ggml.pre";
constexpr const char* kSpaceMark = "\u2581";  // SentencePiece's stand-in for a space

enum class TokenType : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

/// The tokens of the file, checked: texts, types, ids.
struct Tokens {
  std::vector<std::string_view> texts;
  std::vector<TokenType> types;
};

Tokens read_tokens(const GgufMetadata& metadata) {
  Tokens tokens;
  tokens.texts = metadata.texts(kTokens);
  if (tokens.texts.empty() || tokens.texts.size() > 16'000'000) metadata.fail(kTokens, "expected 1 to 16000000 tokens");
  tokens.types.assign(tokens.texts.size(), TokenType::normal);
  if (metadata.contains(kTypes)) {
    const std::vector<std::int64_t> types = metadata.integers(kTypes);
    if (types.size() != tokens.texts.size())
      metadata.fail(kTypes, fmt::format("expected {} entries, one for each token", tokens.texts.size()));
    for (std::size_t id = 0; id < types.size(); ++id) {
      if (types[id] < 1 || types[id] > 6)
        metadata.fail(kTypes, fmt::format("with {} at {}, expected 1 to 6", types[id], id));
      tokens.types[id] = static_cast<TokenType>(types[id]);
    }
  }
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (!utf8::is_valid(tokens.texts[id])) metadata.fail(kTokens, fmt::format("whose token {} is not UTF-8", id));
  return tokens;
}

/// An id that the metadata names, or -1.
std::int64_t special_id(const GgufMetadata& metadata, const std::string& which, std::size_t tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", which);
  if (!metadata.contains(key)) return -1;
  return metadata.integer(key, 0, static_cast<std::int64_t>(tokens) - 1);
}

void pass_used(const Tokens& tokens, const text::BpeTables::TakeToken& take) {
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (tokens.types[id] != TokenType::unused) take(tokens.texts[id], static_cast<TokenId>(id));
}

/// True for Phi-3, whose special tokens take the blanks behind them; files do not say so. llama.cpp goes by the name,
/// too.
bool takes_blanks(const GgufMetadata& metadata, std::string_view token) {
  std::string name = metadata.text_or("general.name", "");
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const bool phi3 = name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
  return phi3 && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

Json added_tokens(const GgufMetadata& metadata, const Tokens& tokens) {
  Json added = Json::array();
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    const TokenType type = tokens.types[id];
    const bool special = type == TokenType::control || type == TokenType::unknown;
    if ((!special && type != TokenType::user_defined) || tokens.texts[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", std::string(tokens.texts[id])},
                     {"special", special},
                     {"normalized", false},
                     {"rstrip", takes_blanks(metadata, tokens.texts[id])}});
  }
  return added;
}

/// The tokens around a single text.
Json template_of(const GgufMetadata& metadata, const Tokens& tokens, bool bos, bool eos) {
  Json single = Json::array(), specials = Json::object();
  const auto add = [&](const std::string& which) {
    const std::int64_t id = special_id(metadata, which, tokens.texts.size());
    if (id < 0) return;
    single.push_back({{"SpecialToken", {{"id", which}, {"type_id", 0}}}});
    specials[which] = {{"id", which}, {"ids", {static_cast<std::uint64_t>(id)}}};
  };
  if (metadata.flag_or("tokenizer.ggml.add_bos_token", bos)) add("bos");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (metadata.flag_or("tokenizer.ggml.add_eos_token", eos)) add("eos");
  if (single.size() == 1) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", specials}};
}

/// `changed`: takes the place of the file's rule; empty: nothing does.
const WordRule& word_rule(const GgufMetadata& metadata, const std::string& changed) {
  const std::string name = changed.empty() ? metadata.text_or(kPre, "default") : changed;
  if (const WordRule* rule = find_word_rule(name)) return *rule;
  std::vector<std::string_view> names;
  for (const WordRule& rule : word_rules()) names.push_back(rule.name);
  const std::string expected = fmt::format("expected one of {}", fmt::join(names, ", "));
  if (changed.empty()) metadata.fail(kPre, expected);
  throw ModelError(
      fmt::format("{}: {} beside the file is {}, {}", metadata.origin(), kPre, describe(Json(changed)), expected));
}

Json byte_level_json(const GgufMetadata& metadata, const Tokens& tokens, const WordRule& rule) {
  Json steps = word_steps(rule);
  steps["pretokenizers"].push_back({{"type", "ByteLevel"},
                                    {"add_prefix_space", metadata.flag_or("tokenizer.ggml.add_space_prefix", false)},
                                    {"use_regex", false}});

  return {{"added_tokens", added_tokens(metadata, tokens)},
          {"normalizer", rule.composed ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", std::move(steps)},
          {"post_processor", template_of(metadata, tokens, rule.bos, false)},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"ignore_merges", rule.whole_words}}}};
}

text::BpeTables::Merges merges_by_rank(const GgufMetadata& metadata) {
  std::vector<std::string_view> texts = metadata.texts(kMerges);
  const std::size_t size = texts.size();
  return {size, [&metadata, texts = std::move(texts)](std::size_t rank) {
            const auto merge = utf8::is_valid(texts[rank]) ? text::parse_merge(texts[rank]) : std::nullopt;
            if (!merge)
              metadata.fail(
                  kMerges, fmt::format("whose entry {} is {}, expected \"a b\" in UTF-8", rank, describe(texts[rank])));
            return *merge;
          }};
}

/// SentencePiece stores no merges but scores: two neighbours merge when their text joined is a token, the highest score
/// first. In the order in which Transformers converts such a model.
text::BpeTables::Merges merges_by_score(const GgufMetadata& metadata, const Tokens& tokens,
                                        const text::Vocabulary& vocabulary) {
  const std::vector<float> scores = metadata.numbers(kScores);
  if (scores.size() != tokens.texts.size())
    metadata.fail(kScores, fmt::format("expected {} entries, one for each token", tokens.texts.size()));
  const auto part_of = [&](std::string_view text) -> std::optional<TokenId> {
    const auto id = vocabulary.id(text);
    const TokenType type = id ? tokens.types[static_cast<std::size_t>(*id)] : TokenType::unused;
    return type == TokenType::normal || type == TokenType::user_defined ? id : std::nullopt;
  };

  struct Found {
    float score;
    TokenId left, right;
  };
  std::vector<Found> merges;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    constexpr std::size_t kMaxBytes = 1024;  // bytes; what is tried grows with the square of the length
    const std::string_view text = tokens.texts[id];
    if (tokens.types[id] != TokenType::normal || text.empty() || text.size() > kMaxBytes) continue;
    for (std::size_t cut = utf8::at(text, 0).bytes; cut < text.size(); cut += utf8::at(text, cut).bytes) {
      const auto left = part_of(text.substr(0, cut)), right = part_of(text.substr(cut));
      if (left && right) merges.push_back({scores[id], *left, *right});
    }
  }
  const auto text_of = [&tokens](TokenId id) { return tokens.texts[static_cast<std::size_t>(id)]; };
  std::ranges::sort(merges, [&](const Found& a, const Found& b) {
    const auto order = [&](const Found& m) {
      return std::tuple(-m.score, -static_cast<std::int64_t>(text_of(m.left).size()),
                        -static_cast<std::int64_t>(text_of(m.right).size()), m.left, m.right);
    };
    return order(a) < order(b);
  });
  const std::size_t size = merges.size();
  return {size, [text_of, merges = std::move(merges)](std::size_t rank) {
            return text::Merge(text_of(merges[rank].left), text_of(merges[rank].right));
          }};
}

Json sentence_piece_json(const GgufMetadata& metadata, const Tokens& tokens) {
  const bool prefix = metadata.flag_or("tokenizer.ggml.add_space_prefix", true);
  Json normalizers = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
  Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});

  const bool has_bytes = std::ranges::find(tokens.types, TokenType::byte) != tokens.types.end();
  Json model = {{"type", "BPE"}, {"byte_fallback", has_bytes}, {"fuse_unk", true}};
  if (const std::int64_t unknown = special_id(metadata, "unknown", tokens.texts.size()); unknown >= 0)
    model["unk_token"] = std::string(tokens.texts[static_cast<std::size_t>(unknown)]);
  return {{"added_tokens", added_tokens(metadata, tokens)},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", template_of(metadata, tokens, true, false)},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
          {"model", std::move(model)}};
}

/// The same for the same tokenizer, whatever else the file holds.
std::uint64_t identity_of(const GgufMetadata& metadata, const std::string& rule) {
  std::uint64_t hash = rule.empty() ? 0 : hash_bytes(rule.data(), rule.size());
  for (const std::string& key : metadata.keys()) {
    if (!key.starts_with("tokenizer.ggml.")) continue;
    const GgufValue& value = *metadata.find(key);
    hash = hash_bytes(key.data(), key.size(), hash);
    hash = hash_bytes(value.bytes.data(), value.bytes.size(), hash);
  }
  return hash;
}

/// The rule that files of an architecture usually name; empty: several are usual.
std::string_view usual_rule(const std::string& architecture) {
  constexpr std::pair<std::string_view, std::string_view> kUsual[] = {
      {"qwen2", "qwen2"},     {"qwen2moe", "qwen2"},        {"qwen3", "qwen2"}, {"qwen3moe", "qwen2"},
      {"qwen3next", "qwen2"}, {"llama", "llama-bpe"},       {"phi3", "gpt-4o"}, {"gpt-oss", "gpt-4o"},
      {"mistral3", "tekken"}, {"deepseek2", "deepseek-v3"},
  };
  const auto* found = std::ranges::find(kUsual, architecture, [](const auto& one) { return one.first; });
  return found == std::end(kUsual) ? std::string_view() : found->second;
}

/// Texts of some two thousand tokens from all over the vocabulary, those that are whole characters.
std::vector<std::string> sample_of(const Tokens& tokens) {
  constexpr std::size_t kSample = 2048;
  std::vector<std::string> sample;
  const std::size_t stride = std::max<std::size_t>(1, tokens.texts.size() / kSample);
  for (std::size_t id = stride / 2; id < tokens.texts.size(); id += stride) {
    if (tokens.types[id] != TokenType::normal) continue;
    std::string text = text::byte_level_bytes(tokens.texts[id]);
    if (text.size() > 1 && utf8::is_valid(text)) sample.push_back(std::move(text));
  }
  return sample;
}

/// Empty: nothing speaks against the rule.
std::string doubt_about(const WordRule& rule, const GgufMetadata& metadata, const Tokens& tokens, bool is_missing) {
  const std::string architecture = metadata.text_or("general.architecture", "");
  const BetterRule better = better_rule(rule, sample_of(tokens), usual_rule(architecture));
  if (better.rule == nullptr) return "";
  return fmt::format(
      "words are probably not cut as the model knows them: the rule \"{}\"{} divides {:.1f} % of the vocabulary's "
      "tokens, "
      "and \"{}\" {:.1f} %",
      rule.name, is_missing ? fmt::format(", as {} is missing,", kPre) : "", 100.0 * better.given_cut,
      better.rule->name, 100.0 * better.cut);
}

}  // namespace

std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufMetadata& metadata, const std::string& rule,
                                                std::string* doubt) {
  const std::string model = metadata.text(kModel);
  if (model != "gpt2" && model != "llama" && model != "gemma4")
    metadata.fail(kModel, "expected gpt2 (byte-level BPE), llama (SentencePiece BPE) or gemma4 (the same with merges)");
  const bool byte_level = model == "gpt2", has_scores = model == "llama";
  const Tokens tokens = read_tokens(metadata);
  const WordRule* words = byte_level ? &word_rule(metadata, rule) : nullptr;
  const Json json = byte_level ? byte_level_json(metadata, tokens, *words) : sentence_piece_json(metadata, tokens);
  if (byte_level && doubt != nullptr)
    *doubt = doubt_about(*words, metadata, tokens, rule.empty() && !metadata.contains(kPre));
  const text::BpeTables tables{[&](const text::BpeTables::TakeToken& take) { pass_used(tokens, take); },
                               [&](const text::Vocabulary& vocabulary) {
                                 return has_scores ? merges_by_score(metadata, tokens, vocabulary)
                                                   : merges_by_rank(metadata);
                               }};
  return text::make_tokenizer(json, tables, metadata.origin() + ": metadata as tokenizer.json",
                              identity_of(metadata, byte_level ? rule : ""));
}

std::string gguf_special_text(const GgufMetadata& metadata, const std::string& which) {
  if (!metadata.contains(kTokens)) return "";
  const std::vector<std::string_view> tokens = metadata.texts(kTokens);
  const std::int64_t id = special_id(metadata, which, tokens.size());
  return id < 0 ? "" : std::string(tokens[static_cast<std::size_t>(id)]);
}

}  // namespace baton
