// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/transfers.h"

#include <algorithm>

#include "engine/cuda/host/check.h"

namespace baton::cuda {

StreamOwner::StreamOwner() { BATON_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

EventOwner::EventOwner(unsigned flags) { BATON_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags)); }

TransferId Transfers::queue(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  recycle_events();
  if (spare_.empty()) spare_.push_back(std::make_unique<EventOwner>());
  const cudaStream_t stream = stream_of(transfer.upload);
  // A later upload into a block of memory need not wait again for the work that the first one waited for.
  const bool begun = transfer.upload && std::ranges::any_of(pending_, [&](const Pending& one) {
                       return one.upload && one.memory == transfer.memory;
                     });
  if (!begun) {
    BATON_CUDA_CHECK(cudaEventRecord(main_point_.get(), main_));
    BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, main_point_.get()));
  }
  if (const Pending* before = find(transfer.after); before != nullptr && before->upload != transfer.upload)
    BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, before->complete->get()));
  BATON_CUDA_CHECK(cudaMemcpyAsync(transfer.upload ? transfer.device : transfer.host,
                                   transfer.upload ? transfer.host : transfer.device, transfer.bytes,
                                   transfer.upload ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
  try {
    BATON_CUDA_CHECK(cudaEventRecord(spare_.back()->get(), stream));
  } catch (...) {  // nothing could wait for the copy: it must not outlive the call
    ignore(cudaStreamSynchronize(stream));
    throw;
  }
  pending_.push_back({++last_, transfer.upload, transfer.memory, std::move(spare_.back())});
  spare_.pop_back();
  return last_;
}

void Transfers::follow(TransferId transfer) {
  const std::lock_guard lock(mutex_);
  const Pending* found = find(transfer);
  if (found == nullptr) return;
  BATON_CUDA_CHECK(cudaStreamWaitEvent(main_, found->complete->get()));
  for (Pending& one : pending_) {
    if (one.upload == found->upload && one.id <= transfer) one.memory = nullptr;
  }
}

void Transfers::wait_for(TransferId transfer) {
  cudaEvent_t complete = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const Pending* found = find(transfer)) complete = found->complete->get();
  }
  // Without the lock, so that release() need not wait: only queue() recycles events, and its caller is here.
  if (complete != nullptr) BATON_CUDA_CHECK(cudaEventSynchronize(complete));
}

void Transfers::synchronize() {
  for (const bool upload : {true, false}) BATON_CUDA_CHECK(cudaStreamSynchronize(stream_of(upload)));
}

void Transfers::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto is_of = [&](const Pending& one) { return one.memory == memory; };
  const auto newest = std::find_if(pending_.rbegin(), pending_.rend(), is_of);
  if (newest == pending_.rend()) {
    ignore(cudaFreeAsync(memory, main_));
    return;
  }
  const cudaStream_t last = stream_of(newest->upload);
  ignore(cudaEventRecord(main_point_.get(), main_));
  ignore(cudaStreamWaitEvent(last, main_point_.get()));
  for (Pending& one : pending_) {
    if (is_of(one)) one.memory = nullptr;  // another block may get its address
  }
  ignore(cudaFreeAsync(memory, last));
}

const Transfers::Pending* Transfers::find(TransferId id) const {
  const auto found = std::ranges::lower_bound(pending_, id, {}, &Pending::id);
  return found != pending_.end() && found->id == id ? &*found : nullptr;
}

void Transfers::recycle_events() {
  for (Pending& one : pending_) {
    if (cudaEventQuery(one.complete->get()) == cudaSuccess) spare_.push_back(std::move(one.complete));
  }
  cudaGetLastError();  // resets cudaErrorNotReady of the transfers that are not complete
  std::erase_if(pending_, [](const Pending& one) { return one.complete == nullptr; });
}

}  // namespace baton::cuda
