#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No code of the laboratory is in the product: neither the program baton nor the library has a symbol of it.

Usage: laboratory_test.py BATON-LAB PRODUCT...
"""

import re
import subprocess
import sys

# The namespace of sdk/lab; what it measures, learns and registers, wherever that would be; the library that it alone uses.
FUNCTIONS = ["run_bench", "bench_shapes", "measure_perplexity", "learn_corrections", "profile_pair", "profile_model", "measure_profile", "measure_effect",
             "measure_groups", "search_range", "find_range", "LinearFit", "CorrectionLearner", "register_lab_methods", "lab_token_scores",
             "select_tokens", "select_by_author", r"(?:direct|epic|cacheblend)_method"]
LABORATORY = re.compile(r"\bbaton::(v1::)?lab::|\bEigen::|\b(" + "|".join(FUNCTIONS) + r")\b")


def symbols(file):
    found = subprocess.run(["nm", "-C", file], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [line for line in found if LABORATORY.search(line)]


def main():
    laboratory, *products = sys.argv[1:]
    if not symbols(laboratory):
        sys.exit(f"{laboratory} has no symbol of the laboratory: this test would find none anywhere")
    failed = 0
    for product in products:
        for line in symbols(product):
            print(f"{product}: {line}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
