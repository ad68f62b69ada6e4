# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/infer
# Build directory: /tmp/me/merge/b/tests/infer
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_sample]=] "/tmp/me/merge/b/tests/infer/t_sample")
set_tests_properties([=[t_sample]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/infer/CMakeLists.txt;5;shoal_test;/tmp/me/merge/tests/infer/CMakeLists.txt;0;")
add_test([=[t_reference]=] "/tmp/me/merge/b/tests/infer/t_reference")
set_tests_properties([=[t_reference]=] PROPERTIES  TIMEOUT "600" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/infer/CMakeLists.txt;6;shoal_test;/tmp/me/merge/tests/infer/CMakeLists.txt;0;")
add_test([=[t_state]=] "/tmp/me/merge/b/tests/infer/t_state")
set_tests_properties([=[t_state]=] PROPERTIES  TIMEOUT "600" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/infer/CMakeLists.txt;7;shoal_test;/tmp/me/merge/tests/infer/CMakeLists.txt;0;")
add_test([=[t_same_bits]=] "/tmp/me/merge/b/tests/infer/t_same_bits")
set_tests_properties([=[t_same_bits]=] PROPERTIES  TIMEOUT "1500" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/infer/CMakeLists.txt;11;shoal_test;/tmp/me/merge/tests/infer/CMakeLists.txt;0;")
add_test([=[t_tiers]=] "/tmp/me/merge/b/tests/infer/t_tiers")
set_tests_properties([=[t_tiers]=] PROPERTIES  TIMEOUT "600" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/infer/CMakeLists.txt;12;shoal_test;/tmp/me/merge/tests/infer/CMakeLists.txt;0;")
add_test([=[oracle_numpy]=] "/usr/bin/python3" "/tmp/me/merge/tests/infer/oracle.py" "/tmp/me/merge/b/shoal")
set_tests_properties([=[oracle_numpy]=] PROPERTIES  LABELS "oracle" TIMEOUT "900" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/infer/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/infer/CMakeLists.txt;0;")
