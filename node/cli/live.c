/* SPDX-License-Identifier: MIT
 * live.c: see live.h. */
#include "node/cli/live.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define TTY_MS 100    /* between redraws on a terminal */
#define PLAIN_MS 5000 /* between lines elsewhere */

struct live {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below and both streams */
    pthread_cond_t wake;
    live_compose compose;
    void *ctx;
    bool quiet, stop, tty;
    bool same;  /* stdout is a terminal too, so both streams share the screen */
    bool drawn; /* a line is on the screen */
    bool mid;   /* result text stands left of the cursor */
};

/* Columns of the terminal, at least 20. */
static size_t columns(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 20) {
        return 80;
    }
    return w.ws_col;
}

/* Remove the line from the screen; the lock is held. */
static void erase(struct live *l)
{
    if (l->drawn) {
        fputs(l->mid ? "\033[J" : "\r\033[K", stderr);
        fflush(stderr);
        l->drawn = false;
    }
}

static void draw(struct live *l)
{
    char line[LIVE_LINE];
    line[0] = 0;
    l->compose(l->ctx, line, sizeof line);
    if (!line[0]) {
        erase(l);
        return;
    }
    if (!l->tty) {
        fprintf(stderr, "shoal: %s\n", line);
        fflush(stderr);
        return;
    }
    size_t n = strlen(line), width = columns() - 1;
    if (n > width) {
        n = width;
        while (n && ((unsigned char)line[n] & 0xc0) == 0x80) {
            n--; /* never cut a character */
        }
    }
    if (l->mid) {
        /* Below the text: make sure that there is a line (IND, RI keep the column), save the
         * cursor, write, restore. */
        fprintf(stderr, "\033D\033M\0337\r\n%.*s\033[K\0338", (int)n, line);
    } else {
        fprintf(stderr, "\r%.*s\033[K", (int)n, line);
    }
    fflush(stderr);
    l->drawn = true;
}

static void *run(void *ctx)
{
    struct live *l = ctx;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        unsigned ms = l->tty ? TTY_MS : PLAIN_MS;
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += ms / 1000;
        t.tv_nsec += (long)(ms % 1000) * 1000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_sec++;
            t.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&l->wake, &l->lock, &t);
        if (!l->stop) {
            draw(l);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int live_start(bool quiet, live_compose compose, void *ctx, struct live **out, struct err *e)
{
    struct live *l = calloc(1, sizeof *l);
    if (!l) {
        return err_set(e, ERR_NOMEM, "no memory for the progress line");
    }
    const char *term = getenv("TERM");
    l->compose = compose;
    l->ctx = ctx;
    l->quiet = quiet;
    l->tty = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    l->same = l->tty && isatty(STDOUT_FILENO);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    if (!quiet && pthread_create(&l->thread, NULL, run, l)) {
        pthread_cond_destroy(&l->wake);
        pthread_mutex_destroy(&l->lock);
        free(l);
        return err_set(e, ERR_NOMEM, "cannot start the thread of the progress line");
    }
    *out = l;
    return 0;
}

void live_stop(struct live *l)
{
    if (!l) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    erase(l);
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    if (!l->quiet) {
        pthread_join(l->thread, NULL);
    }
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void live_clear(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    erase(l);
    pthread_mutex_unlock(&l->lock);
}

void live_log(struct live *l, const char *line)
{
    if (l->quiet) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    erase(l);
    fprintf(stderr, "%sshoal: %s\n", l->mid ? "\n" : "", line);
    l->mid = false;
    fflush(stderr);
    pthread_mutex_unlock(&l->lock);
}

size_t live_plain(const char *p, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0; /* U+0080 to U+009F */
        if (c1) {
            i++;
        } else if ((c >= ' ' && c != 0x7f) || c == '\n' || c == '\t') {
            out[k++] = p[i];
        }
    }
    return k;
}

int live_text(struct live *l, const char *p, size_t n)
{
    if (!n) {
        return 0;
    }
    pthread_mutex_lock(&l->lock);
    if (l->same) {
        erase(l);
    }
    int r = fwrite(p, 1, n, stdout) != n || fflush(stdout) ? -1 : 0;
    if (l->same) {
        l->mid = p[n - 1] != '\n';
    }
    pthread_mutex_unlock(&l->lock);
    return r;
}
