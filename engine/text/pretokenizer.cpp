// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pretokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "engine/base/utf8.h"
#include "engine/text/regex.h"

namespace baton::text {
namespace {

constexpr bool prints_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 256 + 68> byte{};  // the 68 bytes that are not printable Latin-1 map to U+0100 and up

  constexpr Alphabet() {
    for (auto& entry : byte) entry = -1;
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = prints_itself(b) ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

void append_byte_character(std::string& out, unsigned char byte) { utf8::append(out, kAlphabet.character[byte]); }

std::optional<unsigned char> byte_of_character(char32_t c) {
  if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kAlphabet.byte[c]);
}

std::string byte_level_bytes(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    const auto [c, bytes] = utf8::at(token, i);
    const auto byte = byte_of_character(c);
    if (!byte) return std::string(token);
    out.push_back(static_cast<char>(*byte));
    i += bytes;
  }
  return out;
}

// Cutting words at the matches of a pattern, and what becomes of the matches.

enum class Matches : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Fails for an unknown behaviour.
Matches parse_behaviour(const std::string& name, const Where& where);

class WordSplit : public PreTokenizer::Step {
 public:
  /// `inverted`: what does not match counts as the match.
  WordSplit(PatternPtr pattern, Matches behaviour, bool inverted)
      : pattern_(std::move(pattern)), behaviour_(behaviour), inverted_(inverted) {}
  void apply(Words& words, TextWork& work) const override;

 private:
  PatternPtr pattern_;
  Matches behaviour_;
  bool inverted_;
};

namespace {

/// Joins spans as the behaviour says; what is to go is taken out.
void arrange(std::vector<Span>& spans, Matches behaviour) {
  switch (behaviour) {
    case Matches::isolated:
      return;
    case Matches::removed:
      std::erase_if(spans, [](const Span& span) { return span.match; });
      return;
    case Matches::merged_with_next:
      std::reverse(spans.begin(), spans.end());
      break;
    case Matches::merged_with_previous:
    case Matches::contiguous:
      break;
  }
  std::size_t kept = 0;
  bool last_matched = false;
  for (const Span& span : spans) {
    const bool join = behaviour == Matches::contiguous ? span.match == last_matched : span.match && !last_matched;
    last_matched = span.match;
    if (join && kept > 0) {
      spans[kept - 1].begin = std::min(spans[kept - 1].begin, span.begin);
      spans[kept - 1].end = std::max(spans[kept - 1].end, span.end);
    } else {
      spans[kept++] = span;
    }
  }
  spans.resize(kept);
  if (behaviour == Matches::merged_with_next) std::reverse(spans.begin(), spans.end());
}

}  // namespace

Matches parse_behaviour(const std::string& name, const Where& where) {
  if (name == "Isolated") return Matches::isolated;
  if (name == "Removed") return Matches::removed;
  if (name == "MergedWithPrevious") return Matches::merged_with_previous;
  if (name == "MergedWithNext") return Matches::merged_with_next;
  if (name == "Contiguous") return Matches::contiguous;
  where.fail(fmt::format("the behaviour {} is not supported", in_quotes(name)));
}

void WordSplit::apply(Words& words, TextWork& work) const {
  std::vector<Words::Word> out;
  std::vector<Span> spans;
  for (const Words::Word& word : words.words) {
    spans.clear();
    work.spend(2);
    pattern_->split(std::string_view(words.text).substr(word.begin, word.end - word.begin), spans, work);
    if (inverted_) {
      for (Span& span : spans) span.match = !span.match;
    }
    arrange(spans, behaviour_);
    work.check_pieces(out.size() + spans.size());
    for (const Span& span : spans) {
      if (span.begin == span.end) continue;
      out.push_back({word.begin + span.begin, word.begin + span.end, word.starts_text && span.begin == 0});
    }
  }
  words.words = std::move(out);
}

namespace {

constexpr int kMaxPretokenizerDepth = 16;
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// \w+|[^\w\s]+ as in Rust's regex crate, whose word characters include the joiners.
constexpr const char* kWords =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

/// Rewrites every word: `rewrite(word, text, out)` appends its replacement.
template <typename Rewrite>
void rewrite_words(Words& words, TextWork& work, const Rewrite& rewrite) {
  std::string out;
  out.reserve(words.text.size() + words.text.size() / 4 + 8);
  for (Words::Word& word : words.words) {
    const std::size_t begin = out.size();
    work.spend(1 + (word.end - word.begin) / 2);
    rewrite(word, std::string_view(words.text).substr(word.begin, word.end - word.begin), out);
    work.check_size(out.size());
    word.begin = begin;
    word.end = out.size();
  }
  words.text = std::move(out);
}

struct PrefixSpace : PreTokenizer::Step {
  void apply(Words& words, TextWork& work) const override {
    rewrite_words(words, work, [](const Words::Word& word, std::string_view text, std::string& out) {
      if (!text.starts_with(' ') && !word.continues) out += ' ';
      out += text;
    });
  }
};

struct ByteCharacters : PreTokenizer::Step {
  void apply(Words& words, TextWork& work) const override {
    rewrite_words(words, work, [](const Words::Word&, std::string_view text, std::string& out) {
      for (const char c : text) append_byte_character(out, static_cast<unsigned char>(c));
    });
  }
};

enum class PrependScheme : std::uint8_t { first, always, never };

struct MetaspaceSplit : PreTokenizer::Step {
  MetaspaceSplit(std::string replacement, PrependScheme prepend) : mark(std::move(replacement)), scheme(prepend) {}
  void apply(Words& words, TextWork& work) const override {
    rewrite_words(words, work, [this](const Words::Word& word, std::string_view text, std::string& out) {
      const bool marked = text.starts_with(' ') || text.starts_with(mark);
      const bool wanted = scheme == PrependScheme::always || (scheme == PrependScheme::first && word.starts_text);
      if (wanted && !marked && !word.continues) out += mark;
      for (const char c : text) {
        if (c == ' ') {
          out += mark;
        } else {
          out += c;
        }
      }
    });
  }
  std::string mark;
  PrependScheme scheme;
};

PrependScheme parse_scheme(const Json& value, const Where& where) {
  if (const auto name = optional_string(value, "prepend_scheme", where)) {
    if (*name == "first") return PrependScheme::first;
    if (*name == "always") return PrependScheme::always;
    if (*name == "never") return PrependScheme::never;
    where.fail(fmt::format("the prepend_scheme {} is not supported", in_quotes(*name)));
  }
  // Older files have add_prefix_space instead of prepend_scheme.
  return bool_member(value, "add_prefix_space", true, where) ? PrependScheme::always : PrependScheme::never;
}

}  // namespace

PreTokenizer PreTokenizer::parse(const Json* value, const Where& where) {
  PreTokenizer out;
  if (value != nullptr) out.add(*value, where, 0);
  return out;
}

void PreTokenizer::add(const Json& value, const Where& where, int depth) {
  const auto split = [this](PatternPtr pattern, Matches behaviour, bool inverted = false) {
    steps_.push_back(std::make_shared<WordSplit>(std::move(pattern), behaviour, inverted));
  };
  // Behind a split, each word gets its blank, so a piece that begins with a word gets one, too.
  const bool is_first = steps_.empty();
  const std::string type = string_member(value, "type", where);
  if (type == "Sequence") {
    if (depth == kMaxPretokenizerDepth) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "pretokenizers", where)) {
      add(part, where.in("pretokenizers").in(i++), depth + 1);
    }
  } else if (type == "ByteLevel") {
    if (bool_member(value, "add_prefix_space", true, where)) {
      steps_.push_back(std::make_shared<PrefixSpace>());
      marks_words_ = marks_words_ || is_first;
    }
    if (bool_member(value, "use_regex", true, where)) split(regex_pattern(kGpt2Pattern, where), Matches::isolated);
    steps_.push_back(std::make_shared<ByteCharacters>());
  } else if (type == "Split") {
    split(parse_pattern(member(value, "pattern", where), where.in("pattern")),
          parse_behaviour(string_member(value, "behavior", where), where), bool_member(value, "invert", false, where));
  } else if (type == "Digits") {
    const bool each = bool_member(value, "individual_digits", false, where);
    split(character_pattern(is_number), each ? Matches::isolated : Matches::contiguous);
  } else if (type == "Punctuation") {
    const auto behaviour = optional_string(value, "behavior", where).value_or("Isolated");
    split(character_pattern(is_punctuation), parse_behaviour(behaviour, where));
  } else if (type == "WhitespaceSplit") {
    split(character_pattern(is_space), Matches::removed);
  } else if (type == "Whitespace") {
    split(regex_pattern(kWords, where), Matches::removed, true);
  } else if (type == "Metaspace") {
    const std::string mark = string_member(value, "replacement", where);
    if (mark.empty() || utf8::at(mark, 0).bytes != mark.size()) where.fail("'replacement' must be one character");
    const PrependScheme scheme = parse_scheme(value, where);
    steps_.push_back(std::make_shared<MetaspaceSplit>(mark, scheme));
    marks_texts_ = marks_texts_ || scheme == PrependScheme::first;
    marks_words_ = marks_words_ || (is_first && scheme == PrependScheme::always);
    if (bool_member(value, "split", true, where)) split(string_pattern(mark, where), Matches::merged_with_next);
  } else {
    where.fail(fmt::format("the pre_tokenizer {} is not supported", in_quotes(type)));
  }
  check_step_count(steps_.size(), where);
}

void PreTokenizer::apply(Words& words, TextWork& work) const {
  for (const auto& step : steps_) step->apply(words, work);
}

namespace {

std::uint64_t edge(std::uint32_t node, unsigned char byte) { return static_cast<std::uint64_t>(node) << 8 | byte; }

}  // namespace

LongestMatch::LongestMatch(const std::vector<std::string>& texts) : nodes_(1) {
  struct Step {
    std::uint32_t node = 0;
    std::uint32_t parent = 0;
    unsigned char byte = 0;
    std::uint32_t depth = 0;
  };
  std::vector<Step> steps;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sizes_.push_back(texts[i].size());
    if (texts[i].empty()) continue;
    std::uint32_t node = 0, depth = 0;
    for (auto at = texts[i].rbegin(); at != texts[i].rend(); ++at) {
      const auto byte = static_cast<unsigned char>(*at);
      std::uint32_t& child = node == 0 ? first_[byte] : edges_[edge(node, byte)];
      ++depth;
      if (child == 0) {
        child = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back();
        steps.push_back({child, node, byte, depth});
      }
      node = child;
    }
    if (nodes_[node].longest < 0) nodes_[node].longest = static_cast<std::int32_t>(i);
  }
  // The fallback of a node needs those of all shorter texts.
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.depth < b.depth; });
  for (const Step& step : steps) {
    Node& node = nodes_[step.node];
    if (step.parent != 0) node.fallback = next(nodes_[step.parent].fallback, step.byte);
    if (node.longest < 0) node.longest = nodes_[node.fallback].longest;
  }
}

std::uint32_t LongestMatch::next(std::uint32_t node, unsigned char byte) const {
  for (; node != 0; node = nodes_[node].fallback) {
    if (const auto it = edges_.find(edge(node, byte)); it != edges_.end()) return it->second;
  }
  return first_[byte];
}

std::vector<LongestMatch::Match> LongestMatch::find(std::string_view text, TextWork& work) const {
  std::vector<Match> out;
  if (empty()) return out;
  std::uint32_t node = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    work.spend(node == 0 ? 1 : 4);
    node = next(node, static_cast<unsigned char>(text[i]));
    const std::int32_t longest = nodes_[node].longest;
    if (longest < 0) continue;
    work.check_pieces(out.size() + 1);
    out.push_back({i, i + sizes_[static_cast<std::size_t>(longest)], longest});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

namespace {

bool word_before(std::string_view text, std::size_t at) {
  return at > 0 && is_word(utf8::at(text, utf8::before(text, at)).value);
}

bool word_after(std::string_view text, std::size_t at) { return at < text.size() && is_word(utf8::at(text, at).value); }

/// Returns where the blanks before `at` begin, looking back to `end` at most.
std::size_t spaces_before(std::string_view text, std::size_t at, std::size_t end) {
  while (at > end && is_space(utf8::at(text, utf8::before(text, at)).value)) at = utf8::before(text, at);
  return std::max(at, end);
}

}  // namespace

std::size_t end_of_spaces(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_space(utf8::at(text, at).value)) at += utf8::at(text, at).bytes;
  return at;
}

namespace {

/// Finds where blanks end, for ascending positions; blanks are read once.
class SpacesAfter {
 public:
  explicit SpacesAfter(std::string_view text) : text_(text) {}
  std::size_t operator()(std::size_t at) {
    end_ = std::max(end_, at);  // everything from an earlier position to end_ is blank
    while (end_ < text_.size() && is_space(utf8::at(text_, end_).value)) end_ += utf8::at(text_, end_).bytes;
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t end_ = 0;
};

}  // namespace

bool AddedToken::is_marker() const {
  const bool named = content.size() > 2 && content.find_first_of(" \t\r\n") == std::string::npos;
  const auto between = [&](char begin, char end) { return content.front() == begin && content.back() == end; };
  return special || (named && (between('<', '>') || between('[', ']')));
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::split(std::string_view text, bool skip_markers,
                                                            TextWork& work) const {
  std::vector<Part> parts;
  SpacesAfter spaces_after(text);
  std::size_t done = 0, at = 0;
  for (const auto& [match, end, index] : written_.find(text, work)) {
    if (match < at) continue;
    work.spend(2);
    work.check_pieces(parts.size() + 2);
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    at = end;  // also for a rejected match, since `tokenizers` does not search inside a match
    if (skip_markers && token.is_marker()) continue;
    if (token.single_word && (word_before(text, match) || word_after(text, end))) continue;
    const std::size_t begin = token.lstrip ? spaces_before(text, match, done) : match;
    if (begin > done) parts.push_back({done, begin, nullptr});
    done = token.rstrip ? spaces_after(end) : end;
    parts.push_back({begin, done, &token});
  }
  if (done < text.size()) parts.push_back({done, text.size(), nullptr});
  return parts;
}

std::vector<AddedToken> parse_added_tokens(const Json* list, Vocabulary& vocabulary, const Where& where) {
  std::vector<AddedToken> out;
  if (list == nullptr) return out;
  if (!list->is_array()) where.fail("expected a list");
  const TokenId limit = id_limit(static_cast<std::size_t>(vocabulary.size()) + list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& value = (*list)[i];
    const Where inside = where.in(i);
    AddedToken token;
    token.content = string_member(value, "content", inside);
    token.id = index_of(member(value, "id", inside), limit, inside.in("id"));
    token.special = bool_member(value, "special", false, inside);
    token.normalized = bool_member(value, "normalized", !token.special, inside);
    token.single_word = bool_member(value, "single_word", false, inside);
    token.lstrip = bool_member(value, "lstrip", false, inside);
    token.rstrip = bool_member(value, "rstrip", false, inside);
    if (token.content.empty()) inside.fail("found an added token without text");
    vocabulary.add(token.content, token.id, inside);
    out.push_back(std::move(token));
  }
  return out;
}

AddedTokens make_finders(const std::vector<AddedToken>& tokens, const Normalizer& normalizer, TextWork& work) {
  std::array<std::vector<AddedToken>, 2> sorted;  // [normalized]
  std::array<std::vector<std::string>, 2> written;
  for (const AddedToken& token : tokens) {
    Normalizer::Start start;
    sorted[token.normalized].push_back(token);
    written[token.normalized].push_back(token.normalized ? normalizer.apply(token.content, start, work)
                                                         : token.content);
  }
  return {AddedTokenFinder(std::move(sorted[0]), written[0]), AddedTokenFinder(std::move(sorted[1]), written[1])};
}

}  // namespace baton::text
