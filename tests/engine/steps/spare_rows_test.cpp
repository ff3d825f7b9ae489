// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/spare_rows.h"

#include <catch2/catch.hpp>
#include <functional>
#include <random>

using namespace baton;

namespace {

struct Load {
  double slower = 0;  // mean of the steps, against those without rows
  double rows = 0;    // mean
};

/// Runs steps whose time is `cost(decoding, spare)`; the means are those of the second half.
Load run(SpareRows& spare, std::int32_t decoding, int steps, const std::function<double(double, double)>& cost) {
  Load load;
  for (int i = 0; i < steps; ++i) {
    const std::int32_t rows = spare.next(decoding);
    const double ms = cost(decoding, rows);
    spare.on_step(decoding, rows, ms);
    if (i < steps / 2) continue;
    load.slower += ms / cost(decoding, 0) - 1;
    load.rows += rows;
  }
  load.slower /= steps - steps / 2;
  load.rows /= steps - steps / 2;
  return load;
}

}  // namespace

TEST_CASE("spare rows: as many as the bound allows, on any device") {
  for (const double knee : {3.0, 12.0, 180.0}) {
    for (const double bound : {0.1, 0.25}) {
      SpareRows spare(bound, 512);
      std::mt19937 random(1);
      std::normal_distribution<double> noise(1.0, 0.04);
      // Free up to the knee, then each row costs as much as a step of `knee` rows' share.
      const Load load = run(spare, 1, 2000, [&](double decoding, double rows) {
        return 40.0 * std::max(1.0, (decoding + rows) / knee) * noise(random);
      });
      INFO("knee " << knee << ", bound " << bound);
      const double best = std::max(1.0, (1 + bound) * knee - 1);
      CHECK(load.rows > 0.75 * best);
      CHECK(load.rows < 1.15 * best);
      if (best > 1.0) CHECK(load.slower < bound + 0.02);
      CHECK(spare.knee() >= 1);
    }
  }
}

TEST_CASE("spare rows: follow a machine that becomes slower, and one that becomes faster") {
  SpareRows spare(0.25, 512);
  const auto cost = [](double row) { return [row](double, double rows) { return 10.0 + row * rows; }; };
  CHECK(run(spare, 1, 400, cost(0.05)).rows > 35);
  CHECK(run(spare, 1, 600, cost(0.5)).rows < 6);
  CHECK(run(spare, 1, 600, cost(0.05)).rows > 35);
}

TEST_CASE("spare rows: each number of decoding rows has its own measure") {
  SpareRows spare(0.25, 512);
  const auto cost = [](double decoding, double rows) { return 5.0 + decoding + 0.25 * rows; };
  const double one = run(spare, 1, 400, cost).rows, sixteen = run(spare, 16, 400, cost).rows;
  CHECK(one > 4);
  CHECK(one < 7);
  CHECK(sixteen > 17);
  CHECK(spare.next(3) == 0);  // its first step is without any
}

TEST_CASE("spare rows: a step with rows that nobody allowed teaches nothing") {
  SpareRows spare(0.25, 512);
  CHECK(spare.next(1) == 0);
  spare.on_step(1, 7, 10.0);
  const Load load = run(spare, 1, 400, [](double, double rows) { return 10.0 + 0.5 * rows; });
  CHECK(load.rows > 3);
  CHECK(load.rows < 6);
}

TEST_CASE("spare rows: never more than a step takes") {
  SpareRows spare(0.25, 7);
  CHECK(run(spare, 1, 300, [](double, double) { return 1.0; }).rows <= 7);
}
