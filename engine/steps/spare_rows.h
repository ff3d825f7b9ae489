// SPDX-License-Identifier: Apache-2.0
// SpareRows: how many rows may ride along in decode steps. Decoding is bound by reading the weights, so up to a point,
// the knee, more rows cost little; where it lies depends on the device, the model, the depth and the load, so it is
// measured all the time, on the steps that run.
#pragma once

#include <cstdint>
#include <map>

namespace baton {

class SpareRows {
 public:
  /// `slowdown`: by how much rows that ride along may lengthen decode steps on average, as a part of a step (0.25).
  /// `most`: rows that a step takes.
  SpareRows(double slowdown, std::int32_t most);

  /// Rows that the next step may take beside its `decoding` rows, of which there is at least one. Rows that are not
  /// taken are saved up, so that steps can take several at once. 0 every now and then: a step without any shows what
  /// the others are measured against.
  std::int32_t next(std::int32_t decoding);

  /// A step of `decoding` and `spare` rows took so long; after next(), or, where nothing wants to ride along, without.
  void on_step(std::int32_t decoding, std::int32_t spare, double milliseconds);

  /// Rows for each step beside one decoding sequence that were last found to fit, on average; 0: not measured yet.
  std::int32_t knee() const;

 private:
  struct Level {           // steps with so many decoding rows
    double plain = 0;      // milliseconds without rows that ride along; 0: not measured
    double slower = 0;     // by which part steps were slower than that
    double rows = 0;       // that rode along in a step
    double limit = 0;      // of that
    double credit = 0;     // rows saved up
    std::int32_t age = 0;  // steps since the last plain one
  };
  Level& level(std::int32_t decoding);

  double slowdown_;
  double most_;
  bool asked_ = false;  // for the step that comes
  std::map<std::int32_t, Level> levels_;
};

}  // namespace baton
