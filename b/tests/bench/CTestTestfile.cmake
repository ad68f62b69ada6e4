# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/bench
# Build directory: /tmp/me/merge/b/tests/bench
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[bench_inventory]=] "/tmp/me/merge/b/tests/bench/bench_inventory")
set_tests_properties([=[bench_inventory]=] PROPERTIES  LABELS "bench" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/bench/CMakeLists.txt;4;shoal_test;/tmp/me/merge/tests/bench/CMakeLists.txt;0;")
add_test([=[bench_tok]=] "/tmp/me/merge/b/tests/bench/bench_tok")
set_tests_properties([=[bench_tok]=] PROPERTIES  LABELS "bench" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/bench/CMakeLists.txt;6;shoal_test;/tmp/me/merge/tests/bench/CMakeLists.txt;0;")
add_test([=[bench_tls]=] "/tmp/me/merge/b/tests/bench/bench_tls")
set_tests_properties([=[bench_tls]=] PROPERTIES  LABELS "bench" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/bench/CMakeLists.txt;7;shoal_test;/tmp/me/merge/tests/bench/CMakeLists.txt;0;")
