// SPDX-License-Identifier: Apache-2.0
// DecodePace: how much slower answers are decoded while prompts are sent ahead, and whether another may be sent. A
// local engine bounds the same slow-down by rows (SpareRows); of a server only times can be seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/event_stream.h"
#include "engine/engine.h"
#include "engine/remote/open_server.h"
#include "engine/remote/server_api.h"

namespace baton {

/// One thread at a time.
class DecodePace {
 public:
  /// `slowdown`: the fraction by which decoding may become slower on average.
  explicit DecodePace(double slowdown) : slowdown_(slowdown) {}

  /// A token of a request came.
  void token(RequestId request, Clock::time_point now);
  void ended(RequestId request) { last_.erase(request); }
  void sent() { busy_ = ++in_flight_ > 0; }
  void answered() { --in_flight_; }

  /// True while nothing is decoded, and while the time that decoding has lost is within the bound.
  bool may_send() const { return last_.empty() || (quiet_ms_ > 0.0 && owed_ms_ <= 0.0); }

 private:
  double slowdown_;
  std::map<RequestId, Clock::time_point> last_;  // tokens of requests that decode
  int in_flight_ = 0;
  bool busy_ = false;      // since the last token a prompt was sent ahead, or is
  double quiet_ms_ = 0.0;  // between two tokens while none is, on average; 0: not measured
  double owed_ms_ = 0.0;   // lost by prompts sent ahead, less what the bound allowed since
};

// WarmUps: the prompts of waiting requests, which are sent ahead to the server so that its prefix cache has them. Which
// prompts these are, and what is known of each, the workflow tells as it tells a local engine
// (InferenceEngine::prepare); this class says what of them is worth a request.

/// One thread at a time.
class WarmUps {
 public:
  /// `block`: new tokens that are worth a request, more where the server is slow. `slots`: the server's; one of them
  /// stays free of waiting prompts.
  WarmUps(std::int32_t block, int slots) : block_(static_cast<std::size_t>(block)), worth_(block_), slots_(slots) {}

  struct Sent {
    EarlyId id = 0;
    std::vector<TokenId> prompt;
    int slot = -1;
  };
  /// What has been sent of a prompt.
  struct Warmth {
    int slot = -1;             // where it is; -1: unknown
    std::int64_t before = -1;  // its first tokens that the server had already; -1: nothing has arrived there
  };

  void add(EarlyId id, EarlyPrompt prompt) { prompts_[id].prompt = std::move(prompt); }
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete);
  /// The prompt waits no longer.
  Warmth take(EarlyId id);

  /// A running request has decoded these tokens so far.
  void decoded(RequestId request, const std::vector<TokenId>& tokens);

  /// The first prompt of which enough is new, those with a slot before those without. Nothing: there is none, or one is
  /// under way: the turns that come first are to have what the server can spare.
  std::optional<EarlyId> next() const;
  bool has_slot(EarlyId id) const;
  /// Chooses a slot for the prompt, one of `idle`. False: none is free for it.
  bool choose_slot(EarlyId id, const std::vector<int>& idle);
  /// The prompt, as far as it is known, is being sent, or so much of it as the server computes in kRequestMs. Nothing:
  /// it waits no longer.
  std::optional<Sent> send(EarlyId id);
  /// The server has it, after `ms` milliseconds. `cached`: tokens that it had before; -1: not told.
  void arrived(EarlyId id, std::int64_t cached, int slot, double ms);
  /// It did not arrive, and is not sent again before there is more of it.
  void failed(EarlyId id);

 private:
  struct Waiting {
    EarlyPrompt prompt;
    std::size_t sent = 0;   // tokens
    std::size_t known = 0;  // those of earlier requests among them
    bool under_way = false;
    Warmth warmth;
  };

  std::vector<TokenId> known(const EarlyPrompt& prompt) const;
  std::size_t known_size(const EarlyPrompt& prompt) const;
  void forget_decoded();

  std::size_t block_, worth_;
  int slots_;
  double most_ = 64.0;                                 // new tokens of the next request
  std::map<EarlyId, Waiting> prompts_;                 // in the order of prepare
  std::map<RequestId, std::vector<TokenId>> decoded_;  // tokens of requests that some prompt follows
};

// RemoteEngine: an engine whose model runs on a server of another project. Requests are streamed; waiting prompts are
// sent ahead into the server's prefix cache (docs/remote.md). It hands no KV over: the server has it.

class RemoteEngine final : public InferenceEngine {
 public:
  struct Parts {
    std::unique_ptr<ModelServer> server;
    std::unique_ptr<const ServerApi> api;
    std::shared_ptr<const ModelText> text;
    EngineInfo info;
    int slots = 0;                                // slots of a server that has some; below 2 nothing is sent ahead
    double slowdown = 0.0;                        // bound of DecodePace
    double patience = AttemptPauses::kAtOpening;  // limit of the pauses between attempts
    std::function<void(TokenId)> on_plain;        // goes to ServerAnswer
    /// Where the server tells which model it has, and how to read that from the answer; empty: nowhere. A server that
    /// was started anew is asked, since ids mean nothing to another model.
    std::string identity_path;
    std::function<std::string(std::string_view json)> identity_of;
    std::string identity;

    bool has_slots() const { return !api->slots_path().empty(); }
  };

  explicit RemoteEngine(Parts parts);
  ~RemoteEngine() override;

  RequestId submit(GenerationRequest request) override;
  void cancel(RequestId id) override;
  EarlyId prepare(EarlyPrompt prompt) override;
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) override;
  void forget(EarlyId id) override;
  std::shared_ptr<const Segment> exported_kv(const SegmentHandle&) const override { return nullptr; }
  const ModelText& text() const override { return *parts_.text; }
  const EngineInfo& info() const override { return parts_.info; }
  EngineStats stats() const override { return {}; }

 private:
  struct Live;

  RequestId accept(GenerationRequest request);

  // On the loop's thread. It drops what is thrown there, so a failure ends the request; what is sent ahead may get
  // lost.
  template <class Work>
  void or_end(Live& live, const Work& work) noexcept;
  void start(Live& live) noexcept;
  void ask(Live& live);
  void take(Live& live, std::string_view event);
  void ended(Live& live, const HttpEnd& end) noexcept;
  void attempt_again(RequestId id, double pause);
  void check_identity(Live& live);
  void finish(Live& live, FinishReason reason, std::string_view error = {}) noexcept;
  void prefilled(Live& live) noexcept;
  void send_ahead() noexcept;
  void choose_slot(EarlyId id);
  void warm(EarlyId id);
  void hold() noexcept;

  Parts parts_;
  HttpLoop& loop_;
  std::atomic<std::uint64_t> last_id_ = 0;  // counts requests and early prompts
  using LiveMap = std::map<RequestId, std::unique_ptr<Live>>;
  LiveMap live_;
  WarmUps warm_ups_;
  DecodePace pace_;
  bool choosing_ = false;       // the server is being asked for its idle slots
  bool held_ = false;           // nothing is sent ahead for a moment
  bool model_thinks_ = false;   // as a server that takes messages has shown
  bool warm_ups_yield_ = true;  // until the server refuses to be told so
  std::atomic<bool> closing_ = false;
  std::promise<void> closed_;
};

}  // namespace baton
