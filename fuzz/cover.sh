#!/bin/sh
# A compiler wrapper for cargo: gives libFuzzer's coverage to the crates of this project and to no other, so that the fuzzer looks where it
# should, and the rest is built at the usual speed.
compiler=$1
shift
case " $* " in
*" --crate-name tokenring "*)
    exec "$compiler" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1
    ;;
*) exec "$compiler" "$@" ;;
esac
