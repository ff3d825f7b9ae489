#include "engine/anchor_memory.h"

namespace baton {
namespace {

ConstTensorView rows_of(const std::byte* data, std::int64_t rows, const AnchorShape& shape) {
  const std::int64_t width = 2 * std::int64_t{shape.width};
  return BasicView<const std::byte>{data, DType::bf16, rows, width, width};
}

const std::byte* layer_of(const Buffer& buffer, const Anchor& anchor, std::int32_t layer) {
  return buffer.data() +
         buffer.bytes() / static_cast<std::size_t>(anchor.shape.layers) * static_cast<std::size_t>(layer);
}

}  // namespace

const AnchorMemory::Copy& AnchorMemory::copy_of(const SharedAnchor& anchor) {
  const auto known = copies_.find(anchor.get());
  if (known != copies_.end() && !known->second.anchor.expired()) return known->second;
  std::erase_if(copies_, [](const auto& entry) { return entry.second.anchor.expired(); });
  Copy copy{anchor, backend_.allocate(anchor->offset.size_bytes()), backend_.allocate(anchor->text_kv.size_bytes())};
  backend_.copy_to_device(copy.offset.data(), std::as_bytes(anchor->offset));
  backend_.copy_to_device(copy.text.data(), std::as_bytes(anchor->text_kv));
  return copies_.insert_or_assign(anchor.get(), std::move(copy)).first->second;
}

void AnchorMemory::bring(const SharedAnchor& anchor) {
  if (!host_memory_) copy_of(anchor);
}

ConstTensorView AnchorMemory::offset(const SharedAnchor& anchor, std::int32_t layer) {
  const std::byte* data =
      host_memory_ ? std::as_bytes(anchor->offset_of(layer)).data() : layer_of(copy_of(anchor).offset, *anchor, layer);
  return rows_of(data, anchor->length, anchor->shape);
}

ConstTensorView AnchorMemory::text(const SharedAnchor& anchor, std::int32_t layer) {
  const std::byte* data =
      host_memory_ ? std::as_bytes(anchor->text_of(layer)).data() : layer_of(copy_of(anchor).text, *anchor, layer);
  return rows_of(data, anchor->following, anchor->shape);
}

}  // namespace baton
