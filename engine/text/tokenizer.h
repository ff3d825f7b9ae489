// SPDX-License-Identifier: Apache-2.0
// Tokenizer: converts text to token ids and back, from a tokenizer.json of Hugging Face with byte-level BPE (GPT-2,
// Llama 3, Qwen) or SentencePiece-style BPE (Llama 2, Mistral, Phi 3). The ids equal those of Hugging Face
// `tokenizers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

using TokenId = std::int32_t;

enum class SpecialTokens : std::uint8_t {
  recognise,  // special tokens in the text become their ids; for text by the author of a prompt
  as_text,    // special tokens, and others between < and > or [ and ] that a tokenizer.json adds to its model's, are
              // plain text; for untrusted text such as questions and tool results
};

/// What stands before a piece of a text, as far as the piece's ids depend on it: some tokenizers put a blank before a
/// text, or before each text behind a special token, and some special tokens take the blanks behind them. The default
/// is a piece that begins a text. Tokenizers make equal ids of a piece with equal starts.
struct PieceStart {
  bool text = true;           // nothing stands before it
  bool part = true;           // nothing does, or an added token that is searched for in the original text
  bool word = true;           // nothing does, or an added token
  bool drops_blanks = false;  // an added token does that takes the blanks behind it
  auto operator<=>(const PieceStart&) const = default;
};

/// The state of one StreamDecoder; each tokenizer defines its form.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  virtual std::string push(TokenId id) = 0;
  virtual std::string finish() = 0;
};

/// Immutable after loading; all members are const and safe from any thread.
class Tokenizer {
 public:
  /// Throws ModelError that names the invalid or unsupported part (model type, normaliser, pre-tokeniser or decoder).
  static std::shared_ptr<const Tokenizer> parse(std::string_view json, const std::string& origin);

  explicit Tokenizer(std::uint64_t identity = 0) : identity_(identity) {}
  virtual ~Tokenizer() = default;

  /// The same for the same tokenizer.json: ids mean the same then.
  std::uint64_t identity() const { return identity_; }

  /// Ids of the text alone: no BOS or EOS is added. Invalid UTF-8 is encoded as U+FFFD, as Python's "replace" does. The
  /// time is bounded by the text's size, whatever text and tokenizer.json hold: throws ModelError if a
  /// tokenizer.json asks for more steps or memory than that, and Interrupted soon after a stop was requested.
  std::vector<TokenId> encode(std::string_view text, SpecialTokens special, const std::stop_token& stop = {}) const {
    return encode_piece(text, special, {}, stop);
  }

  /// As `encode`, for a piece of a text: the ids of all pieces are those of the whole text if the pieces are cut where
  /// the tokenizer itself cuts (at special tokens and between words), and else stand for the same text.
  virtual std::vector<TokenId> encode_piece(std::string_view piece, SpecialTokens special, PieceStart start,
                                            const std::stop_token& stop = {}) const = 0;
  /// The start of a piece behind `last`, and of one behind a text whose ids are not known yet.
  virtual PieceStart start_after(TokenId /*last*/) const { return {}; }
  virtual PieceStart start_inside() const { return {}; }

  /// As `encode` with special tokens recognised, with the tokens that the post-processor puts around a single text (for
  /// plain completion).
  virtual std::vector<TokenId> encode_with_template(std::string_view text, const std::stop_token& stop = {}) const = 0;

  /// Ids that do not exist stand for nothing. Throws ModelError if a tokenizer.json asks for more steps or memory
  /// than a token's size allows.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  /// The raw bytes a token stands for after the first one (byte-level and byte-fallback resolved); empty for special
  /// tokens.
  virtual std::string token_bytes(TokenId id) const = 0;

  /// `bytes`: token_bytes(id); `first`: the bytes that the token stands for at the beginning of a text.
  using ReadToken = std::function<void(TokenId id, std::string_view bytes, std::string_view first)>;
  /// Reads every token, in the order of the ids from 0 to size(). The time is bounded by the size of all tokens: throws
  /// ModelError if a tokenizer.json asks for more steps or memory, and Interrupted soon after a stop was requested.
  virtual void read_tokens(const ReadToken& read, const std::stop_token& stop) const = 0;

  virtual std::optional<TokenId> token_id(std::string_view token) const = 0;
  virtual bool is_special(TokenId id) const = 0;
  virtual std::int32_t size() const = 0;  // highest id + 1

  virtual std::unique_ptr<DecodeStream> stream(bool skip_special) const = 0;

 private:
  std::uint64_t identity_;
};

/// Decodes a growing list of ids: gives out text only when it is complete UTF-8. The pieces joined are
/// decode(all ids, skip_special). The tokenizer must outlive it; one thread at a time.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// Text that became final with this token; may be empty.
  std::string push(TokenId id);
  /// Returns the rest: an unfinished character becomes U+FFFD.
  std::string finish();

 private:
  std::unique_ptr<DecodeStream> stream_;
};

// Stop strings over streamed text. Text that may be the beginning of a stop string is held back, so no part of a stop
// string is ever emitted. Each byte costs a few steps for each stop string, whatever their lengths.

class StopStrings {
 public:
  /// None of them may be empty.
  explicit StopStrings(const std::vector<std::string>& stops);

  /// Adds text and returns the text that is now certain to precede any stop string; "" once one was found.
  std::string push(std::string_view text);
  /// Returns the text held back, when the output ends without a stop string.
  std::string finish();

  bool found() const { return found_; }
  /// The length of the text before the stop string (all text so far when none was found).
  std::size_t length() const { return released_; }

 private:
  /// The automaton of Knuth, Morris and Pratt (SIAM Journal on Computing 6, 1977).
  struct Stop {
    bool take(char byte);

    std::string text;
    std::vector<std::uint32_t> border;  // for each beginning: its longest proper suffix that is a beginning, too
    std::size_t matched = 0;            // bytes of the text that the output ends with
  };

  std::vector<Stop> stops_;
  std::string held_;
  std::size_t released_ = 0;
  bool found_ = false;
};

}  // namespace baton
