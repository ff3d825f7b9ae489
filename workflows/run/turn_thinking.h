// SPDX-License-Identifier: Apache-2.0
// The thinking of a turn's model, which is a request of its own: the prompt of the answer goes on behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <baton/run_record.h>

#include "engine/engine.h"
#include "engine/text/text_ids.h"
#include "workflows/plan/plan.h"

namespace baton {

/// How the answer of a turn begins, behind its prompt.
struct AnswerStart {
  std::optional<ThinkingForm> form;  // of the model, if it may think
  bool has_header = false;           // the answer begins with a header that the form of calls knows
  bool begun = false;                // the prompt ends with the first marker
  std::string text;                  // what follows the prompt so that the model does not think; may be empty
  std::size_t dropped = 0;           // tokens at the prompt's end that the template does not write in front of an
                                     // earlier answer
  TokenText added;                   // what it writes there in their place
};

/// Adds the variables by which chat templates know whether and how much the model is to think.
void set_thinking(const ThinkSpec& think, std::vector<std::pair<std::string, std::string>>& variables);

/// `model`: the turn's (text_for). `prompt`: its end counts. `has_header`:
/// AnswerStart::has_header. Throws ModelError, and Interrupted soon after a stop was
/// requested.
AnswerStart answer_start(const ModelText& model, const PlannedTurn& turn, bool has_header,
                         const std::vector<PromptPart>& prompt, TextIds* texts, const std::stop_token& stop = {});

/// The tokens that the turn may have for thinking.
std::int32_t most_thinking(const ModelText& model, const PlannedTurn& turn);

/// Adds text of the chat template to the end of a prompt.
void append_text(const ModelText& model, const std::string& text, std::vector<PromptPart>& prompt, TextIds* texts,
                 const std::stop_token& stop = {});

/// The thinking of one generation after another. The run's thread only.
class TurnThinking {
 public:
  /// A generation begins. `more`: what its prompt has behind that of the generation before and its tokens.
  void begin(AnswerStart start, const std::vector<PromptPart>& more);

  /// True if the next request is to be for thinking.
  bool is_next() const { return stage_ == Stage::next; }
  /// True while a request for thinking runs.
  bool is_asked() const { return stage_ == Stage::asked; }
  /// True if the model was asked to think: the answer's prompt is prompt().
  bool is_done() const { return stage_ == Stage::done; }
  /// True if a request for thinking has ended.
  bool has_request() const { return is_done() && record_.prompt_tokens > 0; }
  /// True if it thought.
  bool has_thought() const { return is_done() && thought_; }

  /// No thinking is asked for: the answer is given.
  void leave_out() { stage_ = Stage::none; }
  /// Makes `request` one for thinking alone. Returns false if the context has no room for any: the thinking is empty
  /// then, and done.
  bool ask(GenerationRequest& request, const PlannedTurn& turn, const InferenceEngine& engine, TextIds* texts);
  /// Takes the thinking, moves it from the record's output to where it belongs, and makes the answer's prompt of that
  /// of the request.
  void take(const GenerationResult& result, std::vector<PromptPart> prompt, const ModelText& model, AgentRecord& record,
            TextIds* texts);
  /// The record of the answer takes over what was the thinking's: prompt, KV and times.
  void add_to(AgentRecord& record) const;

  std::vector<PromptPart>& prompt() { return prompt_; }
  const ContextHandle& context() const { return context_; }

  bool has_bare_prompt() const { return !bare_.empty(); }
  /// The prompt of this generation without any thinking, as the template writes it for an earlier answer.
  std::vector<PromptPart> bare_prompt() const;
  /// The generation's answer, which called tools.
  void add_answer(const TokenText& tokens);

 private:
  enum class Stage : std::uint8_t { none, next, asked, done };

  void close(bool ended, const std::string& rest, const ModelText& model, TextIds* texts);

  Stage stage_ = Stage::none;
  AnswerStart start_;
  bool thought_ = false;
  std::vector<PromptPart> prompt_;
  ContextHandle context_;
  AgentRecord record_;            // of the thinking
  std::vector<PromptPart> bare_;  // the prompt without thinking, as it was built
};

}  // namespace baton
