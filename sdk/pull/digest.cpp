// SPDX-License-Identifier: Apache-2.0
// Checksums: those of Windows there, elsewhere OpenSSL's.
#ifdef _WIN32
#include <windows.h>
// after it
#include <bcrypt.h>
#else
#include <openssl/evp.h>
#endif

#include <algorithm>
#include <new>
#include <stdexcept>

#include "sdk/pull/hub_access.h"

namespace baton {

#ifdef _WIN32

namespace {

void check(NTSTATUS status) {
  if (status < 0) throw std::runtime_error("Windows cannot compute a checksum");
}

}  // namespace

struct Digest::Computation {
  ~Computation() {
    if (hash != nullptr) BCryptDestroyHash(hash);
    if (provider != nullptr) BCryptCloseAlgorithmProvider(provider, 0);
  }
  BCRYPT_ALG_HANDLE provider = nullptr;
  BCRYPT_HASH_HANDLE hash = nullptr;
  std::size_t bytes = 0;  // size of the result
};

Digest::Digest(Algorithm algorithm) : computation_(std::make_unique<Computation>()) {
  const bool sha256 = algorithm == Algorithm::sha256;
  computation_->bytes = sha256 ? 32 : 20;
  check(BCryptOpenAlgorithmProvider(&computation_->provider, sha256 ? BCRYPT_SHA256_ALGORITHM : BCRYPT_SHA1_ALGORITHM,
                                    nullptr, 0));
  check(BCryptCreateHash(computation_->provider, &computation_->hash, nullptr, 0, nullptr, 0, 0));
}

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // a call takes a number of 32 bits
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kMaxBytes, bytes.size()));
    auto* data = reinterpret_cast<PUCHAR>(const_cast<std::byte*>(piece.data()));  // it is only read
    check(BCryptHashData(computation_->hash, data, static_cast<ULONG>(piece.size()), 0));
    bytes = bytes.subspan(piece.size());
  }
}

std::vector<unsigned char> Digest::result() {
  std::vector<unsigned char> bytes(computation_->bytes);
  check(BCryptFinishHash(computation_->hash, bytes.data(), static_cast<ULONG>(bytes.size()), 0));
  return bytes;
}

#else

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

#endif

}  // namespace baton
