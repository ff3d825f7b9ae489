// SPDX-License-Identifier: Apache-2.0
// The "post_processor" of tokenizer.json, which adds tokens around a single text, such as a BOS.
#include "engine/text/tokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/json_fields.h"
#include "engine/base/utf8.h"
#include "engine/text/bpe.h"
#include "engine/text/normalizer.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/token_decoder.h"

namespace baton::text {

struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

/// A null `value` adds no tokens. Throws ModelError.
PostProcessor parse_post_processor(const Json* value, const Vocabulary& vocabulary, const Where& where);

namespace {

constexpr int kMaxProcessorDepth = 16;

/// Returns the ids of a special token of a template.
std::vector<TokenId> template_ids(const Json& value, const std::string& name, const Vocabulary& vocabulary,
                                  const Where& where) {
  const Where inside = where.in("special_tokens");
  const Json& token = member(member(value, "special_tokens", where), name.c_str(), inside);
  std::vector<TokenId> out;
  for (const Json& id : array_member(token, "ids", inside.in(name))) {
    out.push_back(index_of(id, vocabulary.size(), inside.in(name)));
  }
  return out;
}

void add_template(PostProcessor& out, const Json& value, const Vocabulary& vocabulary, const Where& where) {
  std::vector<TokenId> before, after;
  bool text_seen = false;
  const Where single = where.in("single");
  for (const Json& part : array_member(value, "single", where)) {
    if (const Json* token = find(part, "SpecialToken", single)) {
      const auto ids = template_ids(value, string_member(*token, "id", single), vocabulary, where);
      auto& side = text_seen ? after : before;
      side.insert(side.end(), ids.begin(), ids.end());
    } else if (const Json* sequence = find(part, "Sequence", single)) {
      if (text_seen || string_member(*sequence, "id", single) != "A")
        single.fail("expected the sequence 'A' exactly once");
      text_seen = true;
    } else {
      single.fail("expected a SpecialToken or a Sequence");
    }
  }
  if (!text_seen) single.fail("the sequence 'A' is missing");
  out.before.insert(out.before.begin(), before.begin(), before.end());
  out.after.insert(out.after.end(), after.begin(), after.end());
}

void add(PostProcessor& out, const Json& value, const Vocabulary& vocabulary, const Where& where, int depth) {
  const std::string type = string_member(value, "type", where);
  if (type == "Sequence") {
    if (depth == kMaxProcessorDepth) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "processors", where)) {
      add(out, part, vocabulary, where.in("processors").in(i++), depth + 1);
    }
  } else if (type == "TemplateProcessing") {
    add_template(out, value, vocabulary, where);
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    where.fail(fmt::format("the post_processor {} is not supported", in_quotes(type)));
  }
}

}  // namespace

PostProcessor parse_post_processor(const Json* value, const Vocabulary& vocabulary, const Where& where) {
  PostProcessor out;
  if (value != nullptr) add(out, *value, vocabulary, where, 0);
  return out;
}

}  // namespace baton::text

namespace baton {
namespace {

using text::Json;
using text::Where;

class BpeTokenizer;

class BpeDecodeStream : public DecodeStream {
 public:
  BpeDecodeStream(const BpeTokenizer& tokenizer, bool skip_special);
  std::string push(TokenId id) override;
  std::string finish() override;

 private:
  const BpeTokenizer& tokenizer_;
  text::TokenDecoder::Run run_;
  bool skip_special_;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(const Json& json, const text::BpeTables& tables, const Where& root, std::uint64_t identity)
      : Tokenizer(identity),
        origin_(root.origin),
        bpe_(text::member(json, "model", root), tables, vocabulary_, root.in("model")),
        normalizer_(text::Normalizer::parse(text::find(json, "normalizer", root), root.in("normalizer"))),
        pre_tokenizer_(text::PreTokenizer::parse(text::find(json, "pre_tokenizer", root), root.in("pre_tokenizer"))),
        decoder_(text::TokenDecoder::parse(text::find(json, "decoder", root), root.in("decoder"))) {
    const auto added =
        text::parse_added_tokens(text::find(json, "added_tokens", root), vocabulary_, root.in("added_tokens"));
    std::size_t added_bytes = 0;
    for (const text::AddedToken& token : added) added_bytes += token.content.size();
    text::TextWork work(origin_, added_bytes);
    for (const text::AddedToken& token : added) {
      // `tokenizers` decodes such a token to its normalised form.
      text::Normalizer::Start unused;
      if (token.normalized) normalized_[token.id] = normalizer_.apply(token.content, unused, work);
      if (token.special) special_.insert(token.id);
      added_starts_[token.id] = canonical({false, !token.normalized, true, token.rstrip});
      if (token.is_marker()) bpe_.never_whole(token.content);
    }
    added_ = text::make_finders(added, normalizer_, work);
    around_ =
        text::parse_post_processor(text::find(json, "post_processor", root), vocabulary_, root.in("post_processor"));
  }

  std::vector<TokenId> encode_piece(std::string_view piece, SpecialTokens special, PieceStart start,
                                    const std::stop_token& stop) const override {
    std::vector<TokenId> ids;
    encode_to(ids, piece, special, start, stop);
    return ids;
  }

  PieceStart start_after(TokenId last) const override {
    const auto found = added_starts_.find(last);
    return found != added_starts_.end() ? found->second : start_inside();
  }
  PieceStart start_inside() const override { return canonical({false, false, false, false}); }

  std::vector<TokenId> encode_with_template(std::string_view input, const std::stop_token& stop) const override {
    std::vector<TokenId> ids = around_.before;
    encode_to(ids, input, SpecialTokens::recognise, {}, stop);
    ids.insert(ids.end(), around_.after.begin(), around_.after.end());
    return ids;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    BpeDecodeStream run(*this, skip_special);
    std::string out;
    for (const TokenId id : ids) out += run.push(id);
    return out += run.finish();
  }

  std::string token_bytes(TokenId id) const override {
    const auto shown = token(id);
    if (!shown || is_special(id)) return {};
    text::TextWork work = work_of_token(*shown);
    return decoder_.bytes(std::string(*shown), work);
  }

  void read_tokens(const ReadToken& read, const std::stop_token& stop) const override {
    std::size_t size_of_all = 0;
    for (TokenId id = 0; id < size(); ++id) size_of_all += token(id).value_or("").size();
    text::TextWork all = text::TextWork::of_vocabulary(origin_, size_of_all, stop);
    std::size_t made = 0;
    for (TokenId id = 0; id < size(); ++id) {
      const auto shown = token(id);
      all.spend(1);
      if (!shown || is_special(id)) {
        read(id, {}, {});
        continue;
      }
      text::TextWork work = work_of_token(*shown, stop);
      const std::string bytes = decoder_.bytes(std::string(*shown), work);
      std::string first = bytes;
      if (bytes.starts_with(' ')) {  // some tokenizers drop it there
        text::TokenDecoder::Run run(decoder_);
        first.clear();
        run.push(*shown, first, work);
        run.finish(first, work);
      }
      all.spend(work.spent());
      all.check_size(made += std::max(bytes.size(), first.size()));
      read(id, bytes, first);
    }
  }

  std::optional<TokenId> token_id(std::string_view token) const override { return vocabulary_.id(token); }
  bool is_special(TokenId id) const override { return special_.contains(id); }
  std::int32_t size() const override { return vocabulary_.size(); }

  std::unique_ptr<DecodeStream> stream(bool skip_special) const override {
    return std::make_unique<BpeDecodeStream>(*this, skip_special);
  }

  const text::TokenDecoder& decoder() const { return decoder_; }
  text::TextWork work_of_token(std::string_view token, const std::stop_token& stop = {}) const {
    return text::TextWork::of_token(origin_, token.size(), stop);
  }
  /// Returns the text that a token is decoded to.
  std::optional<std::string_view> token(TokenId id) const {
    const auto it = normalized_.find(id);
    return it == normalized_.end() ? vocabulary_.token(id) : it->second;
  }

 private:
  /// The same start, without differences that this tokenizer makes nothing of.
  PieceStart canonical(PieceStart start) const {
    start.text = start.text || !pre_tokenizer_.marks_texts();
    start.part = start.part || !normalizer_.changes_starts();
    start.word = start.word || !pre_tokenizer_.marks_words();
    return start;
  }

  void encode_to(std::vector<TokenId>& ids, std::string_view input, SpecialTokens special, PieceStart start,
                 const std::stop_token& stop) const {
    const std::string fixed = utf8::is_valid(input) ? std::string() : utf8::repaired(input);
    std::string_view valid = fixed.empty() ? input : std::string_view(fixed);
    if (start.drops_blanks) valid.remove_prefix(text::end_of_spaces(valid));
    const bool skip_markers = special == SpecialTokens::as_text;
    text::TextWork work(origin_, valid.size(), stop);
    for (const auto& part : added_.raw.split(valid, skip_markers, work)) {
      if (part.token != nullptr) {
        ids.push_back(part.token->id);
        continue;
      }
      text::Bpe::Scratch scratch;  // released before the next part is normalised
      const bool first = part.begin == 0;
      text::Normalizer::Start at_start{first && start.text, first && !start.part};
      const std::string normal = normalizer_.apply(valid.substr(part.begin, part.end - part.begin), at_start, work);
      for (const auto& piece : added_.normalized.split(normal, skip_markers, work)) {
        if (piece.token != nullptr) {
          ids.push_back(piece.token->id);
          continue;
        }
        text::Words words{normal.substr(piece.begin, piece.end - piece.begin), {}};
        const bool continues = first && piece.begin == 0 && !start.word;
        words.words.push_back({0, words.text.size(), at_start.kept && piece.begin == 0, continues});
        pre_tokenizer_.apply(words, work);
        for (const auto& word : words.words) {
          bpe_.encode(std::string_view(words.text).substr(word.begin, word.end - word.begin), ids, scratch, work);
        }
      }
    }
  }

  std::string origin_;  // for messages
  text::Vocabulary vocabulary_;
  text::Bpe bpe_;
  text::Normalizer normalizer_;
  text::PreTokenizer pre_tokenizer_;
  text::TokenDecoder decoder_;
  std::unordered_set<TokenId, SeededHash> special_;
  text::AddedTokens added_;
  std::unordered_map<TokenId, PieceStart, SeededHash> added_starts_;  // of pieces behind added tokens
  /// Added tokens that are searched for in the normalised text.
  std::unordered_map<TokenId, std::string, SeededHash> normalized_;
  text::PostProcessor around_;
};

BpeDecodeStream::BpeDecodeStream(const BpeTokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), run_(tokenizer.decoder()), skip_special_(skip_special) {}

std::string BpeDecodeStream::push(TokenId id) {
  std::string out;
  const auto token = tokenizer_.token(id);
  if (token && !(skip_special_ && tokenizer_.is_special(id))) {
    text::TextWork work = tokenizer_.work_of_token(*token);
    run_.push(*token, out, work);
  }
  return out;
}

std::string BpeDecodeStream::finish() {
  std::string out;
  text::TextWork work = tokenizer_.work_of_token({});
  run_.finish(out, work);
  return out;
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::parse(std::string_view json, const std::string& origin) {
  const JsonDocument root = parse_json(json, origin);
  const Where where{origin, ""};
  const text::BpeTables tables = text::tables_of(text::member(*root, "model", where), where.in("model"));
  return text::make_tokenizer(*root, tables, origin, hash_bytes(json.data(), json.size()));
}

std::shared_ptr<const Tokenizer> text::make_tokenizer(const Json& json, const BpeTables& tables,
                                                      const std::string& origin, std::uint64_t identity) {
  return std::make_shared<BpeTokenizer>(json, tables, Where{origin, ""}, identity);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special) : stream_(tokenizer.stream(skip_special)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(TokenId id) { return stream_->push(id); }
std::string StreamDecoder::finish() { return stream_->finish(); }

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    Stop stop{text, std::vector<std::uint32_t>(text.size(), 0), 0};
    for (std::size_t i = 1; i < text.size(); ++i) {
      std::uint32_t length = stop.border[i - 1];
      while (length > 0 && text[i] != text[length]) length = stop.border[length - 1];
      stop.border[i] = length + (text[i] == text[length] ? 1 : 0);
    }
    stops_.push_back(std::move(stop));
  }
}

/// True when the byte completes the string.
bool StopStrings::Stop::take(char byte) {
  while (matched > 0 && byte != text[matched]) matched = border[matched - 1];
  if (byte == text[matched]) ++matched;
  return matched == text.size();
}

std::string StopStrings::push(std::string_view text) {
  if (found_) return {};
  const std::size_t before = held_.size();
  held_ += text;
  std::size_t certain = std::string::npos, keep = 0;
  for (Stop& stop : stops_) {
    for (std::size_t i = before; i < held_.size(); ++i) {
      if (!stop.take(held_[i])) continue;
      found_ = true;
      certain = std::min(certain, i + 1 - stop.text.size());
      break;
    }
    keep = std::max(keep, stop.matched);
  }
  if (!found_) certain = held_.size() - keep;
  std::string out = held_.substr(0, certain);
  held_ = found_ ? std::string() : held_.substr(certain);
  released_ += out.size();
  return out;
}

std::string StopStrings::finish() {
  released_ += held_.size();
  return std::exchange(held_, {});
}

}  // namespace baton
