// SPDX-License-Identifier: Apache-2.0
// A device has the anchors that are needed, once, for as long as they live.
#include "engine/reuse/anchors/anchors.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"
#include "tests/support/simt/emulated_backend.h"

namespace baton::test::anchor_memory_test {
namespace {

SharedAnchor anchor_of(std::uint16_t first) {
  constexpr std::int32_t kLength = 5, kFollowing = 2;
  const KvWidth shape{{4, 4, 4}};
  auto values = std::make_shared<std::vector<std::uint16_t>>(3 * (kLength + kFollowing) * 8);
  for (std::size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<std::uint16_t>(first + i);
  auto anchor = std::make_shared<Anchor>();
  anchor->shape = shape;
  anchor->length = kLength;
  anchor->following = kFollowing;
  anchor->offset = std::span(*values).first(3 * kLength * 8);
  anchor->text_kv = std::span(*values).subspan(3 * kLength * 8);
  anchor->owner = values;
  return anchor;
}

void check(Backend& backend, ConstTensorView view, std::span<const std::uint16_t> expected) {
  REQUIRE(view.rows * view.cols == static_cast<std::int64_t>(expected.size()));
  std::vector<std::uint16_t> bits(expected.size());
  backend.copy_to_host(std::as_writable_bytes(std::span(bits)), view.data);
  CHECK(std::equal(bits.begin(), bits.end(), expected.begin()));
}

TEST_CASE("anchors on a device: copied once, read by layer, gone with the anchor") {
  const auto backend = make_emulated_backend();
  AnchorMemory memory(*backend);
  auto first = anchor_of(10), second = anchor_of(1000);
  memory.upload(first);
  REQUIRE(memory.size() == 2);  // offsets, and the text behind
  for (const SharedAnchor& anchor : {first, second, first}) {
    for (std::int32_t layer = 0; layer < 3; ++layer) {
      check(*backend, memory.offset(anchor)(layer), anchor->offset_of(layer));
      check(*backend, memory.text(anchor)(layer), anchor->text_of(layer));
    }
  }
  REQUIRE(memory.offset(first)(1).data == memory.offset(first)(1).data);
  REQUIRE(memory.size() == 4);
  auto sharing = std::make_shared<Anchor>();  // the same numbers for another text
  sharing->shape = first->shape;
  sharing->length = first->length;
  sharing->offset = first->offset;
  sharing->owner = first->owner;
  REQUIRE(memory.offset(sharing)(0).data == memory.offset(first)(0).data);
  REQUIRE(memory.size() == 4);
  first.reset();
  const SharedAnchor third = anchor_of(500);
  memory.upload(third);
  check(*backend, memory.offset(sharing)(2), sharing->offset_of(2));
  REQUIRE(memory.size() == 5);  // the first one's text is gone
  sharing.reset();
  for (int i = 0; i < 20; ++i) {  // another may come to lie where one was
    const SharedAnchor other = anchor_of(static_cast<std::uint16_t>(2000 + i));
    check(*backend, memory.offset(other)(2), other->offset_of(2));
    REQUIRE(memory.size() <= 6);
  }
}

TEST_CASE("anchors of a backend that reads host memory stay where they are") {
  const auto backend = make_cpu_backend(1);
  AnchorMemory memory(*backend);
  const SharedAnchor anchor = anchor_of(7);
  memory.upload(anchor);
  REQUIRE(memory.size() == 0);
  REQUIRE(memory.offset(anchor)(1).data == std::as_bytes(anchor->offset_of(1)).data());
  REQUIRE(memory.text(anchor)(2).data == std::as_bytes(anchor->text_of(2)).data());
}

}  // namespace
}  // namespace baton::test::anchor_memory_test
