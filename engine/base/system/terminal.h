// SPDX-License-Identifier: Apache-2.0
// The three standard streams, the terminal behind them, and what a person interrupts a program with.
#pragma once

#include <chrono>

namespace baton {

// The three standard streams and the terminal behind them.

enum class StandardStream { input, output, error };

bool is_terminal(StandardStream stream);

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
/// Returns the size of the terminal behind the standard error now, and the default if there is none.
TerminalSize terminal_size();

/// Whether the locale of the environment is one of UTF-8.
bool locale_is_utf8();

/// Waits until something can be read from the standard input, its end too. False: not within that time.
bool wait_for_input(std::chrono::milliseconds time);

/// Opens the null device as stdin, stdout and stderr where the caller closed them: otherwise the next file that is
/// opened, a pipe or a socket, takes that number, and what is printed goes there. What is written to such a stdout
/// fails with EBADF, as if it were closed; what is written to stderr is lost. Before anything else is opened.
void open_standard_files();

// Ctrl-C and requests to end, for a program that waits for them on a thread of its own.

enum class Interrupt { ctrl_c, end };

/// From now on Ctrl-C, a request to end and the loss of the terminal (unless that is ignored, as under nohup) no longer
/// end the program but are what next_interrupt returns, and failed writes to pipes, and to files beyond the system's
/// limit, raise no signal. Once, from main, before other threads are started.
void catch_interrupts();

/// Waits for the next one. One thread.
Interrupt next_interrupt();

/// They end the program again, as by default, for when no thread can wait for them.
void leave_interrupts();

}  // namespace baton
