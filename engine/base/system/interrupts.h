// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and requests to end, for a program that waits for them on a thread of its own.
#pragma once

namespace baton {

enum class Interrupt { ctrl_c, end };

/// From now on Ctrl-C, a request to end and the loss of the terminal (unless that is ignored, as under nohup) no longer
/// end the program but are what next_interrupt returns, and failed writes to pipes, and to files beyond the system's
/// limit, raise no signal. Once, from main, before other threads are started.
void catch_interrupts();

/// Waits for the next one. One thread.
Interrupt next_interrupt();

/// They end the program again, as by default: where no thread can wait for them.
void leave_interrupts();

}  // namespace baton
