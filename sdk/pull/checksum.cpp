// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/checksum.h"

#include <fmt/format.h>

#include <string_view>

#include "sdk/hub/model_source.h"

namespace baton {

std::string Checksum::text() const {
  if (kind == Kind::none) return "";
  return fmt::format("{}:{}", kind == Kind::sha256 ? "sha256" : "git-sha1", hex);
}

Checksum checksum_of(const std::string& hex) {
  if (is_hex(hex, 64)) return {Checksum::Kind::sha256, hex};
  if (is_hex(hex, 40)) return {Checksum::Kind::git_sha1, hex};
  return {};
}

ChecksumStream::ChecksumStream(Checksum::Kind kind, std::int64_t bytes) {
  if (kind == Checksum::Kind::none) return;
  const bool sha256 = kind == Checksum::Kind::sha256;
  digest_ = std::make_unique<Digest>(sha256 ? Digest::Algorithm::sha256 : Digest::Algorithm::sha1);
  if (sha256) return;
  std::string head = fmt::format("blob {}", bytes);
  head += '\0';
  add(std::as_bytes(std::span(head)));
}

void ChecksumStream::add(std::span<const std::byte> bytes) {
  if (digest_) digest_->add(bytes);
}

std::string ChecksumStream::hex() {
  std::string text;
  if (!digest_) return text;
  for (const unsigned char byte : digest_->result()) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace baton
