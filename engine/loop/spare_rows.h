// SPDX-License-Identifier: Apache-2.0
// SpareRows: the number of rows of prompts that decode steps may add. Decoding is bound by reading the weights, so up
// to a point, the knee, additional rows cost little. The knee depends on the device, the model, the depth and the load,
// so it is measured continuously on the steps that run.
#pragma once

#include <cstdint>
#include <map>

namespace baton {

class SpareRows {
 public:
  /// `slowdown`: the fraction by which added rows may lengthen decode steps on average.
  /// `max_rows`: maximum rows of a step.
  SpareRows(double slowdown, std::int32_t max_rows);

  /// Returns the number of rows that the next step may add to its `decoding` rows (at least 1). Rows that are not used
  /// are saved up, so that a later step can add several at once. Now and then it returns 0 in several steps in
  /// succession, so that the last of them is undisturbed: the baseline of the measurement. `row_ms`: time of a row in a
  /// step of many rows, from which the first limit follows; 0: not measured.
  std::int32_t next(std::int32_t decoding, double row_ms = 0);

  /// Reports the duration of a step with `decoding` and `spare` rows. Also called without next() when there are no rows
  /// to add or none that decode. More rows than next() allowed (rows that must run in one step) delay later ones and
  /// are not measured.
  void on_step(std::int32_t decoding, std::int32_t spare, double milliseconds);

  /// Milliseconds of a step without added rows; 0: not measured yet.
  double plain_ms(std::int32_t decoding) const;

  /// Average number of rows that fit into a step with one decoding sequence, as last measured; 0: not measured yet.
  std::int32_t knee() const;

 private:
  struct Level {           // the steps with one number of decoding rows
    double plain = 0;      // milliseconds of a step without added rows; 0: not measured
    bool settled = false;  // `plain` is of undisturbed steps
    double slower = 0;     // fraction by which steps were slower than `plain`
    double rows = 0;       // mean of the added rows of a step
    double limit = 0;      // maximum of the mean
    double credit = 0;     // rows saved up
  };
  Level& level(std::int32_t decoding);

  double slowdown_;
  double max_rows_;
  bool asked_ = false;      // next() was called for the next step
  std::int32_t quiet_ = 0;  // steps without added rows since the last one with some
  std::int32_t age_ = 0;    // steps since the last undisturbed one
  std::map<std::int32_t, Level> levels_;
};

}  // namespace baton
