// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/transfers.h"

#include <algorithm>

#include "engine/cuda/host/check.h"

namespace baton::cuda {

StreamOwner::StreamOwner() { BATON_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

EventOwner::EventOwner(unsigned flags) { BATON_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags)); }

TransferId Transfers::give(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  forget_made();
  const cudaStream_t stream = lane(transfer.up);
  // What the first part of a piece of memory waited for, the next need not.
  const bool begun = transfer.up && std::ranges::any_of(pending_, [&](const Pending& one) {
                       return one.up && one.memory == transfer.memory;
                     });
  if (!begun) {
    BATON_CUDA_CHECK(cudaEventRecord(given_.get(), main_));
    BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, given_.get()));
  }
  if (const Pending* before = find(transfer.after); before != nullptr && before->up != transfer.up)
    BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, before->made->get()));
  BATON_CUDA_CHECK(cudaMemcpyAsync(transfer.up ? transfer.device : transfer.host,
                                   transfer.up ? transfer.host : transfer.device, transfer.bytes,
                                   transfer.up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
  if (spare_.empty()) spare_.push_back(std::make_unique<EventOwner>());
  BATON_CUDA_CHECK(cudaEventRecord(spare_.back()->get(), stream));
  pending_.push_back({++last_, transfer.up, transfer.memory, std::move(spare_.back())});
  spare_.pop_back();
  return last_;
}

void Transfers::follow(TransferId transfer) {
  const std::lock_guard lock(mutex_);
  const Pending* found = find(transfer);
  if (found == nullptr) return;
  BATON_CUDA_CHECK(cudaStreamWaitEvent(main_, found->made->get()));
  for (Pending& one : pending_) {
    if (one.up == found->up && one.number <= transfer) one.memory = nullptr;
  }
}

void Transfers::wait_for(TransferId transfer) {
  const std::lock_guard lock(mutex_);
  if (const Pending* found = find(transfer)) BATON_CUDA_CHECK(cudaEventSynchronize(found->made->get()));
}

void Transfers::synchronize() {
  for (const bool up : {true, false}) BATON_CUDA_CHECK(cudaStreamSynchronize(lane(up)));
}

void Transfers::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto is_of = [&](const Pending& one) { return one.memory == memory; };
  const auto newest = std::find_if(pending_.rbegin(), pending_.rend(), is_of);
  if (newest == pending_.rend()) {
    cudaFreeAsync(memory, main_);
    return;
  }
  const cudaStream_t last = lane(newest->up);
  cudaEventRecord(given_.get(), main_);
  cudaStreamWaitEvent(last, given_.get());
  for (Pending& one : pending_) {
    if (is_of(one)) one.memory = nullptr;  // another piece may get its address
  }
  cudaFreeAsync(memory, last);
}

const Transfers::Pending* Transfers::find(TransferId number) const {
  const auto found = std::ranges::lower_bound(pending_, number, {}, &Pending::number);
  return found != pending_.end() && found->number == number ? &*found : nullptr;
}

void Transfers::forget_made() {
  for (Pending& one : pending_) {
    if (cudaEventQuery(one.made->get()) == cudaSuccess) spare_.push_back(std::move(one.made));
  }
  cudaGetLastError();  // that others are not made yet is no error
  std::erase_if(pending_, [](const Pending& one) { return one.made == nullptr; });
}

}  // namespace baton::cuda
