// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/measured_products.h"

#include <fmt/format.h>

#include "engine/base/atomic_file.h"
#include "engine/base/hash.h"
#include "engine/base/input_file.h"
#include "engine/base/json/json_text.h"
#include "engine/base/json_fields.h"

namespace baton::cuda {
namespace {

// Files of another format are ignored. It changes also when a kernel for products of few rows does.
constexpr int kFormat = 1;

constexpr std::size_t kMaxProducts = 4096;  // a model has five shapes or so, each for one to eight rows
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 20;

}  // namespace

MeasuredProducts::MeasuredProducts(const std::filesystem::path& folder, std::string machine, int max_ways)
    : machine_(std::move(machine)) {
  if (folder.empty()) return;
  file_ = folder / fmt::format("{:016x}.json", hash_bytes(machine_.data(), machine_.size()));
  std::error_code failed;
  if (!std::filesystem::exists(file_, failed)) return;
  try {
    read(max_ways);
  } catch (const std::exception&) {
    fastest_.clear();
  }
}

void MeasuredProducts::read(int max_ways) {
  const std::string origin = file_.string();
  const JsonDocument document = parse_json(InputFile(file_).text(kMaxFileBytes), origin,
                                           {.max_depth = 2, .max_values = kMaxProducts + 4, .max_bytes = 8 << 20});
  const JsonFields fields(*document, origin);
  fields.integer("format", kFormat, kFormat);
  if (fields.text_or("machine", "") != machine_) fields.fail("machine", "expected this machine");
  const Json* all = fields.find("fastest");
  if (all == nullptr) fields.fail("fastest", "expected an object");
  const JsonFields ways(*all, origin, "fastest.");
  for (const auto& [product, way] : all->items()) fastest_[product] = ways.integer(product, 0, max_ways - 1);
}

std::optional<int> MeasuredProducts::find(const std::string& product) const {
  const auto found = fastest_.find(product);
  return found == fastest_.end() ? std::nullopt : std::optional(found->second);
}

void MeasuredProducts::add(const std::string& product, int way) {
  if (fastest_.size() >= kMaxProducts) fastest_.clear();
  fastest_[product] = way;
  if (file_.empty()) return;
  try {
    write_whole(file_, json_text(Json{{"format", kFormat}, {"machine", machine_}, {"fastest", fastest_}}));
  } catch (const std::filesystem::filesystem_error&) {  // a full disk, a folder that is read-only
  }
}

}  // namespace baton::cuda
