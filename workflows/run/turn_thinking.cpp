// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/turn_thinking.h"

#include <algorithm>
#include <limits>

#include "engine/base/errors.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"

namespace baton {
namespace {

constexpr std::int32_t kDefaultBudget = 4096;  // tokens
constexpr std::int32_t kRoomForMarkers = 32;   // tokens
constexpr const char* kContent = "\uE0B2";     // stands in no template
constexpr const char* kNext = "\uE0B4";

std::size_t common_beginning(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

std::vector<TokenId> last_tokens(const std::vector<PromptPart>& prompt, std::size_t count) {
  std::vector<TokenId> tokens;
  for (auto part = prompt.rbegin(); part != prompt.rend() && tokens.size() < count; ++part) {
    const std::size_t taken = std::min(count - tokens.size(), part->tokens.size());
    tokens.insert(tokens.begin(), part->tokens.end() - static_cast<std::ptrdiff_t>(taken), part->tokens.end());
  }
  return tokens;
}

void drop_tokens(std::vector<PromptPart>& prompt, std::size_t count) {
  while (count > 0 && !prompt.empty()) {
    PromptPart& last = prompt.back();
    const std::size_t size = last.tokens.size();
    if (size <= count) {
      prompt.pop_back();
      count -= size;
      continue;
    }
    last = {{}, std::vector<TokenId>(last.tokens.begin(), last.tokens.end() - static_cast<std::ptrdiff_t>(count))};
    count = 0;
  }
}

/// Finds what the template writes in front of an earlier answer in place of the end of a prompt.
void compare_with_history(const ModelText& model, const std::vector<PromptPart>& prompt, AnswerStart& start,
                          TextIds* texts, const std::stop_token& stop) {
  ChatOptions options = model.chat_options;
  const ChatTemplate& chat = *model.chat_template;
  try {
    const std::string asked = chat.render({{"user", kContent}}, options, stop);
    options.add_generation_prompt = false;
    const std::string before = chat.render({{"user", kContent}}, options, stop);
    const std::string later =
        chat.render({{"user", kContent}, {"assistant", kNext}, {"user", kContent}}, options, stop);
    const std::size_t content = later.find(kNext);
    if (content == std::string::npos || !later.starts_with(before) || !asked.starts_with(before)) return;
    const std::string own = asked.substr(before.size()), earlier = later.substr(before.size(), content - before.size());
    const std::size_t common = common_beginning(own, earlier);
    std::vector<PromptPart> dropped, added;
    append_text(model, own.substr(common) + start.text, dropped, texts, stop);
    append_text(model, earlier.substr(common), added, texts, stop);
    const std::vector<TokenId> tokens = last_tokens(dropped, std::string::npos);
    if (last_tokens(prompt, tokens.size()) != tokens) return;
    start.dropped = tokens.size();
    start.added = last_tokens(added, std::string::npos);
  } catch (const ModelError&) {  // a template that refuses such messages: the prompt stays as it is
  }
}

}  // namespace

void set_thinking(const ThinkSpec& think, std::vector<std::pair<std::string, std::string>>& variables) {
  if (think.enabled) {
    for (const char* name : {"enable_thinking", "thinking"})
      variables.emplace_back(name, *think.enabled ? "true" : "false");
  }
  if (think.effort) variables.emplace_back("reasoning_effort", '"' + *think.effort + '"');
}

AnswerStart answer_start(const ModelText& model, const PlannedTurn& turn, bool has_header,
                         const std::vector<PromptPart>& prompt, TextIds* texts, const std::stop_token& stop) {
  AnswerStart start;
  start.has_header = has_header;
  if (!model.chat_template) return start;
  if (model.thinking) {
    const ThinkingForm& form = *model.thinking;
    const ThinkingStart how = thinking_start(form, *model.chat_template, model.chat_options, stop);
    start.begun = how == ThinkingStart::begun;
    if (!turn.think.enabled.value_or(true) || turn.think.budget.value_or(1) == 0)
      start.text = without_thinking(form, how, has_header);
    else if (how != ThinkingStart::closed)
      start.form = form;
  }
  std::vector<PromptPart> whole;
  if (!start.text.empty()) {
    whole = prompt;
    append_text(model, start.text, whole, texts, stop);
  }
  compare_with_history(model, start.text.empty() ? prompt : whole, start, texts, stop);
  return start;
}

std::int32_t most_thinking(const ModelText& model, const PlannedTurn& turn) {
  const bool thinks = model.thinking && turn.think.enabled.value_or(true);
  return thinks ? turn.think.budget.value_or(kDefaultBudget) : 0;
}

void append_text(const ModelText& model, const std::string& text, std::vector<PromptPart>& prompt, TextIds* texts,
                 const std::stop_token& stop) {
  if (text.empty()) return;
  const std::vector<TokenId> last = last_tokens(prompt, 1);
  const PieceStart start = last.empty() ? model.tokenizer->start_inside() : model.tokenizer->start_after(last[0]);
  prompt.push_back({{}, ids_of_text(texts, model.tokenizer, text, TextIds::Kind::authored, start, stop)});
}

void TurnThinking::begin(AnswerStart start, const std::vector<PromptPart>& more) {
  start_ = std::move(start);
  stage_ = start_.form ? Stage::next : Stage::none;
  thought_ = false;
  prompt_.clear();
  context_ = nullptr;
  record_ = {};
  bare_.insert(bare_.end(), more.begin(), more.end());
}

bool TurnThinking::ask(GenerationRequest& request, const PlannedTurn& turn, const InferenceEngine& engine,
                       TextIds* texts) {
  const std::int32_t known = engine.info().context;  // 0: a server does not tell it
  const std::int32_t context = known > 0 ? known : std::numeric_limits<std::int32_t>::max();
  std::int64_t room = context - std::min(turn.max_tokens, context / 2) - kRoomForMarkers;
  std::size_t ids = 0;
  for (const PromptPart& part : request.prompt) ids += part.tokens.size();
  room -= engine.info().tokens_of(ids);
  if (room < 1) {
    prompt_ = std::move(request.prompt);
    close(false, start_.form->marks.end, engine.text(), texts);
    return false;
  }
  stage_ = Stage::asked;
  request.thinking = start_.form->marks;
  if (start_.begun) request.thinking->begin.clear();
  request.max_tokens =
      static_cast<std::int32_t>(std::min<std::int64_t>(room, turn.think.budget.value_or(kDefaultBudget)));
  request.stop.clear();
  request.constraint = nullptr;
  request.choices.clear();
  request.output_readers = 0;
  request.export_output = false;
  return true;
}

void TurnThinking::take(const GenerationResult& result, std::vector<PromptPart> prompt, const ModelText& model,
                        AgentRecord& record, TextIds* texts) {
  record.thinking = utf8::trimmed(result.text);
  record.thinking_tokens = static_cast<std::int64_t>(result.tokens.size());
  record.output.clear();
  record.output_tokens = 0;
  record.truncated = false;
  record_ = record;
  context_ = result.context;
  thought_ = result.thought;
  prompt_ = std::move(prompt);
  if (!result.tokens.empty()) prompt_.push_back({{}, result.tokens});
  close(!thought_ || result.reason == FinishReason::stop, result.thinking_rest, model, texts);
}

/// Ends the thinking with the model's own marker, if the model has not. `rest`: what is missing of it.
void TurnThinking::close(bool ended, const std::string& rest, const ModelText& model, TextIds* texts) {
  stage_ = Stage::done;
  const ThinkingForm& form = *start_.form;
  const bool always = form.behind.find_first_not_of(utf8::kBlanks) != std::string::npos;  // it is no matter of blanks
  std::string text = rest;
  if (!ended && !always) text = "\n" + text;
  if (!ended && !thought_ && !start_.begun) text = form.marks.begin + text;
  thought_ = thought_ || !ended;
  if (thought_ && (always || !rest.empty())) text += form.behind;
  if (!start_.has_header) text += form.no_thinking;
  append_text(model, text, prompt_, texts);
}

void TurnThinking::add_to(AgentRecord& record) const {
  if (!has_request()) return;
  record.prompt_tokens = record_.prompt_tokens;
  record.kv = record_.kv;
  record.prefill_ms += record_.prefill_ms;
  record.decode_ms += record_.decode_ms;
  record.ttft_ms = record_.ttft_ms;
  record.drafted_tokens += record_.drafted_tokens;
  record.accepted_tokens += record_.accepted_tokens;
  record.expected_nats = record_.expected_nats;
  record.guard_nats = record_.guard_nats;
  record.guard_change = record_.guard_change;
  const auto steps = static_cast<double>(record.output_tokens + record.thinking_tokens - 2);
  record.tokens_per_s = steps > 0 && record.decode_ms > 0.0 ? steps * 1000.0 / record.decode_ms : 0.0;
}

std::vector<PromptPart> TurnThinking::bare_prompt() const {
  std::vector<PromptPart> prompt = bare_;
  drop_tokens(prompt, start_.dropped);
  if (!start_.added.empty()) prompt.push_back({{}, start_.added});
  return prompt;
}

void TurnThinking::add_answer(const TokenText& tokens) {
  bare_ = bare_prompt();
  if (!tokens.empty()) bare_.push_back({{}, tokens});
}

}  // namespace baton
