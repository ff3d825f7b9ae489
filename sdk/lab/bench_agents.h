// SPDX-License-Identifier: Apache-2.0
// The options of baton-lab bench, its prompts, and one pass of an agent through the engine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/local_engine.h"
#include "engine/reuse/method_state.h"
#include "engine/reuse/options.h"
#include "sdk/src/internal.h"

#include <baton/lab/bench.h>

namespace baton::inline v1::lab {

/// The bare model alone is measured: no agents.
inline bool only_rates(const BenchOptions& options) { return options.methods == std::vector<std::string>{"none"}; }

/// Throws InputError, which names the option, unless `value` is one of `known`.
void check_name(const char* name, const std::string& value, const std::vector<std::string>& known);

/// Throws InputError unless `activations` is f32, or bf16 with a dtype of bf16.
void check_activations(const std::string& activations, const std::string& dtype);

/// Throws InputError with the option, its value and what is expected.
void check(const BenchOptions& options);

/// What a method that learns from prompts keeps in an engine, filled by the bench as many prompts would have left it:
/// the time of a correction does not depend on what was learned. Each such method has a folder, sdk/lab/METHOD/.
class LearnedState {
 public:
  virtual ~LearnedState() = default;
  /// Sets the options of a prompt by which the engine's state learns the places of texts.
  virtual void learn(ReuseOptions& reuse) const = 0;
  /// Sets the options of a prompt that is measured with what fill() has made of the same numbers.
  virtual void use(ReuseOptions& reuse, int count, int repeat) const = 0;
  /// Adds `count` random texts to each place that was learned.
  virtual void fill(MethodState& state, int count, int repeat) = 0;
  /// Releases the memory of all texts.
  virtual void clear(MethodState& state) const = 0;
  /// Bytes of each token of the texts that were learned; 0: there are none.
  virtual double bytes_per_token(MethodState& state) const = 0;
};

/// Of a method that learns() (engine/reuse/method.h). Throws InputError if the bench does not know the method's state.
std::unique_ptr<LearnedState> learned_state_of(const Method& method, std::uint64_t seed);

/// Tokens of a chain of agents: role texts, one question, answers.
class BenchAgents {
 public:
  struct Sizes {
    int prefix = 0;
    int output = 0;
    int index = 0;  // no two rows of one engine share texts
  };
  BenchAgents(const BenchOptions& options, const Sizes& sizes, LayerRange range, std::int32_t vocabulary);

  /// Prompt tokens of an agent, from 1.
  std::int64_t length(int agent) const;

  /// Computes the segments that all methods share, and the role texts as prefixes. False when it was stopped.
  bool prepare(InferenceEngine& engine);

  struct Pass {
    BenchAgent numbers;
    double wall_ms = 0;         // to the end of the request
    std::vector<float> logits;  // of the first token
  };
  /// A method and the settings of its variant.
  struct Way {
    const Method* method = &full_method();
    int learned = 0;  // texts of each placeholder, for a method that learns
    double select = 0;
    int repeat = 0;
  };
  /// Lets the engine see each agent's prompt once, so that the method's state knows its placeholders. False when it was
  /// stopped.
  bool learn(InferenceEngine& engine, const Method& method);
  /// Gives every agent's placeholders the texts of this way.
  void fill(LocalEngine& engine, const Way& way);
  /// Empty when stopped. Throws ResourceError. Not for lockstep, which needs the agents before.
  std::optional<Pass> run(InferenceEngine& engine, const Way& way, int agent) const;

  struct Row {
    std::vector<BenchAgent> agents;
    double wall_ms = 0;  // from the first agent's request to the last agent's last token
  };
  /// All agents one after the other, each with its answer decoded.
  std::optional<Row> run_row(InferenceEngine& engine, const Way& way) const;

  /// A pass over the text behind an agent's last placeholder, with everything before that text in the KV cache.
  std::optional<BenchAgent> text_pass(InferenceEngine& engine, int agent) const;

  /// Bytes held per token under a method.
  std::optional<BenchMemory> memory(LocalEngine& engine, const Way& way) const;

 private:
  std::vector<PromptPart> prompt(int agent, bool with_segments) const;
  ReuseOptions reuse(const Way& way, int agent) const;
  static BenchAgent numbers_of(const GenerationResult& result, int agent);
  EarlyPrompt early(int agent, int decoding, RequestId request) const;
  EarlyPrompt all_but_last_text(int agent) const;
  bool wait_ahead(InferenceEngine& engine) const;
  bool remember(LocalEngine& engine, const Way& way, BenchMemory& memory) const;
  std::optional<GenerationResult> answer(InferenceEngine& engine, GenerationRequest request) const;
  std::optional<GenerationResult> finish(InferenceEngine& engine, GenerationRequest request,
                                         const std::function<void(RequestId)>& on_submit) const;

  const BenchOptions& options_;
  Sizes sizes_;
  LayerRange range_;
  std::map<const Method*, std::unique_ptr<LearnedState>> learned_;  // of the methods that learn
  std::vector<std::vector<TokenId>> roles_;                         // [agents]
  std::vector<TokenId> separator_;
  std::vector<std::vector<TokenId>> reused_;  // the question, then the answers
  std::vector<SegmentHandle> segments_;       // of those
  std::vector<TokenId> last_answer_;          // which nobody reads
};

}  // namespace baton::inline v1::lab
