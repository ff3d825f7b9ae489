// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/eval_measurement.h"

#include <fmt/format.h>

#include <thread>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"

namespace baton::cli {
namespace {

std::string question_text(const Score& score, const Question& question, const RunRecord& record) {
  const Workflow& workflow = *score.workflow;
  const std::string answer = final_answer(workflow, record);
  const bool right = record.state == RunState::ok && same_answer(answer, question.answer);
  std::string out = styled(right ? Style::green : Style::red, right ? "right " : "wrong ") +
                    styled(Style::bold, printable(question.id, Lines::fold)) + "  " + score.method.text + "  " +
                    styled(Style::dim, duration(record.wall_ms)) + "\n";
  for (const auto& [name, value] : question.inputs) out += "  " + printable(value, Lines::fold) + "\n";
  for (const auto& turn : record.agents) {
    const std::string said = turn.state == TurnState::ok
                                 ? printable(turn.output, Lines::fold)
                                 : fmt::format("{}: ", name_of(turn.state)) + printable(turn.error, Lines::fold);
    out += "  " + styled(Style::cyan, turn_name(turn.agent, turn.round)) + "  " + said + "\n";
  }
  out +=
      fmt::format("  answer {}, expected {}\n\n", answer.empty() ? std::string("none") : printable(answer, Lines::fold),
                  printable(question.answer, Lines::fold));
  return out;
}

}  // namespace

void EvalProgress::show(const std::vector<Score>& scores) {
  if (!shown_) return;
  const Score& score = scores.back();  // the last to be done with a question
  const auto now = Clock::now();
  const auto done = static_cast<std::size_t>(score.right.whole);
  const auto pause = can_redraw() ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < pause && done < questions_) return;
  last_ = now;
  const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
  std::string line = fmt::format("{} of {}", done, questions_);
  for (const Score& one : scores) {
    if (done > 0) line += fmt::format(", {} {:.1f} %", one.method.text, 100 * one.right.value());
  }
  if (done > 0 && done < questions_) {
    line += fmt::format(", {} left", duration(ms / static_cast<double>(done) * static_cast<double>(questions_ - done)));
  }
  note(can_redraw() ? "\r\x1b[K" + head(line, terminal_size().columns - 1) : line + "\n");
}

void EvalProgress::clear() {
  if (!shown_ || !can_redraw()) return;
  note("\r\x1b[K");
  last_ = {};
}

EvalMeasurement::EvalMeasurement(const EvalOptions& options, const Engine& engine, std::vector<Score>& scores,
                                 const std::vector<Question>& questions)
    : options_(options),
      engine_(engine),
      scores_(scores),
      questions_(questions),
      progress_(!options.quiet, questions.size()) {
  reference_ = EvalMethod::parse("full").load(options.workflow);
  const bool compares = scores.size() > 1 || !scores.front().method.is_reference();
  if (compares && options.floor_limit > 0) {
    EngineOptions f32 = options.engine.options(options.workflow.default_model(), options.quiet);
    f32.kv_dtype = "f32";
    precise_ = Engine::open(f32);
    precise_->prepare(*reference_);
  }
  base_.seed = options.seed;
  base_.stop = interrupted();
  if (!options.answers.empty()) {
    answers_.open(options.answers, std::ios::app);
    if (!answers_) throw Failure(kUsage, fmt::format("--answers: cannot write {}", options.answers));
  }
  if (!options.timeout.empty()) base_.timeout = parse_duration(options.timeout, "--timeout");
}

void EvalMeasurement::run() {
  progress_.show(scores_);
  std::vector<std::jthread> threads;
  for (int i = 0; i < options_.jobs; ++i) threads.emplace_back([this] { work(); });
  threads.clear();
  progress_.clear();
  if (error_) std::rethrow_exception(error_);
}

void EvalMeasurement::work() {
  for (;;) {
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      if (next_ == questions_.size() || error_ || interrupted().stop_requested()) return;
      index = next_++;
    }
    const Question& question = questions_[index];
    try {
      measure(question, index);
    } catch (const InputError& wrong) {
      const std::lock_guard lock(mutex_);
      error_ =
          std::make_exception_ptr(Failure(kInvalidFile, fmt::format("question '{}': {}", question.id, wrong.what())));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

RunRecord EvalMeasurement::run(const Engine& engine, const Workflow& workflow, const Question& question, Trace& trace,
                               const Trace* forced) {
  RunOptions options = base_;
  options.inputs = question.inputs;
  trace.record(options, workflow);
  if (forced != nullptr) options.forced_outputs = forced->tokens;
  return engine.run(workflow, options);
}

/// One line for --answers.
void EvalMeasurement::keep(const Question& question, const Score& score, const Trace& trace) {
  if (!answers_.is_open()) return;
  const nlohmann::ordered_json line = {{"id", question.id}, {"method", score.method.text}, {"tokens", trace.tokens}};
  answers_ << line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  if (!answers_.flush()) throw Failure(kRunFailed, fmt::format("--answers: {} could not be written", options_.answers));
}

void EvalMeasurement::measure(const Question& question, std::size_t index) {
  const bool with_floor = index < options_.floor_limit;
  Trace reference;
  const RunRecord full = run(engine_, *reference_, question, reference);
  if (full.state == RunState::cancelled) return;
  std::vector<std::pair<RunRecord, bool>> records;  // and whether all answers are those of full
  std::vector<Trace> forced(scores_.size()), own(scores_.size());
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    if (scores_[i].method.is_reference()) {
      records.emplace_back(full, true);
      continue;
    }
    RunRecord record = run(engine_, *scores_[i].workflow, question, own[i]);
    if (record.state == RunState::cancelled) return;
    records.emplace_back(std::move(record), own[i].tokens == reference.tokens);
    if (run(engine_, *scores_[i].forced_workflow, question, forced[i], &reference).state == RunState::cancelled) return;
  }
  Trace precise;
  if (precise_ && with_floor && run(*precise_, *reference_, question, precise, &reference).state == RunState::cancelled)
    return;

  const std::lock_guard lock(mutex_);
  if (precise_ && with_floor) floor_.add(reference, precise, *reference_);
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    const auto& [record, exact] = records[i];
    Score& score = scores_[i];
    score.add(question, index, record);
    score.exact.count(exact);
    keep(question, score, score.method.is_reference() ? reference : own[i]);
    score.wall_ms += record.wall_ms;
    score.quality.add(reference, score.method.is_reference() ? reference : forced[i], *reference_);
    if (record.error_kind == ErrorKind::resources) throw Failure(kResources, record.error);
    if (!options_.verbose) continue;
    progress_.clear();
    note(question_text(score, question, record));
  }
  progress_.show(scores_);
}

}  // namespace baton::cli
