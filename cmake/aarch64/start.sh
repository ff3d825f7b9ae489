#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: start.sh PROGRAM [ARGUMENT...] What the kernel starts for a program for 64-bit Arm (programs.sh).
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" max "$@"
