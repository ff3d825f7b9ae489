// SPDX-License-Identifier: Apache-2.0
// StepEngine: implements LocalEngine. One thread runs engine steps over all running sequences (EngineLoop); this
// class checks what callers hand in, puts it into the thread's inbox, and owns the thread.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/local_engine.h"

namespace baton {

struct EngineParts;

class StepEngine final : public LocalEngine {
 public:
  StepEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const LocalEngineOptions& options);
  /// Open requests finish as cancelled.
  ~StepEngine() override;

  void read_vocabulary(const std::stop_token& stop) override;
  RequestId submit(GenerationRequest request) override;
  void cancel(RequestId id) override;
  EarlyId prepare(EarlyPrompt prompt) override;
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) override;
  void forget(EarlyId id) override;
  std::shared_ptr<const Segment> exported_kv(const SegmentHandle& handle) const override;
  const ModelText& text() const override;
  const EngineInfo& info() const override;
  EngineStats stats() const override;

  const Model& model() const override;
  MethodState* method_state(const Method& method) override;
  std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const override;
  Calibration calibration() const override;
  void set_calibration(Calibration calibration) override;
  std::optional<RelayHistory> changed_history() override;
  std::vector<std::byte> context_bytes(const ContextHandle& context) override;
  ContextHandle make_context(std::vector<TokenId> tokens, std::int32_t exact, int hops,
                             std::vector<std::byte> bytes) override;
  bool may_have_store() const override;
  void set_store(std::unique_ptr<KvStore> store, bool for_all) override;
  void finish_store() override;
  void park() override;

 private:
  RequestId add(GenerationRequest request);

  std::shared_ptr<EngineParts> parts_;  // shared with the thread, which may outlive this object by one callback
  std::thread thread_;
};

}  // namespace baton
