// SPDX-License-Identifier: Apache-2.0
// Operations of layers with a state: they agree with the scalar reference, and however the rows of sequences are split
// into calls, mixed and ordered, results and states have the same bits.
#include <algorithm>
#include <functional>

#include "engine/backend/recurrence.h"
#include "engine/cpu/cpu.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::recurrence_test {
namespace {

/// Memory of a backend with floats in it.
class Floats {
 public:
  Floats(Backend& backend, std::span<const float> values)
      : backend_(backend), memory_(backend.allocate(values.size_bytes())), count_(values.size()) {
    backend.copy_to_device(memory_.data(), std::as_bytes(values));
  }
  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    backend_.copy_to_host(std::as_writable_bytes(std::span(values)), memory_.data());
    return values;
  }

 private:
  Backend& backend_;
  Buffer memory_;
  std::size_t count_;
};

/// A matrix in the memory of a backend.
class Rows {
 public:
  Rows(Backend& backend, const Values& values)
      : floats_(backend, values.data), rows_(values.rows), cols_(values.cols) {}
  TensorView view() { return view_of(floats_.data(), rows_, cols_); }
  Values read() const {
    Values values(rows_, cols_);
    values.data = floats_.read();
    return values;
  }

 private:
  Floats floats_;
  std::int64_t rows_, cols_;
};

/// One operation with its inputs [tokens of all sequences, ...] and the columns of its result.
struct Operation {
  std::string name;
  std::vector<Values> inputs;
  std::int64_t out_cols = 0;
  std::int64_t state_floats = 0;
  std::function<void(Backend&, TensorView out, std::span<const TensorView> in, const StateRows&)> run;
};

struct Outcome {
  Values out;
  std::vector<std::vector<float>> states;  // of each sequence, behind its last token
};

/// Runs sequences of `lengths` tokens, whose inputs lie one behind another, in calls of random rows in random order.
/// `random` null: all of them in one call.
Outcome run(Backend& backend, const Operation& operation, const std::vector<std::int32_t>& lengths, Random* random) {
  constexpr std::int64_t kOffset = 5;
  std::vector<std::int32_t> begin = {0}, done(lengths.size(), 0);
  for (const std::int32_t length : lengths) begin.push_back(begin.back() + length);
  std::vector<std::vector<float>> states(lengths.size());
  Values all(begin.back(), operation.out_cols);
  const auto left = [&] {
    for (std::size_t i = 0; i < lengths.size(); ++i)
      if (done[i] < lengths[i]) return true;
    return false;
  };
  while (left()) {
    struct Taken {
      std::size_t sequence;
      std::vector<std::int32_t> pieces;  // lengths of the runs
    };
    std::vector<Taken> taken;
    std::vector<std::int32_t> tokens;  // of all sequences, in the order of the call's rows
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::int32_t rest = lengths[i] - done[i];
      if (rest == 0 || (random != nullptr && random->integer(0, 3) == 0)) continue;
      Taken one{i, {}};
      if (random != nullptr) rest = random->integer(1, rest + 1);
      for (std::int32_t at = 0; at < rest;) {
        const std::int32_t piece = random == nullptr ? rest : random->integer(1, rest - at + 1);
        one.pieces.push_back(piece);
        at += piece;
      }
      for (std::int32_t at = 0; at < rest; ++at) tokens.push_back(begin[i] + done[i] + at);
      taken.push_back(std::move(one));
    }
    if (taken.empty()) continue;
    if (random != nullptr)
      for (std::size_t i = tokens.size(); i > 1; --i)
        std::swap(tokens[i - 1], tokens[static_cast<std::size_t>(random->integer(0, static_cast<std::int64_t>(i)))]);
    const auto count = static_cast<std::int64_t>(tokens.size());
    std::vector<Rows> inputs;
    for (const Values& values : operation.inputs) {
      Values some(count, values.cols);
      for (std::int64_t row = 0; row < count; ++row)
        std::ranges::copy(values.row(tokens[static_cast<std::size_t>(row)]), some.data.begin() + row * values.cols);
      inputs.emplace_back(backend, some);
    }
    std::vector<std::int32_t> rows;
    std::vector<StateRun> runs;
    std::vector<Floats> memory;
    std::vector<std::size_t> last;  // of each taken sequence: its last state in `memory`
    memory.reserve(2 * tokens.size() + taken.size());
    for (const Taken& one : taken) {
      const float* from = nullptr;
      std::vector<float> stored(static_cast<std::size_t>(kOffset + operation.state_floats), 7.0f);
      if (!states[one.sequence].empty()) {
        std::ranges::copy(states[one.sequence], stored.begin() + kOffset);
        memory.emplace_back(backend, stored);
        from = memory.back().data();
      }
      bool begun = false;
      for (const std::int32_t piece : one.pieces) {
        memory.emplace_back(backend, std::vector<float>(stored.size(), std::nanf("")));
        const auto first = static_cast<std::int32_t>(rows.size());
        for (std::int32_t i = 0; i < piece; ++i) {
          const std::int32_t token = begin[one.sequence] + done[one.sequence]++;
          rows.push_back(static_cast<std::int32_t>(std::ranges::find(tokens, token) - tokens.begin()));
        }
        runs.push_back({first, first + piece, from, memory.back().data(), begun});
        begun = true;
        from = memory.back().data();
      }
      last.push_back(memory.size() - 1);
    }
    Rows out(backend, Values(count, operation.out_cols, std::nanf("")));
    std::vector<TensorView> views;
    for (Rows& input : inputs) views.push_back(input.view());
    operation.run(backend, out.view(), views, {rows, runs, kOffset});
    const Values result = out.read();
    for (std::int64_t row = 0; row < count; ++row)
      std::ranges::copy(result.row(row), all.data.begin() + tokens[static_cast<std::size_t>(row)] * all.cols);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const std::vector<float> state = memory[last[i]].read();
      states[taken[i].sequence].assign(state.begin() + kOffset, state.end());
    }
  }
  return {std::move(all), std::move(states)};
}

Operation convolution(Random& random, std::int64_t tokens, std::int64_t columns, std::int32_t length, bool silu) {
  const bool bias = random.integer(0, 2) == 0;
  const std::vector<float> taps = random.vector(columns * length), biases = random.vector(columns);
  return {"convolution of " + std::to_string(columns) + " columns over " + std::to_string(length),
          {random.values(tokens, columns)},
          columns,
          conv_state_floats(columns, length),
          [=](Backend& backend, TensorView out, std::span<const TensorView> in, const StateRows& rows) {
            const std::span<const float> added = bias ? std::span(biases) : std::span<const float>();
            backend.recurrence().convolve(out, in[0], {taps, added, length, silu}, rows);
          }};
}

Operation delta_rule(Random& random, std::int64_t tokens, const DeltaShape& shape) {
  std::vector<float> rate = random.vector(shape.value_heads), bias = random.vector(shape.value_heads);
  for (float& one : rate) one = -std::abs(one);
  return {"delta rule of " + std::to_string(shape.value_heads) + " heads of " + std::to_string(shape.value_dim),
          {random.values(tokens, 2 * shape.key_cols() + shape.value_cols()), random.values(tokens, shape.value_heads),
           random.values(tokens, shape.value_heads)},
          shape.value_cols(),
          shape.state_floats(),
          [=](Backend& backend, TensorView out, std::span<const TensorView> in, const StateRows& rows) {
            backend.recurrence().delta_rule(out, {in[0], in[1], in[2]}, shape, {rate, bias}, rows);
          }};
}

Operation scan(Random& random, std::int64_t tokens, const ScanShape& shape) {
  std::vector<float> rate = random.vector(shape.heads);
  const std::vector<float> bias = random.vector(shape.heads), skip = random.vector(shape.heads);
  for (float& one : rate) one = -std::abs(one);
  return {"scan of " + std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_dim),
          {random.values(tokens, shape.cols() + 2 * shape.group_cols()), random.values(tokens, shape.heads)},
          shape.cols(),
          shape.state_floats(),
          [=](Backend& backend, TensorView out, std::span<const TensorView> in, const StateRows& rows) {
            backend.recurrence().scan(out, {in[0], in[1]}, shape, {rate, bias, skip, 0.05f, 1.5f}, rows);
          }};
}

std::vector<Operation> operations(Random& random, std::int64_t tokens) {
  return {convolution(random, tokens, 5, 1, false),    convolution(random, tokens, 300, 4, true),
          convolution(random, tokens, 33, 3, false),   delta_rule(random, tokens, {1, 1, 3, 5}),
          delta_rule(random, tokens, {2, 4, 16, 24}),  delta_rule(random, tokens, {2, 4, 16, 24, true}),
          delta_rule(random, tokens, {2, 2, 32, 128}), scan(random, tokens, {3, 7, 1, 5}),
          scan(random, tokens, {4, 16, 2, 24}),        scan(random, tokens, {2, 128, 1, 16})};
}

TEST_CASE("recurrences agree with the scalar reference") {
  const auto reference = make_reference_backend();
  const std::vector<std::int32_t> lengths = {1, 20, 7};
  for_each_backend([&](Backend& backend) {
    Random random(11);
    for (const Operation& operation : operations(random, 28)) {
      INFO(operation.name);
      const Outcome expected = run(*reference, operation, lengths, nullptr);
      const Outcome actual = run(backend, operation, lengths, nullptr);
      const float scale = 1.0f + largest(expected.out.data);
      require_close(
          actual.out, [&](std::int64_t row, std::int64_t col) { return expected.out.at(row, col); },
          [&](std::int64_t, std::int64_t) { return 2e-5f * scale; });
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const float most = 1.0f + largest(expected.states[i]);
        for (std::size_t at = 0; at < expected.states[i].size(); ++at)
          REQUIRE(actual.states[i][at] == Approx(expected.states[i][at]).margin(2e-5f * most));
      }
    }
  });
}

TEST_CASE("recurrences have the same bits however rows are split") {
  const std::vector<std::int32_t> lengths = {1, 20, 7, 3};
  for_each_backend([&](Backend& backend) {
    Random random(12);
    for (const Operation& operation : operations(random, 31)) {
      INFO(operation.name);
      const Outcome whole = run(backend, operation, lengths, nullptr);
      for (int time = 0; time < 5; ++time) {
        const Outcome split = run(backend, operation, lengths, &random);
        require_same_bits(split.out.data, whole.out.data);
        for (std::size_t i = 0; i < lengths.size(); ++i) require_same_bits(split.states[i], whole.states[i]);
      }
    }
  });
}

TEST_CASE("the delta rule by hand") {
  for_each_backend([](Backend& backend) {
    // One head, Dk = 1: keys and queries of length 1. With a rate of 0 nothing decays, with a write of 30 all is
    // written.
    const DeltaShape shape{1, 1, 1, 1};
    Values qkv(2, 3), write(2, 1, 30.0f), decay(2, 1);
    qkv.data = {2, -3, 5, 4, 1, 7};
    Rows in(backend, qkv), writes(backend, write), decays(backend, decay), out(backend, Values(2, 1));
    Floats state(backend, std::vector<float>{0});
    const std::vector<float> zero = {0};
    const std::vector<std::int32_t> rows = {0, 1};
    const std::vector<StateRun> runs = {{0, 2, nullptr, state.data()}};
    backend.recurrence().delta_rule(out.view(), {in.view(), writes.view(), decays.view()}, shape, {zero, zero},
                                    {rows, runs});
    const Values result = out.read();
    REQUIRE(result.at(0, 0) == Approx(-5).epsilon(1e-5));  // S = -5, q = 1
    REQUIRE(result.at(1, 0) == Approx(7).epsilon(1e-5));   // S^T k = -5; u = 12, S = 7
  });
}

TEST_CASE("squares of what is positive") {
  for_each_backend([](Backend& backend) {
    Random random(15);
    const Values x = random.values(3, 41);
    Rows out(backend, x);
    backend.multiply(out.view(), out.view(), GateFunction::relu);
    const auto expected = [&](std::int64_t row, std::int64_t col) {
      return std::max(x.at(row, col), 0.0f) * std::max(x.at(row, col), 0.0f);
    };
    require_close(out.read(), expected, [](std::int64_t, std::int64_t) { return 1e-6f; });
  });
}

TEST_CASE("products with gates") {
  for_each_backend([](Backend& backend) {
    Random random(13);
    const Values x = random.values(5, 37), by = random.values(5, 37);
    for (const GateFunction function : {GateFunction::none, GateFunction::sigmoid, GateFunction::silu}) {
      Rows out(backend, x), gate(backend, by);
      backend.multiply(out.view(), gate.view(), function);
      const auto expected = [&](std::int64_t row, std::int64_t col) {
        const float g = by.at(row, col), s = 1.0f / (1.0f + std::exp(-g));
        return x.at(row, col) * (function == GateFunction::none ? g : function == GateFunction::sigmoid ? s : g * s);
      };
      require_close(out.read(), expected, [](std::int64_t, std::int64_t) { return 1e-5f; });
    }
  });
}

TEST_CASE("recurrences refuse what does not fit") {
  for_each_backend([](Backend& backend) {
    Random random(14);
    Rows x(backend, random.values(2, 6)), out(backend, Values(2, 6));
    Floats state(backend, std::vector<float>(64));
    const std::vector<float> taps(12);
    const std::vector<std::int32_t> rows = {0, 1}, outside = {0, 2};
    const std::vector<StateRun> runs = {{0, 2, nullptr, state.data()}}, gap = {{1, 2, nullptr, state.data()}},
                                orphan = {{0, 2, state.data(), state.data() + 32, true}},
                                short_runs = {{0, 1, nullptr, state.data()}}, nowhere = {{0, 2, nullptr, nullptr}};
    Recurrence& recurrence = backend.recurrence();
    const ConvWeights good{taps, {}, 2};
    REQUIRE_NOTHROW(recurrence.convolve(out.view(), x.view(), good, {rows, runs}));
    REQUIRE_THROWS_AS(recurrence.convolve(out.view(), x.view(), {taps, {}, 3}, {rows, runs}), std::invalid_argument);
    REQUIRE_THROWS_AS(recurrence.convolve(out.view(), x.view(), good, {outside, runs}), std::invalid_argument);
    REQUIRE_THROWS_AS(recurrence.convolve(out.view(), x.view(), good, {rows, gap}), std::invalid_argument);
    REQUIRE_THROWS_AS(recurrence.convolve(out.view(), x.view(), good, {rows, short_runs}), std::invalid_argument);
    REQUIRE_THROWS_AS(recurrence.convolve(out.view(), x.view(), good, {rows, nowhere}), std::invalid_argument);
    REQUIRE_THROWS_AS(recurrence.convolve(out.view(), x.view(), good, {rows, orphan}), std::invalid_argument);
    const std::vector<float> one(4);
    REQUIRE_THROWS_AS(
        recurrence.delta_rule(out.view(), {x.view(), x.view(), x.view()}, {2, 3, 1, 1}, {one, one}, {rows, runs}),
        std::invalid_argument);
    REQUIRE_THROWS_AS(recurrence.scan(out.view(), {x.view(), x.view()}, {3, 2, 2, 1}, {one, one, one}, {rows, runs}),
                      std::invalid_argument);
  });
}

}  // namespace
}  // namespace baton::test::recurrence_test
