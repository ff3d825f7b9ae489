// SPDX-License-Identifier: Apache-2.0
// A model's thinking: the text between two markers that it writes before its answer. Which markers these are comes from
// the model's chat template.
#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace baton {

class ChatTemplate;
struct ChatOptions;

/// The texts around a model's thinking; special tokens stand there by their spelling.
struct ThinkingMarks {
  std::string begin;  // empty: the prompt ends with it
  std::string end;
  bool operator==(const ThinkingMarks&) const = default;
};

/// Finds the end of the thinking in a model's output while that is written, however the markers are split into tokens.
class ThinkingReader {
 public:
  explicit ThinkingReader(const ThinkingMarks& marks);

  /// Takes the text of the next token, with special tokens by their spelling. Returns the text of the thinking that is
  /// certain by now.
  std::string push(std::string_view token);
  /// Returns the thinking's text that was held back as a possible marker. The output ends here.
  std::string finish();

  /// The model began to think.
  bool begun() const { return stage_ != Stage::opening; }
  /// The marker of the end was written.
  bool ended() const { return stops_.found(); }
  /// The last token belongs to the answer: thinking has ended, or there is none.
  bool over() const { return over_; }
  /// How many tokens belong to the thinking: its markers, and blanks behind it, but no token with text of the answer.
  std::size_t tokens() const { return !begun() ? 0 : over_ ? kept_ : pushed_; }
  /// What is left of the marker of the end behind these tokens: a part of it if a token has the other part and text of
  /// the answer, all of it if the model did not write it.
  std::string rest() const;

 private:
  enum class Stage { opening, inside, behind };

  std::string open(std::string_view token);
  void close();

  ThinkingMarks marks_;
  StopStrings stops_;
  Stage stage_ = Stage::opening;
  bool over_ = false;
  std::string opening_;         // the text until the marker of the beginning is complete
  std::string last_;            // the end of the text, as long as the marker of the end and the last token
  std::size_t last_token_ = 0;  // where the last token begins in it
  std::size_t pushed_ = 0, kept_ = 0;
  std::size_t blanks_ = 0;  // tokens of blanks before or behind the thinking
  std::string rest_;
};

/// Separates thinking from the answer behind it if the model's form is unknown: the text may begin with any known form
/// but `<thought>` and `<reasoning>`, which a prompt may ask for, however it is split. Text that begins otherwise is
/// the answer, unchanged.
class ThinkingSplitter {
 public:
  struct Texts {
    std::string thinking, answer;
  };
  /// Takes the next text. Returns what is certain by now.
  Texts push(std::string_view text);
  /// The text ends here. Returns what was held back.
  Texts finish();
  /// Thinking has come without markers in another way: what follows is an answer behind it.
  void thought_elsewhere();

  bool thought() const { return thought_; }
  bool answers() const { return stage_ == Stage::answer; }

 private:
  enum class Stage { opening, inside, behind, answer };

  void open();
  void think(std::string& thinking);
  void begin_answer();

  Stage stage_ = Stage::opening;
  bool thought_ = false;
  std::string held_;    // text that may be a part of a marker
  std::string end_;     // the marker of the end
  std::string header_;  // what may stand between thinking and an answer, but for blanks
};

/// How a model's chat template writes thinking.
struct ThinkingForm {
  ThinkingMarks marks;      // `begin` is never empty
  std::string behind;       // what the template writes between the end and an answer, "\n\n"
  std::string no_thinking;  // what an answer without thinking begins with; empty: the answer itself
  bool operator==(const ThinkingForm&) const = default;
};

/// Nothing if the template writes no thinking of a known form. Throws Interrupted soon after a stop was requested.
std::optional<ThinkingForm> thinking_form_of(const ChatTemplate& chat, const ChatOptions& options,
                                             const std::stop_token& stop = {});

/// What the end of a prompt, where the answer begins, says of thinking.
enum class ThinkingStart {
  model,   // the model decides whether it thinks, and writes the first marker
  begun,   // the prompt ends with the first marker
  closed,  // the prompt ends with an empty thinking
};
/// Renders the template with these options. Throws as ChatTemplate::render.
ThinkingStart thinking_start(const ThinkingForm& form, const ChatTemplate& chat, const ChatOptions& options,
                             const std::stop_token& stop = {});

/// What follows a prompt so that the model does not think. `calls`: the answer may call tools.
std::string without_thinking(const ThinkingForm& form, ThinkingStart start, bool calls);

}  // namespace baton
