/* SPDX-License-Identifier: MIT
 * kept.c: see kept.h. */
#include "node/store/kept.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_MAX 4096

/* A decimal number of [*p, end) that fits; *p goes behind it. */
static bool number(const char **p, const char *end, uint64_t *out)
{
    uint64_t v = 0;
    const char *from = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        uint64_t d = (uint64_t)(**p - '0');
        if (v > (INT64_MAX - d) / 10) {
            return false;
        }
        v = v * 10 + d;
    }
    *out = v;
    return *p > from;
}

/* Reads "NAME NUMBER"; false: it is another line. */
static bool named(const char *p, const char *end, const char *name, uint64_t *out)
{
    size_t n = strlen(name);
    if ((size_t)(end - p) <= n || memcmp(p, name, n) != 0 || p[n] != ' ') {
        return false;
    }
    p += n + 1;
    return number(&p, end, out) && p == end;
}

static const char *line_end(const char *p, const char *end)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    return nl ? nl : end;
}

/* ---- the budget ---- */

bool kept_budget_parse(const char *p, size_t n, struct kept_budget *out)
{
    const char *end = p + n;
    memset(out, 0, sizeof *out);
    while (p < end) {
        const char *stop = line_end(p, end);
        uint64_t v;
        if (named(p, stop, "disk_budget", &v) && v) {
            out->has_budget = true;
            out->budget = v;
        } else if (named(p, stop, "disk_floor", &v)) {
            out->has_floor = true;
            out->floor = v;
        } else {
            memset(out, 0, sizeof *out);
            return false;
        }
        p = stop < end ? stop + 1 : end;
    }
    return true;
}

void kept_budget_load(const char *cache_dir, struct kept_budget *out)
{
    struct buf b;
    struct err e;
    char *p = layout_path("%s/budget", cache_dir);
    memset(out, 0, sizeof *out);
    buf_init(&b, FILE_MAX);
    if (p && !file_read_all(p, &b, &e) && b.n) {
        (void)kept_budget_parse(b.p, b.n, out);
    }
    buf_free(&b);
    free(p);
}

int kept_budget_save(const char *cache_dir, const struct kept_budget *k, struct err *e)
{
    struct buf b;
    char *p = layout_path("%s/budget", cache_dir);
    int r = p ? 0 : ERR_NOMEM;
    buf_init(&b, FILE_MAX);
    if (!r && k->has_budget) {
        r = buf_addf(&b, "disk_budget %llu\n", (unsigned long long)k->budget);
    }
    if (!r && k->has_floor) {
        r = buf_addf(&b, "disk_floor %llu\n", (unsigned long long)k->floor);
    }
    if (r) {
        err_set(e, r, "out of memory");
    } else if (b.n) {
        r = file_write_atomic(p, b.p, b.n, 0600, e);
    } else if (unlink(p) && errno != ENOENT) {
        r = err_sys(e, errno, "cannot remove %s", p);
    }
    buf_free(&b);
    free(p);
    return r;
}

/* ---- days ---- */

int32_t kept_today(void)
{
    time_t t = time(NULL);
    return t > 0 ? (int32_t)(t / 86400) : 0;
}

/* Days since 1970-01-01 of a date of the Gregorian calendar, counted from March so that the leap
 * day ends a year. */
static int32_t days_of(int32_t y, int32_t m, int32_t d)
{
    y -= m <= 2;
    int32_t era = y / 400, yoe = y - era * 400;
    int32_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

void kept_date(int32_t day, char out[KEPT_DATE])
{
    time_t t = (time_t)day * 86400;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, KEPT_DATE, "%Y-%m-%d", &tm)) {
        out[0] = 0;
    }
}

/* "2026-11-30 123456" */
static bool day_line(const char *p, const char *end, struct kept_day *out)
{
    uint64_t y, m, d;
    if (!number(&p, end, &y) || p == end || *p++ != '-' || !number(&p, end, &m) || p == end ||
        *p++ != '-' || !number(&p, end, &d) || p == end || *p++ != ' ' ||
        !number(&p, end, &out->bytes) || p != end || y < 1970 || y > 9999 || m < 1 || m > 12 ||
        d < 1 || d > 31) {
        return false;
    }
    out->day = days_of((int32_t)y, (int32_t)m, (int32_t)d);
    return true;
}

/* In its place among n ascending days; a full list loses its first. Returns the new n. */
static size_t put_day(struct kept_day v[KEPT_DAYS], size_t n, struct kept_day x)
{
    size_t at = n;
    while (at > 0 && v[at - 1].day >= x.day) {
        at--;
    }
    if (at < n && v[at].day == x.day) {
        uint64_t sum = v[at].bytes + x.bytes;
        v[at].bytes = sum < x.bytes || sum > INT64_MAX ? INT64_MAX : sum;
        return n;
    }
    if (n == KEPT_DAYS && at == 0) {
        return n;
    }
    if (n == KEPT_DAYS) {
        memmove(v, v + 1, (at - 1) * sizeof *v);
        v[at - 1] = x;
        return n;
    }
    memmove(v + at + 1, v + at, (n - at) * sizeof *v);
    v[at] = x;
    return n + 1;
}

size_t kept_written_parse(const char *p, size_t n, struct kept_day out[KEPT_DAYS])
{
    const char *end = p + n;
    size_t k = 0;
    while (p < end) {
        const char *stop = line_end(p, end);
        struct kept_day x;
        if (day_line(p, stop, &x)) {
            k = put_day(out, k, x);
        }
        p = stop < end ? stop + 1 : end;
    }
    return k;
}

size_t kept_written_load(const char *model_dir, struct kept_day out[KEPT_DAYS])
{
    struct buf b;
    struct err e;
    size_t n = 0;
    char *p = layout_path("%s/" KEPT_WRITTEN, model_dir);
    buf_init(&b, FILE_MAX);
    if (p && !file_read_all(p, &b, &e) && b.n) {
        n = kept_written_parse(b.p, b.n, out);
    }
    buf_free(&b);
    free(p);
    return n;
}

/* With the cache folder's lock. */
static int add_to(const char *model_dir, int32_t day, uint64_t bytes, struct err *e)
{
    struct kept_day v[KEPT_DAYS];
    struct buf b;
    char *p = layout_path("%s/" KEPT_WRITTEN, model_dir);
    int r = p ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    buf_init(&b, FILE_MAX);
    if (!r) {
        size_t n = put_day(v, kept_written_load(model_dir, v), (struct kept_day){day, bytes});
        for (size_t i = 0; i < n && !r; i++) {
            char date[KEPT_DATE];
            kept_date(v[i].day, date);
            r = buf_addf(&b, "%s %llu\n", date, (unsigned long long)v[i].bytes);
        }
        r = r ? err_set(e, r, "out of memory") : file_write_atomic(p, b.p, b.n, 0600, e);
    }
    buf_free(&b);
    free(p);
    return r;
}

int kept_written_add(const char *cache_dir, const char *model_dir, int32_t day, uint64_t bytes,
                     struct err *e)
{
    int lock = layout_lock(cache_dir, e);
    int r = lock < 0 ? ERR_IO : add_to(model_dir, day, bytes, e);
    layout_unlock(lock);
    return r;
}

void kept_written_take(const char *model_dir, const char *session_dir)
{
    struct kept_day v[KEPT_DAYS];
    struct err e;
    size_t n = kept_written_load(session_dir, v);
    for (size_t i = 0; i < n; i++) {
        if (v[i].bytes) {
            (void)add_to(model_dir, v[i].day, v[i].bytes, &e);
        }
    }
}

static uint64_t today_in(const char *dir)
{
    struct kept_day v[KEPT_DAYS];
    size_t n = kept_written_load(dir, v);
    return n && v[n - 1].day == kept_today() ? v[n - 1].bytes : 0;
}

uint64_t kept_written_today(const char *model_dir)
{
    char *tmp = layout_path("%s/tmp", model_dir);
    DIR *d = tmp ? opendir(tmp) : NULL;
    struct dirent *x;
    uint64_t sum = today_in(model_dir);
    while (d && (x = readdir(d))) {
        char *p = strncmp(x->d_name, "s-", 2) ? NULL : layout_path("%s/%s", tmp, x->d_name);
        sum += p ? today_in(p) : 0;
        free(p);
    }
    if (d) {
        closedir(d);
    }
    free(tmp);
    return sum;
}
