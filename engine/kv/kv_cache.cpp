#include "engine/kv/kv_cache.h"

#include <fmt/format.h>

#include <stdexcept>

namespace baton {
namespace {

std::int32_t round_up_to_blocks(std::int32_t positions) {
  return (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
}

}  // namespace

std::size_t KvCache::bytes_for(const Backend& backend, const KvShape& shape, std::int32_t layers,
                               std::int32_t positions) {
  return 2 * static_cast<std::size_t>(layers) * backend.kv_slab_bytes(shape, round_up_to_blocks(positions));
}

KvCache::KvCache(Backend& backend, const KvShape& shape, std::int32_t layers, std::int32_t positions)
    : buffer_(backend.allocate(bytes_for(backend, shape, layers, positions))),
      slab_bytes_(backend.kv_slab_bytes(shape, round_up_to_blocks(positions))),
      layers_(layers),
      capacity_(round_up_to_blocks(positions)) {}

KvSlab KvCache::slab(std::int32_t layer) const {
  std::byte* keys = buffer_.data() + 2 * static_cast<std::size_t>(layer) * slab_bytes_;
  return {keys, keys + slab_bytes_, capacity_};
}

void KvCache::commit(std::int32_t length) {
  if (length < length_ || length > capacity_) {
    throw std::logic_error(fmt::format("KV cache: commit of {} positions; {} are written, {} fit", length, length_, capacity_));
  }
  length_ = length;
}

}  // namespace baton
