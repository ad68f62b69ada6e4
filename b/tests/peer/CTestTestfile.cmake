# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/peer
# Build directory: /tmp/me/merge/b/tests/peer
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_identity]=] "/tmp/me/merge/b/tests/peer/t_identity")
set_tests_properties([=[t_identity]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;1;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_frame]=] "/tmp/me/merge/b/tests/peer/t_frame")
set_tests_properties([=[t_frame]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;2;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_codec]=] "/tmp/me/merge/b/tests/peer/t_codec")
set_tests_properties([=[t_codec]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_tls]=] "/tmp/me/merge/b/tests/peer/t_tls")
set_tests_properties([=[t_tls]=] PROPERTIES  LABELS "threads" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;4;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_roster]=] "/tmp/me/merge/b/tests/peer/t_roster")
set_tests_properties([=[t_roster]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;5;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_token]=] "/tmp/me/merge/b/tests/peer/t_token")
set_tests_properties([=[t_token]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;6;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_tls_refuse]=] "/tmp/me/merge/b/tests/peer/t_tls_refuse")
set_tests_properties([=[t_tls_refuse]=] PROPERTIES  LABELS "threads" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;7;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_tls_rude]=] "/tmp/me/merge/b/tests/peer/t_tls_rude")
set_tests_properties([=[t_tls_rude]=] PROPERTIES  LABELS "threads" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;9;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_rate]=] "/tmp/me/merge/b/tests/peer/t_rate")
set_tests_properties([=[t_rate]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;11;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
add_test([=[t_fetch]=] "/tmp/me/merge/b/tests/peer/t_fetch")
set_tests_properties([=[t_fetch]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/peer/CMakeLists.txt;12;shoal_test;/tmp/me/merge/tests/peer/CMakeLists.txt;0;")
