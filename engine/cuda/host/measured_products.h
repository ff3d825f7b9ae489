// SPDX-License-Identifier: Apache-2.0
// MeasuredProducts: what was the fastest way to compute products of few rows when it was measured on this machine,
// maybe by another process. It is kept in a file for each kind of device, driver and library.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace baton::cuda {

/// Threads: one caller at a time.
class MeasuredProducts {
 public:
  /// Remembers within the process alone.
  MeasuredProducts() = default;
  /// Reads what is known of the machine. A file that cannot be read, belongs to another machine or holds anything but
  /// ways in [0, max_ways) is ignored; the next add() replaces it.
  MeasuredProducts(const std::filesystem::path& folder, std::string machine, int max_ways);

  /// The number of the fastest way to compute a product, of those that the caller numbers.
  std::optional<int> find(const std::string& product) const;
  /// Failures to write the file are ignored: the product is measured again.
  void add(const std::string& product, int way);

 private:
  void read(int max_ways);

  std::filesystem::path file_;
  std::string machine_;
  std::map<std::string, int> fastest_;
};

}  // namespace baton::cuda
