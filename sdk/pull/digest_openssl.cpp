// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <new>
#include <stdexcept>

#include "sdk/pull/hub_access.h"

namespace baton {
namespace {

/// OpenSSL refuses an algorithm if the system's policy forbids it.
void check(int ok) {
  if (ok != 1) throw std::runtime_error("OpenSSL cannot compute a checksum");
}

}  // namespace

struct Digest::Computation {
  ~Computation() { EVP_MD_CTX_free(context); }
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Digest::Digest(Algorithm algorithm) : computation_(std::make_unique<Computation>()) {
  if (computation_->context == nullptr) throw std::bad_alloc();
  check(EVP_DigestInit_ex(computation_->context, algorithm == Algorithm::sha256 ? EVP_sha256() : EVP_sha1(), nullptr));
}

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(computation_->context, bytes.data(), bytes.size()));
}

std::vector<unsigned char> Digest::result() {
  std::vector<unsigned char> bytes(EVP_MAX_MD_SIZE);
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(computation_->context, bytes.data(), &size));
  bytes.resize(size);
  return bytes;
}

}  // namespace baton
