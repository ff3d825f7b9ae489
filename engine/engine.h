// Entry of the engine layer: submit a request, follow its events, collect its result. All running sequences share
// every step; see engine/step.h and docs/architecture.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/model.h"
#include "engine/model/sampler.h"

namespace baton {

class EngineError : public std::runtime_error {
 public:
  enum class Kind { too_long, memory, invalid };
  EngineError(Kind what_kind, const std::string& message) : std::runtime_error(message), kind(what_kind) {}
  Kind kind;
};

/// A prompt is a list of parts, each already token ids: fixed text, or the value of a placeholder.
struct PromptPart {
  std::string slot;  // placeholder name; empty for fixed text
  std::vector<TokenId> tokens;
};

enum class FinishReason : std::uint8_t { eos, stop, length, cancelled, error };
std::string name_of(FinishReason reason);

struct GenerationResult {
  FinishReason reason = FinishReason::eos;
  std::vector<TokenId> tokens;  // generated, without the EOS; with the tokens of a stop string cut off
  std::string text;             // decoded, cut before the stop string
  std::string error;            // when reason is error
  std::int64_t prompt_tokens = 0;
  std::int64_t kv_entries = 0;  // prompt tokens x layers
  std::int64_t kv_computed = 0; // of those, computed rather than reused
  double queue_ms = 0.0;        // submit to the first step
  double prefill_ms = 0.0;      // first step to the logits of the last prompt token
  double ttft_ms = 0.0;         // submit to the first token
  double decode_ms = 0.0;       // first token to the last
};

using RequestId = std::uint64_t;

/// Callbacks run on the engine's thread, in order, one at a time; they must return soon and may call submit and cancel.
struct GenerationCallbacks {
  std::function<void()> on_prefilled;
  std::function<void(TokenId id, const std::string& text)> on_token;
  std::function<void(GenerationResult)> on_finished;  // exactly once for each accepted request
};

struct GenerationRequest {
  std::vector<PromptPart> prompt;
  SamplingParams sampling;
  std::int32_t max_tokens = 256;
  std::vector<std::string> stop;  // output ends before the first of these; none may be empty
  GenerationCallbacks callbacks;
};

struct EngineStats {
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes = 0;       // now
  std::int64_t kv_peak_bytes = 0;  // since the last reset
  std::int64_t steps = 0;
  std::int64_t rows = 0;           // of all steps
};

/// What the workflow layer sees. Implementations: LocalEngine here; a client of a remote server can stand beside it.
/// All members are safe from any thread.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Takes the request or throws EngineError: the prompt does not fit the context (both numbers are in the message),
  /// memory, or parameters out of range. max_tokens is cut to what the context leaves.
  virtual RequestId submit(GenerationRequest request) = 0;

  /// The request ends at the next step with FinishReason::cancelled and what it has; unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;

  virtual const Model& model() const = 0;
  virtual BackendInfo device() const = 0;
  virtual EngineStats stats() const = 0;
};

struct EngineOptions {
  std::string device = "auto";
  int threads = 0;                    // CPU threads; 0: one per core
  ModelOptions model;
  std::int64_t kv_budget_bytes = 0;   // 0: half of the free memory
  std::int32_t max_step_rows = 512;   // rows of one step: prompts are split into chunks of at most this
  std::int32_t max_sequences = 64;    // running at once; further requests wait their turn
};

/// Opens a model folder on a device and starts the engine's thread. Throws ModelError, BackendError.
std::shared_ptr<Engine> open_engine(const std::filesystem::path& model, const EngineOptions& options);

}  // namespace baton
