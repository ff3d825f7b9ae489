// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_plan.h"

#include <catch2/catch.hpp>
#include <functional>
#include <random>

namespace spare_rows_test {

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

TEST_CASE("spare rows: the baseline is of undisturbed steps, whatever the numbers of decoding rows") {
  SpareRows spare(0.25, 512);
  const auto disturbed = [&](std::int32_t decoding, std::int32_t rows) {  // steps after added rows take a third longer
    static std::int32_t since = 0;
    since = rows > 0 ? 0 : since + 1;
    spare.on_step(decoding, rows, 10.0 * (since == 1 ? 1.35 : 1.0) + 0.5 * rows);
  };
  disturbed(0, 31);
  CHECK(spare.next(1) == 0);
  disturbed(1, 0);
  CHECK(spare.plain_ms(1) == Approx(13.5));  // better than none
  std::mt19937 random(5);
  int without = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto decoding = 1 + static_cast<std::int32_t>(random() % 8);  // as with drafts
    const std::int32_t rows = spare.next(decoding);
    without += rows == 0 ? 1 : 0;
    disturbed(decoding, rows);
  }
  for (const std::int32_t decoding : {1, 4, 8}) CHECK(spare.plain_ms(decoding) == Approx(10.0));
  CHECK(without < 200);
}

TEST_CASE("spare rows: never more than a step takes") {
  SpareRows spare(0.25, 7);
  CHECK(run(spare, 1, 300, [](double, double) { return 1.0; }).rows <= 7);
}

TEST_CASE("spare rows: an agent that decodes keeps its speed while long prompts arrive") {
  struct Case {
    double row;      // cost of a row, as a fraction of a decode step
    double free;     // rows that cost nothing
    double at_most;  // times their time alone that the prompts take
  };
  for (const Case& one : {Case{0.3, 0, 2.85}, Case{0.3, 4, 1.9}, Case{0.05, 12, 1.6}, Case{0.004, 100, 2.4}}) {
    SpareRows spare(0.67, 512);
    std::mt19937 random(3);
    std::normal_distribution<double> noise(1.0, 0.04);
    const auto step = [&](double rows) {
      return 10.0 * (1 + one.row * std::max(0.0, rows - one.free)) * noise(random);
    };
    constexpr int kRows = 3 * 1700;
    double time = 0, longest = 0;
    int steps = 0;
    for (int left = kRows; left > 0; ++steps) {
      const std::int32_t rows = rows_in_tiles(spare.next(1, 10.0 * one.row), 1, left, 511);
      const double ms = step(rows);
      spare.on_step(1, rows, ms);
      left -= rows;
      time += ms;
      longest = std::max(longest, ms);
    }
    const double mean = time / steps, alone = kRows * 10.0 * one.row;
    INFO("a row costs " << one.row << ", " << one.free << " are free: " << 10.0 / mean << " of the speed, "
                        << time / alone << " x the time");
    CHECK(10.0 / mean > 0.6);
    CHECK(longest < 4 * mean);
    CHECK(time / alone < one.at_most);
  }
}

TEST_CASE("spare rows: rows that had to run in one step delay later ones, and teach nothing") {
  SpareRows spare(0.25, 512);
  const auto cost = [](double, double rows) { return 10.0 + 0.5 * rows; };
  run(spare, 1, 400, cost);
  const std::int32_t before = spare.knee();
  spare.next(1);
  spare.on_step(1, 400, 210.0);
  CHECK(spare.knee() == before);
  CHECK(spare.next(1) == 0);
  CHECK(run(spare, 1, 400, cost).rows > 3);
}

}  // namespace spare_rows_test
