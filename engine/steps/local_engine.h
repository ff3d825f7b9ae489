// SPDX-License-Identifier: Apache-2.0
// LocalEngine: the engine in this process. One thread runs steps; a step is a transaction: plan rows, reserve, run,
// commit or fail the requests that took part.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/model/forward.h"
#include "engine/steps/sequence.h"

namespace baton {

class LocalEngine final : public InferenceEngine {
 public:
  LocalEngine(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, const LocalEngineOptions& options);
  /// Open requests finish as cancelled.
  ~LocalEngine() override;

  RequestId submit(GenerationRequest request) override;
  void cancel(RequestId id) override;
  EarlyId prepare(EarlyPrompt prompt) override;
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) override;
  void forget(EarlyId id) override;
  const Model& model() const override;
  BackendInfo device() const override;
  EngineStats stats() const override;
  AnchorStore& anchors() override;
  std::shared_ptr<const Segment> segment(const SegmentHandle& handle) const override;
  std::shared_ptr<const Segment> portable(const SegmentHandle& handle) const override;
  LayerRange layer_range() const override;
  void set_layer_range(LayerRange range) override;
  /// Sends the segments that no request reads to host memory, where the engine has such a tier, and returns when they
  /// are there: the device's memory is free for others, and the first to read them waits for their return.
  /// Not from a callback.
  void park();
  void set_corrections(std::shared_ptr<const Corrections> corrections) override;

 private:
  class Core;
  std::shared_ptr<Core> core_;  // shared with the thread, which may outlive this object by one callback
  std::thread thread_;
};

}  // namespace baton
