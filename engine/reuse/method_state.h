// SPDX-License-Identifier: Apache-2.0
// What a method keeps in an engine from prompt to prompt (pools, uploaded corrections), and what it does with the texts
// of one prompt. The hooks are called on the engine's thread, in this order: look; for each text place, then insert;
// release when the prompt has run; on_token and on_end; learn at the end of a complete request.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/rope.h"
#include "engine/reuse/decision.h"
#include "engine/reuse/placement.h"
#include "engine/reuse/schedule.h"

namespace baton {

/// A prompt whose texts may be placed.
struct PromptToPlace {
  const ReuseOptions& reuse;
  std::span<const PromptPart> parts;
  const std::string& reader;                                 // whose prompt it is
  std::span<const std::shared_ptr<const Segment>> segments;  // of each part; null: it has no KV to reuse
  std::shared_ptr<const Corrections> corrections;            // Calibration::corrections
};

/// The texts of one prompt.
class PromptTexts {
 public:
  virtual ~PromptTexts() = default;
  /// Whether the segment of a part is placed. Returns false when the part is to be computed in full; `use.reason` then
  /// says why.
  virtual bool place(std::size_t, PlacedSegment&, PartUse&) { return true; }
  /// Tokens of fixed text behind the part whose KV is placed as well.
  virtual std::int32_t following(std::size_t) const { return 0; }
  /// Whether the part can be placed layer by layer, while it is uploaded.
  virtual bool by_layer(std::size_t) const { return true; }
  /// Copies tokens from `first` on into these layers of the cache. Returns false when the segment is to be copied as it
  /// is. `placed.segment` is null for the fixed text behind the part.
  virtual bool insert(RopeTable&, KvCache&, std::size_t, const PlacedSegment&, std::int32_t, LayerSpan) {
    return false;
  }
  /// The prompt is in the cache: what is not needed by learn() is released.
  virtual void release() {}
  /// The request is complete, and its cache holds the whole prompt.
  virtual void learn(const KvCache&) {}
};

/// A request that writes an answer which later prompts will hold in a placeholder.
struct WritingRequest {
  std::uint64_t id = 0;
  const ReuseOptions& reuse;
  const std::string& slot;          // the answer's placeholder
  std::span<const TokenId> answer;  // so far
};

class MethodState {
 public:
  virtual ~MethodState() = default;
  /// Looks at a prompt before its KV is placed. Null: its texts are placed as they are.
  virtual std::unique_ptr<PromptTexts> look(const PromptToPlace& prompt) = 0;
  /// A token was appended. A shortage of memory loses the preparation, nothing else.
  virtual void on_token(const WritingRequest&) noexcept {}
  /// The request has ended with this answer, whose first `with_kv` tokens have KV.
  virtual void on_end(std::uint64_t, std::span<const TokenId>, std::int32_t) {}

  // The functions below are safe from any thread.

  virtual std::int64_t bytes() const { return 0; }
  /// Sets a callback that gets changes of bytes(). Must be set before the state is used.
  virtual void on_bytes(std::function<void(std::int64_t)>) {}
  /// Sets a callback that gets each text that is learned from, on one thread; null: none. flush() waits for all of
  /// them.
  virtual void on_sample(std::function<void(const PlaceSample&)>) {}
  virtual void flush() const {}
  /// Reads what an earlier process kept in the folder for this model, or writes it there. Throws std::runtime_error.
  virtual void load(const std::filesystem::path&, const Model&) {}
  virtual void save(const std::filesystem::path&, const Model&) const {}
};

/// The states of all methods in one engine.
class MethodStates {
 public:
  /// Makes the states of the methods that keep one.
  MethodStates(std::span<const Method* const> methods, Backend& backend, const Model& model, const StateBudget& budget);

  /// Returns the state of a method, or null if it keeps none.
  MethodState* of(const Method& method) const;
  void on_token(const WritingRequest& request) noexcept;
  void on_end(std::uint64_t request, std::span<const TokenId> answer, std::int32_t with_kv);
  void on_bytes(const std::function<void(std::int64_t)>& changed);
  std::int64_t bytes() const;

 private:
  struct Entry {
    decltype(Method::make_state) make;
    std::unique_ptr<MethodState> state;
  };
  std::vector<Entry> entries_;
};

}  // namespace baton
