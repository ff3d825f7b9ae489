// SPDX-License-Identifier: Apache-2.0
// Runs in an event loop of Boost.Asio: each is an asynchronous operation, several go on at once, and a timer cancels
// the one that takes too long. The loop has one thread, which never waits for a model.
//
//   event_loop [MODEL]        a folder, a .gguf file, a name or hf:ORG/NAME
#include <baton/baton.h>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// Starts a run. Its completion, void(std::exception_ptr, baton::RunRecord), comes on the handler's executor, by
/// default the loop, which has one thread and outlives the run. `options.stop` cancels it. Throws what Engine::start
/// throws.
template <typename CompletionToken>
auto async_run(asio::io_context& loop, const baton::Engine& engine, const baton::Workflow& workflow,
               baton::RunOptions options, CompletionToken&& token) {
  auto initiate = [executor = loop.get_executor(), engine, workflow,
                   options = std::move(options)](auto handler) mutable {
    struct Operation {
      decltype(handler) complete;
      std::optional<baton::Run> run;
    };
    auto operation = std::make_shared<Operation>(Operation{std::move(handler), {}});
    // Called on a thread of the library; the work guard keeps the loop alive until then.
    options.on_end = [operation, work = asio::make_work_guard(executor)] {
      asio::post(work.get_executor(), [operation, executor = work.get_executor()] {
        std::exception_ptr error;
        baton::RunRecord record;
        try {
          record = operation->run->get();  // returns at once
        } catch (...) {
          error = std::current_exception();
        }
        operation->run.reset();
        asio::dispatch(asio::get_associated_executor(operation->complete, executor),
                       [operation, error, record = std::move(record)]() mutable {
                         std::move(operation->complete)(error, std::move(record));
                       });
      });
    };
    operation->run = engine.start(workflow, options);
  };
  return asio::async_initiate<CompletionToken, void(std::exception_ptr, baton::RunRecord)>(std::move(initiate), token);
}

/// The answer, or why there is none.
std::string answer_of(const std::exception_ptr& error, const baton::RunRecord& record) {
  try {
    if (error) std::rethrow_exception(error);
    if (record.state == baton::RunState::ok) return record.outputs.at("answer");
    return std::string(name_of(record.state)) + (record.error.empty() ? "" : ": " + record.error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

/// Asks the team, and prints what comes of it.
void ask(asio::io_context& loop, const baton::Engine& engine, const baton::Workflow& team, const std::string& question,
         std::chrono::milliseconds deadline) {
  auto timer = std::make_shared<asio::steady_timer>(loop, deadline);
  std::stop_source stop;
  timer->async_wait([stop](const boost::system::error_code& ended) mutable {
    if (!ended) stop.request_stop();
  });
  async_run(loop, engine, team, {.inputs = {{"user_question", question}}, .stop = stop.get_token()},
            [timer, question](const std::exception_ptr& error, const baton::RunRecord& record) {
              timer->cancel();
              std::cout << '\n' << question << '\n' << answer_of(error, record) << '\n';
            });
}

int main(int argc, char** argv) {
  try {
    const auto engine = baton::Engine::open({.model = argc > 1 ? argv[1] : ""});
    const auto team = baton::Workflow::load("math_team");  // a workflow that is installed with the library
    engine.prepare(team);

    asio::io_context loop(1);
    ask(loop, engine, team,
        "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?", 10min);
    ask(loop, engine, team,
        "Noah pays for 2 books at 7 coins each with 75 coins. How many coins does he get back from the shop?", 10min);
    ask(loop, engine, team, "Which number is odd, and how many are there?", 5ms);

    loop.run();
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
