// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/anchor_memory.h"

#include <algorithm>

namespace baton {
namespace {

AnchorMemory::Layers layers_of(const std::byte* data, std::int64_t rows, const KvWidth& shape) {
  const std::int64_t width = 2 * std::int64_t{shape.width};
  return {BasicView<const std::byte>{data, DType::bf16, rows, width, width}};
}

}  // namespace

ConstTensorView AnchorMemory::Layers::operator()(std::int32_t layer) const {
  ConstTensorView view = first;
  view.data += layer * first.rows * first.cols * static_cast<std::int64_t>(sizeof(std::uint16_t));
  return view;
}

bool AnchorMemory::Copy::is_used_by(const Anchor* anchor) const {
  return std::any_of(users.begin(), users.end(), [&](const auto& user) { return user.lock().get() == anchor; });
}

bool AnchorMemory::Copy::is_unused() const {
  return std::all_of(users.begin(), users.end(), [](const auto& user) { return user.expired(); });
}

const std::byte* AnchorMemory::copy_of(const SharedAnchor& anchor, std::span<const std::uint16_t> values) {
  if (host_memory_ || values.empty()) return std::as_bytes(values).data();
  auto known = copies_.find(values.data());
  if (known != copies_.end() && known->second.is_used_by(anchor.get())) return known->second.memory.data();
  std::erase_if(copies_, [](const auto& entry) { return entry.second.is_unused(); });
  known = copies_.find(values.data());
  if (known == copies_.end()) {
    Copy copy{{}, device_.allocate_uninitialized(values.size_bytes())};
    device_.copy_to_device(copy.memory.data(), std::as_bytes(values));
    known = copies_.emplace(values.data(), std::move(copy)).first;
  }
  std::erase_if(known->second.users, [](const auto& user) { return user.expired(); });
  known->second.users.push_back(anchor);
  return known->second.memory.data();
}

void AnchorMemory::upload(const SharedAnchor& anchor) {
  copy_of(anchor, anchor->offset);
  copy_of(anchor, anchor->text_kv);
}

AnchorMemory::Layers AnchorMemory::offset(const SharedAnchor& anchor) {
  return layers_of(copy_of(anchor, anchor->offset), anchor->length, anchor->shape);
}

AnchorMemory::Layers AnchorMemory::text(const SharedAnchor& anchor) {
  return layers_of(copy_of(anchor, anchor->text_kv), anchor->following, anchor->shape);
}

}  // namespace baton
