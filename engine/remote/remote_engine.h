// SPDX-License-Identifier: Apache-2.0
// RemoteEngine: an engine whose model runs on a server of another project. Requests are streamed; waiting prompts are
// sent ahead into the server's prefix cache (docs/remote.md). It hands no KV over: the server has it.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/event_stream.h"
#include "engine/engine.h"
#include "engine/remote/model_server.h"
#include "engine/remote/server_answer.h"
#include "engine/remote/server_api.h"
#include "engine/remote/warm_ups.h"

namespace baton {

class RemoteEngine final : public InferenceEngine {
 public:
  struct Parts {
    std::unique_ptr<ModelServer> server;
    std::unique_ptr<const ServerApi> api;
    std::shared_ptr<const ModelText> text;
    EngineInfo info;
    int slots = 0;                          // slots of a server that has some; below 2 nothing is sent ahead
    double slowdown = 0.0;                  // bound of DecodePace
    std::function<void(TokenId)> on_plain;  // goes to ServerAnswer
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
  bool warm_ups_yield_ = true;  // until the server refuses to be told so
  std::atomic<bool> closing_ = false;
  std::promise<void> closed_;
};

}  // namespace baton
