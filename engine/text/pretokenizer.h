// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE (GPT-2): each byte is represented by a printable character, so that a vocabulary is
// text.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/hash.h"
#include "engine/text/bpe.h"
#include "engine/text/normalizer.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer_steps.h"

namespace baton::text {

/// Appends, as UTF-8, the character that represents the byte.
void append_byte_character(std::string& out, unsigned char byte);
/// Returns the byte that a character represents, if any.
std::optional<unsigned char> byte_of_character(char32_t c);
/// Returns the bytes that a token's text represents; a text with a character outside the alphabet represents itself.
std::string byte_level_bytes(std::string_view token);

// The "pre_tokenizer" of tokenizer.json, which splits the normalised text into words. BPE never merges across words.

/// A text and its words, in order. A step may split words further, drop words and rewrite the text.
struct Words {
  struct Word {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool starts_text = false;  // the word begins the caller's text
    bool continues = false;    // text that stands before the caller's piece belongs to the same word
  };
  std::string text;
  std::vector<Word> words;
};

/// Immutable and safe from any thread.
class PreTokenizer {
 public:
  /// A null `value` makes the whole text one word. Throws ModelError.
  static PreTokenizer parse(const Json* value, const Where& where);

  /// Throws ModelError for a text that grows too long or needs too many steps.
  void apply(Words& words, TextWork& work) const;

  /// True if the result depends on Word::starts_text, or on Word::continues of the whole text.
  bool marks_texts() const { return marks_texts_; }
  bool marks_words() const { return marks_words_; }

  struct Step {
    virtual ~Step() = default;
    virtual void apply(Words& words, TextWork& work) const = 0;
  };

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const Step>> steps_;
  bool marks_texts_ = false;
  bool marks_words_ = false;
};

// LongestMatch: for every position of a text, the longest text of a set that begins there, in linear time. It is the
// automaton of Aho and Corasick over the reversed texts: read backwards, all texts that begin at a position end there.

/// Immutable and safe from any thread.
class LongestMatch {
 public:
  LongestMatch() = default;
  /// Empty texts match nothing; of equal texts the first one counts.
  explicit LongestMatch(const std::vector<std::string>& texts);

  bool empty() const { return nodes_.size() <= 1; }

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t index = 0;  // index of the text
  };
  /// The longest match at each position that has one, in order; matches may overlap.
  std::vector<Match> find(std::string_view text, TextWork& work) const;

 private:
  struct Node {
    std::uint32_t fallback = 0;  // the longest proper end of this node's text that is a node
    std::int32_t longest = -1;   // the longest text that ends here; -1: none
  };
  std::uint32_t next(std::uint32_t node, unsigned char byte) const;

  std::vector<std::size_t> sizes_;          // bytes of each text
  std::vector<Node> nodes_;                 // node 0 is the root
  std::array<std::uint32_t, 256> first_{};  // the root's edges
  /// (node, byte) -> node, of the other nodes.
  std::unordered_map<std::uint64_t, std::uint32_t, SeededHash> edges_;
};

// Added tokens: searched for in the text before all other steps, the longest token first.

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;   // normalised, and searched for in the normalised text
  bool single_word = false;  // only between word boundaries
  bool lstrip = false;       // includes the spaces before the token
  bool rstrip = false;

  /// Special, or of the form of one: "<tool_call>" and "<|fim_prefix|>" steer a model though they are not special.
  bool is_marker() const;
};

/// Returns where the blanks at the start of a text end.
std::size_t end_of_spaces(std::string_view text);

/// Finds a set of added tokens. Immutable and safe from any thread.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& written)
      : tokens_(std::move(tokens)), written_(written) {}

  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    const AddedToken* token = nullptr;  // nullptr: text between tokens
  };
  /// Returns the parts of the text in order. With `skip_markers`, markers count as text. Linear time.
  std::vector<Part> split(std::string_view text, bool skip_markers, TextWork& work) const;

 private:
  std::vector<AddedToken> tokens_;
  LongestMatch written_;
};

/// Reads "added_tokens" and adds the tokens to the vocabulary. Throws ModelError.
std::vector<AddedToken> parse_added_tokens(const Json* list, Vocabulary& vocabulary, const Where& where);

/// The two finders: one for the original text, and one for the normalised text.
struct AddedTokens {
  AddedTokenFinder raw;
  AddedTokenFinder normalized;
};
/// `work`: of normalising them all.
AddedTokens make_finders(const std::vector<AddedToken>& tokens, const Normalizer& normalizer, TextWork& work);

}  // namespace baton::text
