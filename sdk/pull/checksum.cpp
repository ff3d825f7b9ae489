// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <stdexcept>
#include <string_view>

#include "sdk/hub/model_source.h"

namespace baton {
namespace {

/// OpenSSL refuses an algorithm where the system's policy forbids it.
void check(int ok) {
  if (ok != 1) throw std::runtime_error("OpenSSL cannot compute a checksum");
}

}  // namespace

struct ChecksumStream::State {
  ~State() { EVP_MD_CTX_free(context); }
  EVP_MD_CTX* context = nullptr;
};

std::string Checksum::text() const {
  if (kind == Kind::none) return "";
  return fmt::format("{}:{}", kind == Kind::sha256 ? "sha256" : "git-sha1", hex);
}

Checksum checksum_of(const std::string& hex) {
  if (is_hex(hex, 64)) return {Checksum::Kind::sha256, hex};
  if (is_hex(hex, 40)) return {Checksum::Kind::git_sha1, hex};
  return {};
}

ChecksumStream::ChecksumStream(Checksum::Kind kind, std::int64_t bytes) : state_(std::make_unique<State>()) {
  if (kind == Checksum::Kind::none) return;
  state_->context = EVP_MD_CTX_new();
  if (state_->context == nullptr) throw std::bad_alloc();
  check(EVP_DigestInit_ex(state_->context, kind == Checksum::Kind::sha256 ? EVP_sha256() : EVP_sha1(), nullptr));
  if (kind != Checksum::Kind::git_sha1) return;
  std::string head = fmt::format("blob {}", bytes);
  head += '\0';
  add(std::as_bytes(std::span(head)));
}

ChecksumStream::~ChecksumStream() = default;
ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream& ChecksumStream::operator=(ChecksumStream&&) noexcept = default;

void ChecksumStream::add(std::span<const std::byte> bytes) {
  if (state_->context != nullptr) check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string ChecksumStream::hex() {
  if (state_->context == nullptr) return "";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(state_->context, digest.data(), &size));
  std::string text;
  for (unsigned int at = 0; at < size; ++at) text += fmt::format("{:02x}", digest.at(at));
  return text;
}

}  // namespace baton
