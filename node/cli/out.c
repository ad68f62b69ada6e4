/* SPDX-License-Identifier: MIT
 * out.c: results, errors and numbers for people; see cli.h. */
#include "node/cli/cli.h"
#include "node/cli/live.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *code_name(int code)
{
    switch (code) {
#define CODE_CASE(n, t) \
    case n:             \
        return #n;
        ERR_CODES(CODE_CASE)
#undef CODE_CASE
    }
    return "ERR_UNKNOWN";
}

/* A JSON string even when the sentence quotes bytes that are no UTF-8. */
static json_t *any_string(const char *s)
{
    json_t *j = json_string(s);
    if (!j) {
        char plain[600];
        size_t n = 0;
        for (; s[n] && n < sizeof plain - 1; n++) {
            plain[n] = (s[n] & 0x80) ? '?' : s[n];
        }
        plain[n] = 0;
        j = json_string(plain);
    }
    return j;
}

/* A sentence may quote what a server, a file or a person gave. */
static void say(const char *message)
{
    char plain[1000];
    size_t n = strlen(message);
    n = live_plain(message, n < sizeof plain ? n : sizeof plain, plain);
    fprintf(stderr, "shoal: %.*s\n", (int)n, plain);
}

static void report(struct cli *c, const char *code, const char *message)
{
    say(message);
    if (c->json) {
        (void)cli_json(
            c, json_pack("{s:{s:s, s:o}}", "error", "code", code, "message", any_string(message)));
    }
}

int cli_fail(struct cli *c, const struct err *e)
{
    report(c, code_name(e->code), e->msg[0] ? e->msg : err_text(e->code));
    return CLI_FAILED;
}

int cli_usage(struct cli *c, const char *fmt, ...)
{
    char msg[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    report(c, "usage", msg);
    fprintf(stderr, "Try: shoal %s%s--help\n", c->cmd ? c->cmd->name : "", c->cmd ? " " : "");
    return CLI_USAGE;
}

int cli_write(struct cli *c, const void *p, size_t n)
{
    if ((n && fwrite(p, 1, n, stdout) != n) || fflush(stdout)) {
        if (errno != EPIPE) {
            fprintf(stderr, "shoal: cannot write the result: %s\n", strerror(errno));
        }
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int json_sink(const char *p, size_t n, void *ctx)
{
    return fwrite(p, 1, n, stdout) == n ? 0 : -1;
}

int cli_json(struct cli *c, json_t *v)
{
    if (!v) {
        fprintf(stderr, "shoal: out of memory while writing the result\n");
        return CLI_FAILED;
    }
    int r = json_dump_callback(v, json_sink, NULL, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(v);
    return r ? CLI_FAILED : cli_write(c, "\n", 1);
}

void cli_note(const struct cli *c, const char *fmt, ...)
{
    if (c->quiet) {
        return;
    }
    char msg[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    say(msg);
}

const char *cli_bytes(uint64_t n, char out[CLI_NUM])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB"};
    if (n < 1000) {
        snprintf(out, CLI_NUM, "%u B", (unsigned)n);
        return out;
    }
    double v = (double)n / 1000;
    unsigned u = 0;
    while (v >= 999.5 && u < 4) {
        v /= 1000;
        u++;
    }
    snprintf(out, CLI_NUM, v < 9.995 ? "%.2f %s" : v < 99.95 ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

const char *cli_duration(double s, char out[CLI_NUM])
{
    if (!(s > 0)) {
        s = 0;
    }
    if (s > 1e9) {
        s = 1e9;
    }
    unsigned long t = (unsigned long)(s + 0.5);
    if (s < 9.95) {
        snprintf(out, CLI_NUM, "%.1f s", s);
    } else if (t < 60) {
        snprintf(out, CLI_NUM, "%lu s", t);
    } else if (t < 3600) {
        snprintf(out, CLI_NUM, "%lu min %lu s", t / 60, t % 60);
    } else {
        snprintf(out, CLI_NUM, "%lu h %lu min", t / 3600, t / 60 % 60);
    }
    return out;
}

/* ---- signals ---- */

/* The one thing that the signal handler touches; other threads look at it, too. Lock-free. */
static atomic_int interrupted;

static void on_signal(int sig)
{
    atomic_store(&interrupted, 1);
}

bool cli_interrupted(void)
{
    return atomic_load(&interrupted) != 0;
}

void cli_ignore_sigpipe(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = SIG_IGN;
    sigemptyset(&a.sa_mask);
    sigaction(SIGPIPE, &a, NULL);
    sigaction(SIGXFSZ, &a, NULL); /* a limit on file sizes is an error of write */
}

void cli_catch_interrupts(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESETHAND | SA_RESTART;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}
