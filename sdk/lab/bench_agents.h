// SPDX-License-Identifier: Apache-2.0
// The prompts of baton-lab bench, and one pass of an agent through the engine.
#pragma once

#include <map>

#include <baton/lab/bench.h>

#include "engine/reuse/anchors/anchors.h"
#include "engine/reuse/options.h"
#include "sdk/src/internal.h"

namespace baton::inline v1::lab {

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
  /// Gives every agent's placeholders `count` anchors of random texts and offsets: what a correction costs does not
  /// depend on them.
  void add_anchors(LocalEngine& engine, int count, int repeat);
  /// Lets the engine see each agent's prompt once, so that it knows its placeholders. False when it was stopped.
  bool learn_anchors(InferenceEngine& engine) const;
  /// Releases the memory of all anchors.
  static void drop_anchors(LocalEngine& engine);

  /// A method and the settings of its variant.
  struct Way {
    const Method* method = &full_method();
    int anchors = 0;
    double select = 0;
    int repeat = 0;
  };
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
  std::vector<std::uint16_t> numbers_like(std::size_t count, std::uint64_t& state) const;
  ReuseOptions reuse(const Way& way, int agent) const;
  static const std::string& learned_pool();  // of the anchors that the engine learned itself
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
  // By the number of placeholders in front, and the anchor's own.
  std::map<std::pair<std::size_t, int>, std::shared_ptr<const std::vector<std::uint16_t>>> offsets_;
  std::vector<std::vector<TokenId>> roles_;  // [agents]
  std::vector<TokenId> separator_;
  std::vector<std::vector<TokenId>> reused_;  // the question, then the answers
  std::vector<SegmentHandle> segments_;       // of those
  std::vector<TokenId> last_answer_;          // which nobody reads
};

}  // namespace baton::inline v1::lab
