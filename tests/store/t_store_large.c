/* SPDX-License-Identifier: MIT
 * t_store_large.c: reads and writes of more than 2 GB are cut. The system's calls are replaced here
 * by ones that refuse, as the Mac's do, what is over 2 GiB - 1 bytes, and that move none. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "node/store/uncached.h"
#include "proto/base/file.h"

#define LARGE ((size_t)2348810240) /* K3's lm_head: 163840 x 7168 in bf16 */

static uint64_t asked, refused, calls;

static ssize_t as_the_mac(size_t n)
{
    calls++;
    if (n > INT_MAX) {
        refused++;
        errno = EINVAL;
        return -1;
    }
    asked += n;
    return (ssize_t)n;
}

ssize_t pread(int fd, void *p, size_t n, off_t off)
{
    return as_the_mac(n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
    return as_the_mac(n);
}

static int setup(void **state)
{
    /* addresses alone: nothing is read into them */
    void *p = mmap(NULL, LARGE + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
    *state = p;
    asked = refused = calls = 0;
    return p == MAP_FAILED;
}

static int teardown(void **state)
{
    return munmap(*state, LARGE + 8192);
}

static void t_plain(void **state)
{
    struct err e;
    assert_int_equal(file_pread(0, "x", *state, LARGE, 0, &e), 0);
    assert_int_equal(asked, LARGE);
    assert_int_equal(calls, 3);
    assert_int_equal(file_pwrite(0, "x", *state, LARGE, 0, &e), 0);
    assert_int_equal(asked, 2 * LARGE);
    assert_int_equal(refused, 0);
}

/* The read goes past the page cache to its end; a refused one would fall back to a plain one. */
static void t_uncached(void **state)
{
    struct err e;
    struct uncached f = {.fd = 0, .past = true};
    assert_int_equal(uncached_read(&f, "x", *state, LARGE, 4096, &e), 0);
    assert_int_equal(asked, LARGE);
    assert_int_equal(refused, 0);
    assert_true(f.past);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test_setup_teardown(t_plain, setup, teardown),
                                   cmocka_unit_test_setup_teardown(t_uncached, setup, teardown)};
    return cmocka_run_group_tests_name("large", t, NULL, NULL);
}
