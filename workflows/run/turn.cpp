// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
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

TokenText ids_of(const SlotInput& slot, const std::string& tool_text, PieceStart start, const TurnInput& input) {
  if (!slot.tokens.empty()) return slot.tokens;
  const std::string_view text = slot.own_tools ? std::string_view(tool_text) : slot.text;
  if (text.empty()) return {};
  return ids_of_text(input.texts.get(), input.engine->text().tokenizer, text, TextIds::Kind::data, start, input.stop);
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

/// True if a prompt of `length` tokens leaves no room for the answer that the turn may have, or for half of a context.
bool is_too_long(std::size_t length, const PlannedTurn& turn, std::int32_t context) {
  return length + static_cast<std::size_t>(std::min(turn.max_tokens, context / 2)) > static_cast<std::size_t>(context);
}

}  // namespace

namespace {

/// The frame of a turn that remembers the last `kept` exchanges of `memory`.
std::vector<FramePart> frame_with(const ModelText& model, const PlannedTurn& turn,
                                  const std::vector<PromptMessage>& messages, const Conversation& memory,
                                  std::size_t kept, const std::stop_token& stop, TextIds* texts) {
  const std::vector<PromptMessage> next = messages_of(messages).next;
  return kept == memory.exchanges.size() ? continuing_frame(model, memory, next, turn.calls.get(), stop, texts)
                                         : shortened_frame(model, memory, kept, next, turn.calls.get(), stop, texts);
}

/// The prompt of a turn whose agent remembers something, and how many exchanges it holds. If it is too long, half as
/// many are told, and so on; those that are too long by themselves are not rendered.
std::vector<PromptPart> remembering_prompt(const TurnInput& input, const std::vector<PromptMessage>& messages,
                                           const SlotValue& value, std::size_t& kept) {
  const ModelText& model = input.engine->text();
  const auto too_long = [&](std::size_t tokens) {
    return is_too_long(tokens, *input.turn, input.engine->info().context);
  };
  const std::size_t all = kept = most_kept(*input.turn, *input.memory);
  while (true) {
    while (kept > 0 && too_long(least_tokens(model.tokenizer, *input.memory, kept, input.texts.get(), input.stop)))
      kept /= 2;
    TextIds* texts = input.texts.get();
    const bool is_known = input.frame && kept == all;
    const std::vector<FramePart> made =
        is_known ? std::vector<FramePart>()
                 : frame_with(model, *input.turn, messages, *input.memory, kept, input.stop, texts);
    std::vector<PromptPart> prompt = fill_frame(model, is_known ? *input.frame : made, value, input.stop, texts);
    std::size_t tokens = 0;
    for (const PromptPart& part : prompt) tokens += part.tokens.size();
    if (kept == 0 || !too_long(tokens)) return prompt;
    kept /= 2;
  }
}

}  // namespace

std::vector<FramePart> frame_of(const ModelText& model, const PlannedTurn& turn,
                                const std::vector<PromptMessage>& messages, const Conversation* memory,
                                const std::stop_token& stop, TextIds* texts) {
  if (memory == nullptr) return build_frame(model, messages, turn.calls.get(), stop, texts);
  return frame_with(model, turn, messages, *memory, most_kept(turn, *memory), stop, texts);
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
    if (tool.name == kAskTool && !prepared.tools.back().result.ok) {
      prepared.error = prepared.tools.back().result.text;
      prepared.may_retry = tool.refused.empty();
    }
    if (prepared.tools.size() > 1) prepared.tool_text += '\n';
    prepared.tool_text += prepared.tools.back().result.text;
  }
  prepared.ready = Clock::now();
  if (!input.turn->has_prompt()) return prepared;
  try {
    const ModelText& model = input.engine->text();
    const SlotValue value = [&](const std::string& name, PieceStart start) {
      const auto slot =
          std::find_if(input.slots.begin(), input.slots.end(), [&](const SlotInput& s) { return s.name == name; });
      if (slot == input.slots.end()) {
        throw std::logic_error("the plan has no source for the placeholder '" + name + "'");
      }
      return ids_of(*slot, prepared.tool_text, start, input);
    };
    const std::vector<PromptMessage>& messages = input.messages.empty() ? input.turn->messages : input.messages;
    const CallableTools* calls = input.turn->calls.get();
    if (input.memory) {
      prepared.prompt = remembering_prompt(input, messages, value, prepared.kept);
    } else {
      TextIds* texts = input.texts.get();
      const PromptFrame frame =
          input.frame
              ? input.frame
              : std::make_shared<const std::vector<FramePart>>(build_frame(model, messages, calls, input.stop, texts));
      prepared.prompt = fill_frame(model, *frame, value, input.stop, texts);
    }
    for (const std::string& choice : input.turn->choices)  // an answer begins a text, as it does when it is decoded
      prepared.choices.push_back(
          ids_of_text(input.texts.get(), model.tokenizer, choice, TextIds::Kind::data, {}, input.stop).ids());
    if (input.turn->enforce) prepared.constraint = input.turn->grammar;
    if (calls != nullptr) {
      prepared.format = tool_format_of(model, input.stop);
      prepared.constraint = calls->grammar(prepared.format, calls->limits().max_calls, true);
    }
    if (prepared.constraint) input.engine->read_vocabulary(input.stop);
  } catch (const std::exception& error) {
    prepared.error = message_of(error);
  }
  return prepared;
}

PreparedTurn run_calls(const CallsInput& input) {
  PreparedTurn prepared;
  try {
    const CallableTools& callable = *input.turn->calls;
    std::vector<CallResult> results;
    int left = input.left;
    for (std::size_t i = 0; i < input.calls.size(); ++i) {
      const ModelCall& call = input.calls[i];
      ToolOutcome outcome{call.tool, call.arguments, {false, "error: " + call.problem}, 0.0};
      if (input.known[i]) {
        outcome.result = *input.known[i];
      } else if (left <= 0) {
        outcome.result.text = fmt::format("error: no more than {} calls are allowed", callable.limits().max_calls);
      } else if (call.problem.empty()) {
        outcome = call_tool(input.tools[i]);
        if (callable.limits().fail && !outcome.result.ok) {
          std::string_view reason = outcome.result.text;
          if (reason.starts_with(kError)) reason.remove_prefix(kError.size());
          prepared.failed_tool =
              fmt::format("tool '{}' failed: {}", call.tool, shown_result(std::string(reason), kMaxToldError));
          prepared.tools.push_back(std::move(outcome));
          return prepared;
        }
      }
      --left;
      // Templates write the name into their own text, where markers of roles count.
      const std::string name = callable.find(outcome.tool) != nullptr ? outcome.tool : kUnknownTool;
      results.push_back({name, shown_result(outcome.result.text, callable.limits().max_bytes)});
      prepared.tools.push_back(std::move(outcome));
    }
    if (input.goes_in_circles()) left = 0;
    prepared.ready = Clock::now();
    prepared.format = input.format;
    prepared.constraint = callable.grammar(input.format, std::max(left, 0));
    prepared.prompt =
        after_calls(input.engine->text(), input.format, results, input.start, input.stop, input.texts.get());
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
