// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <stdexcept>
#include <string_view>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "workflows/format/placeholder.h"

namespace baton {
namespace {

constexpr std::string_view kError = "error: ";   // in front of what a model is told of a tool that threw
constexpr const char* kUnknownTool = "unknown";  // for chat templates, in place of a name that a model made up
constexpr std::size_t kMaxToldError = 1000;      // bytes of what a failed tool said
constexpr std::size_t kMaxOption = std::size_t{16} << 20;  // bytes

ToolOutcome call_tool(const ToolInput& input) {
  const Clock::time_point begin = Clock::now();
  ToolOutcome outcome{input.name, input.call.arguments, {}, 0.0};
  try {
    if (input.tool == nullptr) throw std::runtime_error("tool '" + input.name + "' is not registered");
    if (!input.refused.empty()) throw std::runtime_error(input.refused);
    outcome.result = input.tool->call(input.call);
  } catch (const NoAnswer&) {
    throw;
  } catch (const std::exception& error) {
    outcome.result = {false, std::string(kError) + error.what()};
  } catch (...) {
    outcome.result = {false, "error: the tool failed"};
  }
  outcome.wall_ms = milliseconds(Clock::now() - begin);
  return outcome;
}

std::string_view text_of(const SlotInput& slot, const std::string& tool_text) {
  return slot.own_tools ? std::string_view(tool_text) : slot.text;
}

using AskHost = std::function<std::optional<std::string>(const Asked& asked, const std::stop_token& stop)>;

/// The question of one attempt.
class HostQuestion : public Tool {
 public:
  HostQuestion(Asked asked, const AskHost& on_ask, const std::string* answer)
      : asked_(std::move(asked)), on_ask_(on_ask), answer_(answer) {}
  std::string name() const override { return kAskTool; }
  std::string check(const std::map<std::string, std::string>&) const override { return {}; }
  ToolResult call(const ToolCall& call) const override {
    if (answer_ != nullptr) return {true, *answer_};
    std::optional<std::string> answer = on_ask_ ? on_ask_(asked_, call.stop) : std::nullopt;
    if (!answer) throw NoAnswer();
    return {true, std::move(*answer)};
  }

 private:
  Asked asked_;
  const AskHost& on_ask_;
  const std::string* answer_;
};

/// The exchanges that a turn is to remember at most.
std::size_t most_kept(const PlannedTurn& turn, const Conversation& memory) {
  std::size_t kept = memory.exchanges.size();
  while (turn.remember && kept > static_cast<std::size_t>(*turn.remember)) kept /= 2;
  return kept;
}

constexpr std::size_t kLeastResult = 64;       // bytes
constexpr std::size_t kLeastSummarised = 800;  // bytes
constexpr const char* kLeftOut = "[left out: there was no room for it any more]";

/// Ids of the model's tokenizer.
std::size_t count_of(const std::vector<PromptPart>& prompt) {
  std::size_t ids = 0;
  for (const PromptPart& part : prompt) ids += part.tokens.size();
  return ids;
}

/// Tokens that are kept for the answer: as many as it may have, and at most half of the context.
std::size_t room_for_answer(const PlannedTurn& turn, std::int32_t context) {
  return static_cast<std::size_t>(std::min(turn.max_tokens, context / 2));
}

/// True if a prompt of so many ids leaves no room for the answer. The context is 0 if a server does not tell it.
bool is_too_long(std::size_t ids, const PlannedTurn& turn, const EngineInfo& info) {
  if (info.context <= 0) return false;
  return info.tokens_of(ids) + static_cast<std::int64_t>(room_for_answer(turn, info.context)) > info.context;
}

/// The prompt of a turn whose agent remembers something, and how many exchanges it holds. If it is too long, half as
/// many are told, and so on; those that are too long by themselves are not rendered.
std::vector<PromptPart> remembering_prompt(const TurnInput& input, const ModelText& model,
                                           const std::vector<PromptMessage>& messages, const SlotContents& contents,
                                           std::size_t& kept) {
  const Conversation& memory = *input.memory;
  const auto too_long = [&](std::size_t ids) { return is_too_long(ids, *input.turn, input.engine->info()); };
  const std::vector<PromptMessage> next = messages_of(messages).next;
  const CallableTools* calls = input.turn->calls.get();
  TextIds* texts = input.texts.get();
  kept = most_kept(*input.turn, memory);
  while (true) {
    while (kept > 0 && input.turn->overflow != Overflow::error &&
           too_long(least_tokens(model.tokenizer, memory, kept, texts, input.stop)))
      kept /= 2;
    std::vector<PromptPart> prompt = kept == memory.exchanges.size()
                                         ? continuing_prompt(model, memory, next, contents, calls, input.stop, texts)
                                         : prompt_with_values(model, shortened_messages(memory, kept, next), contents,
                                                              nullptr, calls, input.stop, texts);
    if (kept == 0 || !too_long(count_of(prompt)) || input.turn->overflow == Overflow::error) return prompt;
    kept /= 2;
  }
}

}  // namespace

ModelText text_for(const ModelText& model, const PlannedTurn& turn, std::optional<std::int64_t> local_seconds) {
  ModelText text = model;
  text.chat_options.local_seconds = local_seconds;
  auto& variables = text.chat_options.variables;
  variables.insert(variables.end(), turn.template_variables.begin(), turn.template_variables.end());
  set_thinking(turn.think, variables);
  return text;
}

std::vector<FramePart> frame_of(const ModelText& model, const PlannedTurn& turn,
                                const std::vector<PromptMessage>& messages, const Conversation* memory,
                                const std::stop_token& stop, TextIds* texts) {
  if (memory == nullptr) return build_frame(model, messages, turn.calls.get(), stop, texts);
  const std::size_t kept = most_kept(turn, *memory);
  const std::vector<PromptMessage> next = messages_of(messages).next;
  if (kept == memory->exchanges.size()) return continuing_frame(model, *memory, next, turn.calls.get(), stop, texts);
  return build_frame(model, shortened_messages(*memory, kept, next), turn.calls.get(), stop, texts);
}

std::string filled_option(const std::string& option, const PromptItem& text,
                          const std::function<std::string_view(const std::string& placeholder)>& value) {
  std::string filled;
  for (const TemplatePiece& piece : text.pieces) {
    filled += piece.placeholder.empty() ? piece.text : value(piece.placeholder);
    if (filled.size() > kMaxOption)
      throw std::runtime_error(fmt::format("option '{}' has more than {} bytes", option, kMaxOption));
  }
  if (filled.find("${secret:") != std::string::npos)
    throw std::runtime_error(fmt::format("option '{}': a value holds '${{secret:'", option));
  return filled;
}

void ask_host(ToolInput& tool, Asked asked, const AskHost& on_ask, const std::string* answer) {
  tool.call.arguments = asked.question;
  tool.own = std::make_shared<const HostQuestion>(std::move(asked), on_ask, answer);
  tool.tool = tool.own.get();
}

namespace {

/// `limit`: bytes of a result of tools in the prompt.
void note_cut_results(const TurnInput& input, std::size_t limit, PreparedTurn& prepared) {
  for (const SlotInput& slot : input.slots) {
    const std::size_t size = slot.of_tools ? text_of(slot, prepared.tool_text).size() : 0;
    if (size > limit + 1)
      prepared.warnings.push_back(
          {fmt::format("{} of the {} bytes of '{}' were left out", size - limit, size, slot.name),
           WarningCode::result_cut});
  }
}

/// Finds how the answer behind the prompt begins, and adds what begins it.
void begin_answer(const ModelText& model, const PlannedTurn& turn, PreparedTurn& prepared, TextIds* texts,
                  const std::stop_token& stop) {
  const bool has_header = turn.calls != nullptr && !prepared.format.syntax.text_open.empty();
  prepared.start = answer_start(model, turn, has_header, prepared.prompt, texts, stop);
  append_text(model, prepared.start.text, prepared.prompt, texts, stop);
}

}  // namespace

PreparedTurn prepare_turn(const TurnInput& input) {
  PreparedTurn prepared;
  prepared.tool_text = input.tool_text;
  for (const ToolInput& tool : input.tools) {
    try {
      prepared.tools.push_back(call_tool(tool));
    } catch (const NoAnswer&) {
      prepared.waits = true;
      return prepared;
    }
    const ToolOutcome& outcome = prepared.tools.back();
    if (!outcome.result.ok && (tool.name == kAskTool || !input.turn->tells_errors)) {
      prepared.error = tool.name == kAskTool ? outcome.result.text : failure_of(outcome);
      prepared.may_retry = tool.refused.empty();
      return prepared;
    }
    if (prepared.tools.size() > 1) prepared.tool_text += '\n';
    prepared.tool_text += prepared.tools.back().result.text;
  }
  prepared.ready = Clock::now();
  if (!input.turn->has_prompt()) return prepared;
  try {
    const ModelText model = text_for(input.engine->text(), *input.turn, input.local_seconds);
    std::size_t limit = std::string::npos;       // bytes of a result of tools
    std::map<std::string, std::string> shorter;  // results, by slot
    const SlotContents contents = [&](const std::string& name) {
      const auto slot =
          std::find_if(input.slots.begin(), input.slots.end(), [&](const SlotInput& s) { return s.name == name; });
      if (slot == input.slots.end()) {
        throw std::logic_error("the plan has no source for the placeholder '" + name + "'");
      }
      const std::string_view text = text_of(*slot, prepared.tool_text);
      if (!slot->of_tools || text.size() <= limit) return SlotContent{text, slot->tokens};
      return SlotContent{shorter[name] = shown_result(std::string(text), limit), {}};
    };
    const std::vector<PromptMessage>& messages = input.messages.empty() ? input.turn->messages : input.messages;
    const CallableTools* calls = input.turn->calls.get();
    std::size_t longest = 0;
    for (const SlotInput& slot : input.slots)
      longest = std::max(longest, slot.of_tools ? text_of(slot, prepared.tool_text).size() : 0);
    while (true) {
      prepared.prompt = input.memory ? remembering_prompt(input, model, messages, contents, prepared.kept)
                                     : prompt_with_values(model, messages, contents, input.frame.get(), calls,
                                                          input.stop, input.texts.get());
      const bool too_long = is_too_long(count_of(prepared.prompt), *input.turn, input.engine->info());
      limit = std::min(limit, longest) / 2;
      if (!too_long || input.turn->overflow == Overflow::error || limit < kLeastResult) break;
    }
    note_cut_results(input, 2 * limit, prepared);
    if (calls != nullptr) prepared.format = tool_format_of(model, input.stop);
    begin_answer(model, *input.turn, prepared, input.texts.get(), input.stop);
    for (const std::string& choice : input.turn->choices)  // an answer begins a text, as it does when it is decoded
      prepared.choices.push_back(
          ids_of_text(input.texts.get(), model.tokenizer, choice, TextIds::Kind::data, {}, input.stop).ids());
    if (input.turn->enforce) prepared.constraint = input.turn->grammar;
    if (calls != nullptr) prepared.constraint = calls->grammar(prepared.format, calls->limits().max_calls, true);
    if (prepared.constraint) input.engine->read_vocabulary(input.stop);
  } catch (const std::exception& error) {
    prepared.error = message_of(error);
  }
  return prepared;
}

PreparedTurn run_call(const ToolInput& input) {
  PreparedTurn prepared;
  prepared.tools.push_back(call_tool(input));
  return prepared;
}

std::string failure_of(const ToolOutcome& outcome) {
  std::string_view reason = outcome.result.text;
  if (reason.starts_with(kError)) reason.remove_prefix(kError.size());
  return fmt::format("tool '{}' failed: {}", outcome.tool, shown_result(std::string(reason), kMaxToldError));
}

namespace {

/// The results as the model gets them, and how many bytes of each it does not.
std::vector<CallResult> shown_results(const ResultsInput& results, std::size_t limit,
                                      std::vector<std::int64_t>& left_out) {
  std::vector<CallResult> shown;
  left_out.clear();
  for (const ToolOutcome& outcome : results.outcomes) {
    // Templates write the name into their own text, where markers of roles count.
    const bool known = results.calls.turn->calls->find(outcome.tool) != nullptr;
    const std::size_t size = outcome.result.text.size();
    const bool summed = outcome.summary && !outcome.summary->empty();
    const std::string text =
        summed ? fmt::format("[a summary of {} bytes]\n{}", size, *outcome.summary) : outcome.result.text;
    shown.push_back({known ? outcome.tool : kUnknownTool, shown_result(text, limit)});
    left_out.push_back(static_cast<std::int64_t>(summed ? size : size - std::min(size, limit)));
  }
  return shown;
}

/// Ids that are saved by what takes the places of the oldest results.
std::size_t saved_by(const CallsInput& input, const PreparedTurn& prepared) {
  std::size_t saved = 0;
  for (std::size_t i = 0; i < prepared.shorter.size(); ++i)
    saved += input.earlier[i].tokens - std::min(input.earlier[i].tokens, count_of(prepared.shorter[i]));
  return saved;
}

/// The prompt by which a model summarises a result, as much of it as has room; empty: there is no room for any.
std::vector<PromptPart> summary_prompt(const ModelText& own_model, const CallsInput& input,
                                       const ToolOutcome& outcome) {
  const std::string task = fmt::format(
      "Summarise this result of the tool '{}' for somebody who has to answer a question with it. Keep names, numbers "
      "and identifiers as they are. Write at most 100 words, and nothing but the summary.\n\n",
      outcome.tool);
  const PlannedTurn* writer = input.turn->summary.get();
  PlannedTurn quick;  // without thinking
  quick.think.enabled = false;
  quick.max_tokens = writer != nullptr ? writer->max_tokens : kSummaryTokens;
  const ModelText model =
      writer != nullptr ? text_for(input.summarising_engine().text(), *writer, input.local_seconds) : own_model;
  const SlotValue value = [&](const std::string& name, PieceStart start) {
    return ids_of_text(nullptr, model.tokenizer, input.inputs->at(name), TextIds::Kind::data, start, input.stop);
  };
  for (std::size_t bytes = outcome.result.text.size(); bytes >= kLeastResult; bytes /= 2) {
    std::vector<PromptMessage> messages = writer != nullptr ? writer->messages : std::vector<PromptMessage>();
    messages.push_back({"user", {{task, ""}, {shown_result(outcome.result.text, bytes), "", true}}});
    std::vector<PromptPart> prompt = build_prompt(model, messages, value, nullptr, input.stop);
    const AnswerStart start = answer_start(model, quick, false, prompt, nullptr, input.stop);
    append_text(model, start.text, prompt, nullptr, input.stop);
    if (!is_too_long(count_of(prompt) + 1, quick, input.summarising_engine().info())) return prompt;
  }
  return {};
}

/// " by agent 'brief'"; empty: by the turn's own model.
std::string by_whom(const PlannedTurn& turn) {
  if (!turn.summary) return {};
  const bool agent = !turn.summary->agent.empty();
  return fmt::format(" by {} '{}'", agent ? "agent" : "model", agent ? turn.summary->agent : turn.summary->model);
}

/// Finds the longest result that was not summarised yet, and how to do so. Returns false if there is none.
bool ask_for_summary(const ModelText& model, const ResultsInput& results, PreparedTurn& prepared) {
  const auto size = [&](std::size_t i) {
    const ToolOutcome& outcome = results.outcomes[i];
    return outcome.summary ? 0 : outcome.result.text.size();
  };
  std::size_t longest = 0;
  for (std::size_t i = 1; i < results.outcomes.size(); ++i) longest = size(i) > size(longest) ? i : longest;
  if (size(longest) < kLeastSummarised) return false;
  try {
    prepared.summary_prompt = summary_prompt(model, results.calls, results.outcomes[longest]);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {  // a template that refuses the writer's messages; the result is cut
    prepared.warnings.push_back(
        {fmt::format("no summary could be asked for: {}", message_of(error)), WarningCode::no_summary});
  }
  if (prepared.summary_prompt.empty()) return false;
  prepared.to_summarise = longest;
  return true;
}

/// Leaves out the oldest results of the turn until the new ones fit as they are.
void drop_oldest(const ModelText& model, const ResultsInput& results, PreparedTurn& prepared) {
  const CallsInput& input = results.calls;
  std::vector<std::int64_t> ignored;
  const std::size_t wanted =
      count_of(after_calls(model, input.format, shown_results(results, input.turn->calls->limits().max_bytes, ignored),
                           input.start, input.stop, input.texts.get()));
  for (const EarlierResults& one : input.earlier) {
    if (!is_too_long(input.used + wanted - saved_by(input, prepared), *input.turn, input.engine->info())) break;
    std::vector<CallResult> without;
    for (const std::string& tool : one.tools) without.push_back({tool, kLeftOut});
    prepared.shorter.push_back(after_calls(model, input.format, without, one.start, input.stop, input.texts.get()));
  }
  if (!prepared.shorter.empty())
    prepared.warnings.push_back({fmt::format("the results of the first {} of its {} earlier outputs were left out",
                                             prepared.shorter.size(), input.earlier.size()),
                                 WarningCode::results_dropped});
}

}  // namespace

PreparedTurn after_results(const ResultsInput& results) {
  PreparedTurn prepared;
  const CallsInput& input = results.calls;
  try {
    const CallableTools& callable = *input.turn->calls;
    const int left = input.goes_in_circles() ? 0 : std::max(results.left, 0);
    const Overflow policy = input.turn->overflow;
    prepared.ready = Clock::now();
    prepared.format = input.format;
    prepared.constraint = callable.grammar(input.format, left);
    const ModelText model = text_for(input.engine->text(), *input.turn, input.local_seconds);
    if (policy == Overflow::drop_oldest) drop_oldest(model, results, prepared);
    const std::size_t used = input.used - saved_by(input, prepared);
    const auto fits = [&] { return !is_too_long(used + count_of(prepared.prompt), *input.turn, input.engine->info()); };
    for (std::size_t limit = callable.limits().max_bytes;; limit /= 2) {
      prepared.prompt = after_calls(model, input.format, shown_results(results, limit, prepared.left_out), input.start,
                                    input.stop, input.texts.get());
      begin_answer(model, *input.turn, prepared, input.texts.get(), input.stop);
      if (fits() || policy == Overflow::error) break;
      if (policy == Overflow::summarise && ask_for_summary(model, results, prepared)) return prepared;
      const auto shorter = [](const ToolOutcome& a, const ToolOutcome& b) {
        return a.result.text.size() < b.result.text.size();
      };
      const auto longest = std::max_element(results.outcomes.begin(), results.outcomes.end(), shorter);
      const std::size_t bytes = longest == results.outcomes.end() ? 0 : longest->result.text.size();
      limit = std::min(limit, bytes);
      if (limit / 2 < kLeastResult) {
        const EngineInfo& info = input.engine->info();
        const bool drops = policy == Overflow::drop_oldest || input.earlier.empty();
        throw std::runtime_error(fmt::format(
            "the results of its tools do not fit: the context has {} tokens, of which {} are the prompt's and {} are "
            "kept for the answer; the longest result is that of '{}', with {} bytes{}",
            info.context, info.tokens_of(used), room_for_answer(*input.turn, info.context),
            bytes == 0 ? "" : longest->tool, bytes,
            drops ? "" : "; with 'overflow: drop_oldest' earlier results are left out first"));
      }
    }
    for (std::size_t i = 0; i < results.outcomes.size(); ++i) {
      const ToolOutcome& outcome = results.outcomes[i];
      if (outcome.summary && !outcome.summary->empty())
        prepared.warnings.push_back({fmt::format("the {} bytes of the result of '{}' were summarised{}",
                                                 outcome.result.text.size(), outcome.tool, by_whom(*input.turn)),
                                     WarningCode::result_summarised});
      else if (prepared.left_out[i] > 0)
        prepared.warnings.push_back(
            {fmt::format("{} of the {} bytes of the result of '{}' were left out", prepared.left_out[i],
                         results.outcomes[i].result.text.size(), results.outcomes[i].tool),
             WarningCode::result_cut});
    }
  } catch (const std::exception& error) {
    prepared.error = message_of(error);
  }
  return prepared;
}

namespace {

constexpr std::size_t kMaxProblem = 1000;  // bytes; it may quote the output

const std::vector<TemplatePiece>& default_feedback() {
  static const std::vector<TemplatePiece> pieces = {
      {"An earlier answer had an error: ", ""}, {"", std::string(kErrorPlaceholder)}, {".", ""}};
  return pieces;
}

}  // namespace

std::vector<PromptMessage> messages_after(const PlannedTurn& turn, const std::vector<FailedOutput>& failed) {
  const std::vector<TemplatePiece>& feedback = turn.retry.feedback.empty() ? default_feedback() : turn.retry.feedback;
  std::vector<PromptMessage> messages = turn.messages;
  if (messages.back().role != "user") messages.push_back({"user", {}});
  std::vector<PromptPiece>& pieces = messages.back().pieces;
  for (const FailedOutput& one : failed) {
    if (!pieces.empty()) pieces.push_back({"\n\n"});
    for (const TemplatePiece& piece : feedback) {
      if (piece.placeholder.empty()) {
        pieces.push_back({piece.text, "", piece.data});
      } else {
        const bool problem = piece.placeholder == kErrorPlaceholder;
        pieces.push_back({problem ? beginning(one.problem, kMaxProblem) : one.text, "", true});
      }
    }
  }
  return messages;
}

}  // namespace baton
