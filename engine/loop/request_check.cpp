// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/request_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {
namespace {

[[noreturn]] void invalid(const std::string& message) { throw EngineError(EngineError::Kind::invalid, message); }

void check_tokens(const char* what, std::span<const TokenId> tokens, const Model& model) {
  for (const TokenId id : tokens) {
    if (id < 0 || id >= model.config.vocabulary)
      invalid(fmt::format("{}: token id {} is outside the vocabulary of {}", what, id, model.config.vocabulary));
  }
}

void check_method(const ReuseOptions& reuse) {
  if (const std::string problem = problem_of(reuse); !problem.empty()) invalid(problem);
}

}  // namespace

void check(const std::vector<EarlyPart>& parts, const Model& model) {
  for (const EarlyPart& part : parts) check_tokens("early prompt", part.tokens, model);
}

void check(const EarlyPrompt& prompt, const Model& model) {
  check(prompt.parts, model);
  check_method(prompt.reuse);
  if (prompt.longest < 1)
    invalid(fmt::format("early prompt: longest is {}; expected at least 1 token", prompt.longest));
  if (!computes_ahead(*prompt.reuse.method) && (prompt.reuse.record || takes_segments(prompt.reuse)))
    invalid(
        "early prompt: only exact KV can be computed ahead; expected method full, prefix or lockstep, without record, "
        "or auto");
}

void check(const GenerationRequest& request, const Model& model) {
  std::int64_t length = 0;
  for (const PromptPart& part : request.prompt) {
    length += static_cast<std::int64_t>(part.tokens.size());
    check_tokens("prompt", part.tokens, model);
  }
  if (length == 0) invalid("the prompt has no tokens; expected at least 1");
  if (request.max_tokens < 1)
    invalid(fmt::format("max_tokens: {} is too small; expected at least 1", request.max_tokens));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) invalid("stop: found an empty string; expected at least 1 byte in each");
  }
  if (request.constraint && !request.stop.empty())
    invalid("a constraint excludes stop strings, which could end the answer before it is whole; found both");
  if (const std::string problem = request.sampling.problem(); !problem.empty()) invalid(problem);
  check_method(request.reuse);
  check_tokens("forced", request.forced, model);
  const std::int32_t context = model.options.context;
  for (const std::vector<TokenId>& choice : request.choices) {
    if (choice.empty()) invalid("choices: found one without tokens; expected at least 1 token in each");
    check_tokens("choices", choice, model);
    if (const auto needed = length + static_cast<std::int64_t>(choice.size()) + 1; needed > context) {
      throw EngineError(EngineError::Kind::too_long,
                        fmt::format("the prompt has {} tokens and a choice {}; the context of {} leaves room for {}",
                                    length, choice.size(), context, context - length - 1));
    }
  }
  if (request.constraint && !request.choices.empty()) invalid("choices exclude a constraint; found both");
  if (length + 1 > context) {
    throw EngineError(
        EngineError::Kind::too_long,
        fmt::format("the prompt has {} tokens; the context of {} leaves room for {}", length, context, context - 1));
  }
}

}  // namespace baton
