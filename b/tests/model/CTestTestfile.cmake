# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/model
# Build directory: /tmp/me/merge/b/tests/model
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_k3]=] "/tmp/me/merge/b/tests/model/t_k3")
set_tests_properties([=[t_k3]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/model/CMakeLists.txt;1;shoal_test;/tmp/me/merge/tests/model/CMakeLists.txt;0;")
add_test([=[t_jscan]=] "/tmp/me/merge/b/tests/model/t_jscan")
set_tests_properties([=[t_jscan]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/model/CMakeLists.txt;2;shoal_test;/tmp/me/merge/tests/model/CMakeLists.txt;0;")
add_test([=[t_config]=] "/tmp/me/merge/b/tests/model/t_config")
set_tests_properties([=[t_config]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/model/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/model/CMakeLists.txt;0;")
add_test([=[t_bad]=] "/tmp/me/merge/b/tests/model/t_bad")
set_tests_properties([=[t_bad]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/model/CMakeLists.txt;4;shoal_test;/tmp/me/merge/tests/model/CMakeLists.txt;0;")
add_test([=[t_tiny]=] "/tmp/me/merge/b/tests/model/t_tiny")
set_tests_properties([=[t_tiny]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/model/CMakeLists.txt;5;shoal_test;/tmp/me/merge/tests/model/CMakeLists.txt;0;")
