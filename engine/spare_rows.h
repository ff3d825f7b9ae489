// SpareRows: how many rows may ride along in a decode step. Decoding is bound by reading the weights, so up to a point,
// the knee, more rows cost little; where it lies depends on the device, the model, the depth and the load, so it is
// measured all the time, on the steps that run.
#pragma once

#include <cstdint>
#include <map>

namespace baton {

class SpareRows {
 public:
  /// `slowdown`: by how much rows that ride along may lengthen a step, as a part of it (0.25).
  explicit SpareRows(double slowdown, std::int32_t most);

  /// Rows that the next step may take beside its `decoding` rows, at least one of them. 0 every now and then: a step
  /// without any shows what the others are measured against.
  std::int32_t next(std::int32_t decoding);

  /// A step of `decoding` and `spare` rows took so long.
  void on_step(std::int32_t decoding, std::int32_t spare, double milliseconds);

  /// Rows beside one decoding sequence that were last found to fit; 0: not measured yet.
  std::int32_t knee() const;

 private:
  struct Level {           // steps with so many decoding rows
    double plain = 0;      // milliseconds without rows that ride along, a moving mean; 0: not measured
    double slower = 0;     // by which part those with rows were slower, a moving mean
    double limit = 0;      // rows of a step, on average
    double credit = 0;     // of them not given yet, a part of a row
    std::int32_t age = 0;  // steps since the last plain one
  };
  Level& level(std::int32_t decoding);

  double slowdown_;
  double most_;
  std::map<std::int32_t, Level> levels_;
};

}  // namespace baton
