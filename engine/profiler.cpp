#include "engine/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>

namespace baton {
namespace {

/// d = 1 - the mean over heads of the cosine of two rows of values, eq. 1.
double deviation(std::span<const float> a, std::span<const float> b, std::size_t head_width) {
  double cosines = 0.0;
  for (std::size_t begin = 0; begin < a.size(); begin += head_width) {
    double aa = 0.0, bb = 0.0, ab = 0.0;
    for (std::size_t i = begin; i < begin + head_width; ++i) {
      aa += static_cast<double>(a[i]) * a[i];
      bb += static_cast<double>(b[i]) * b[i];
      ab += static_cast<double>(a[i]) * b[i];
    }
    if (aa == 0 && bb == 0) cosines += 1.0;
    if (aa > 0 && bb > 0) cosines += ab / std::sqrt(aa * bb);
  }
  return 1.0 - cosines * static_cast<double>(head_width) / static_cast<double>(a.size());
}

/// Compares the tokens that have KV in both. On the engine's thread.
LayerSample compare(const Segment& decoded, const Segment& prefilled) {
  const auto head_width = static_cast<std::size_t>(decoded.layout().shape.head_dim);
  const std::size_t width = head_width * static_cast<std::size_t>(decoded.layout().shape.kv_heads);
  const auto tokens = static_cast<std::size_t>(std::min(decoded.length(), prefilled.length()));
  std::vector<std::vector<double>> deviations;
  for (std::int32_t layer = 0; layer < decoded.layout().layers; ++layer) {
    const std::vector<float> a = decoded.values_on_host(layer), b = prefilled.values_on_host(layer);
    std::vector<double>& d = deviations.emplace_back();
    for (std::size_t t = 0; t < tokens; ++t) {
      d.push_back(
          deviation(std::span(a).subspan(t * width, width), std::span(b).subspan(t * width, width), head_width));
    }
  }
  return sample_of(deviations);
}

/// All hand-overs under way at once. Shared with the callbacks, which run on the engine's thread.
class Measurement : public std::enable_shared_from_this<Measurement> {
 public:
  Measurement(Engine& engine, std::span<const CalibrationHandOver> hand_overs, const ProfilerOptions& options)
      : engine_(engine), hand_overs_(hand_overs), options_(options), samples_(hand_overs.size()) {}

  void run() {
    std::unique_lock lock(mutex_);
    for (std::size_t i = 0; i < hand_overs_.size(); ++i) {
      lock.unlock();
      guarded([&] { decode(i); });
      lock.lock();
    }
    std::exception_ptr thrown;
    for (double shown = 0.0; over_ < hand_overs_.size() && !stopping_;) {
      if (!changed_.wait(lock, options_.stop, [&] { return stopping_ || share() > shown; })) stopping_ = true;
      shown = share();
      if (!options_.on_progress || stopping_) continue;
      lock.unlock();
      try {
        options_.on_progress(shown);
        lock.lock();
      } catch (...) {
        lock.lock();
        thrown = std::current_exception();
        stopping_ = true;
      }
    }
    const std::vector<RequestId> open = stopping_ ? requests_ : std::vector<RequestId>();
    lock.unlock();
    for (const RequestId id : open) engine_.cancel(id);
    lock.lock();
    changed_.wait(lock, [&] { return over_ == hand_overs_.size(); });  // callbacks use what the caller owns
    if (thrown) std::rethrow_exception(thrown);
  }

  bool stopped() const { return stopping_; }
  const std::string& error() const { return error_; }
  const std::string& why_left_out() const { return why_left_out_; }
  std::vector<LayerSample> samples() const {
    std::vector<LayerSample> measured;
    std::copy_if(samples_.begin(), samples_.end(), std::back_inserter(measured),
                 [](const LayerSample& s) { return s.tokens > 0; });
    return measured;
  }

 private:
  void decode(std::size_t i) {
    GenerationRequest request = recording({{"", hand_overs_[i].producer, nullptr, 0}});
    request.max_tokens = options_.max_tokens;
    request.forced = hand_overs_[i].answer;
    request.forced.resize(std::min(request.forced.size(), static_cast<std::size_t>(options_.max_tokens)));
    request.output_readers = 1;
    request.callbacks.on_token = [self = shared_from_this()](TokenId, const std::string&) {
      const std::lock_guard lock(self->mutex_);
      ++self->tokens_;
      self->changed_.notify_all();
    };
    request.callbacks.on_finished = [self = shared_from_this(), i](GenerationResult result) {
      self->guarded([&] { self->prefill(i, result); });
    };
    submit(std::move(request));
  }

  /// The answer is there: prefills it inside the consumer's prompt.
  void prefill(std::size_t i, const GenerationResult& result) {
    if (!good(result)) return;
    const auto decoded = engine_.segment(result.output);
    if (result.tokens.size() < static_cast<std::size_t>(options_.min_tokens) || decoded == nullptr) {
      return leave_out(
          fmt::format("an answer had {} tokens; at least {} are compared", result.tokens.size(), options_.min_tokens));
    }
    const CalibrationHandOver& from = hand_overs_[i];
    std::vector<PromptPart> prompt;
    if (!from.before.empty()) prompt.push_back({"", from.before, nullptr, 0});
    const std::size_t answer = prompt.size();
    prompt.push_back({"answer", result.tokens, nullptr, 1});
    if (!from.after.empty()) prompt.push_back({"", from.after, nullptr, 0});
    GenerationRequest request = recording(std::move(prompt));
    request.max_tokens = 1;
    request.callbacks.on_finished = [self = shared_from_this(), i, answer, decoded](GenerationResult consumed) {
      self->guarded([&] {
        if (!self->good(consumed)) return;
        const auto prefilled =
            consumed.segments.size() > answer ? self->engine_.segment(consumed.segments[answer]) : nullptr;
        if (prefilled == nullptr)
          throw EngineError(EngineError::Kind::memory, "no memory to keep the values of an answer");
        LayerSample sample = compare(*decoded, *prefilled);
        const std::lock_guard lock(self->mutex_);
        self->samples_[i] = std::move(sample);
        self->end_one();
      });
    };
    submit(std::move(request));
  }

  static GenerationRequest recording(std::vector<PromptPart> prompt) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0.0f;
    request.reuse.method = "full";
    request.reuse.record = true;
    return request;
  }

  void submit(GenerationRequest request) {
    const RequestId id = engine_.submit(std::move(request));
    bool cancel = false;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(id);
      cancel = stopping_;
    }
    if (cancel) engine_.cancel(id);
  }

  /// False, and the hand-over is over, when the request did not come to its end.
  bool good(const GenerationResult& result) {
    if (result.reason == FinishReason::error) throw EngineError(EngineError::Kind::invalid, result.error);
    if (result.reason != FinishReason::cancelled) return true;
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    end_one();
    return false;
  }

  void leave_out(const std::string& why) {
    const std::lock_guard lock(mutex_);
    why_left_out_ = why;
    end_one();
  }

  /// Of the work: an answer is as good as finished when its consumer's prompt is prefilled. The mutex is held.
  double share() const {
    const auto all = static_cast<double>(hand_overs_.size());
    const double decoded = static_cast<double>(tokens_) / (all * options_.max_tokens);
    return std::max(static_cast<double>(over_) / all, 0.9 * std::min(1.0, decoded));
  }

  /// The mutex is held.
  void end_one() {
    ++over_;
    changed_.notify_all();
  }

  /// One step of a hand-over; what it throws ends it.
  template <typename Step>
  void guarded(Step step) {
    try {
      step();
    } catch (const EngineError& error) {
      if (error.kind == EngineError::Kind::too_long) return leave_out(error.what());
      fail(error.what());
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  void fail(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = what;
    end_one();
  }

  Engine& engine_;
  const std::span<const CalibrationHandOver> hand_overs_;
  const ProfilerOptions& options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<LayerSample> samples_;  // without tokens: left out
  std::vector<RequestId> requests_;
  std::size_t over_ = 0;
  std::int64_t tokens_ = 0;  // decoded
  bool stopping_ = false;
  std::string error_;
  std::string why_left_out_;
};

}  // namespace

double rounding_of(DType kv_dtype) {
  // Two vectors, each rounded to within u per element, differ by up to about u^2 in the cosine; above that by a margin.
  constexpr double kUnit = 1.0 / 512;
  return kv_dtype == DType::f32 ? 1e-10 : 4 * kUnit * kUnit;
}

std::optional<MeasuredProfile> measure_profile(Engine& engine, std::span<const CalibrationHandOver> hand_overs,
                                               const ProfilerOptions& options) {
  const std::string path = engine.model().path.string();
  if (const std::int32_t layers = engine.model().config.layers; layers < kFewestRangeLayers) {
    throw ModelError(fmt::format("{}: a model of {} layers has no layer range; at least {} are needed", path, layers,
                                 kFewestRangeLayers));
  }
  const auto measurement = std::make_shared<Measurement>(engine, hand_overs, options);
  measurement->run();
  if (!measurement->error().empty()) throw EngineError(EngineError::Kind::invalid, measurement->error());
  if (measurement->stopped() || options.stop.stop_requested()) return std::nullopt;
  const std::vector<LayerSample> samples = measurement->samples();
  if (samples.empty()) {
    const std::string& why = measurement->why_left_out();
    throw ModelError(fmt::format("{}: no hand-over could be measured{}{}", path, why.empty() ? "" : ": ", why));
  }
  const double rounding = rounding_of(engine.model().options.kv_dtype);
  MeasuredProfile profile;
  profile.curves = curves_of(samples, rounding);
  profile.certainty = bootstrap(samples, rounding, options.seed);
  profile.slope = find_range(profile.curves, EndReading::slope);
  profile.level = find_range(profile.curves, EndReading::level);
  profile.hand_overs = static_cast<std::int32_t>(samples.size());
  profile.left_out = static_cast<std::int32_t>(hand_overs.size() - samples.size());
  for (const LayerSample& sample : samples) profile.tokens += sample.tokens;
  return profile;
}

}  // namespace baton
