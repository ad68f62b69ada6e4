/* SPDX-License-Identifier: MIT
 * installed.c: see installed.h. */
#include "node/cli/installed.h"

#include "node/cli/plat.h"
#include "proto/base/file.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAID 600 /* bytes kept of what a tool says */

/* An absolute path that does not depend on the working folder; links stay, since an external
 * volume's may lead elsewhere later. */
static int absolute(const char *p, struct buf *out, struct err *e)
{
    char cwd[PATH_MAX], real[PATH_MAX];
    int r;
    if (realpath(p, real)) {
        r = buf_adds(out, real);
    } else if (p[0] == '/') {
        r = buf_adds(out, p);
    } else if (!getcwd(cwd, sizeof cwd)) {
        return err_set(e, ERR_IO, "the working folder is gone: %s", strerror(errno));
    } else {
        r = buf_addf(out, "%s/%s", cwd, p);
    }
    return r ? err_set(e, ERR_LIMIT, "the path of the home is too long") : 0;
}

/* One folder, however it is written: a volume may take upper and lower case for the same. */
static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return !strcmp(a, b) ||
           (!stat(a, &x) && !stat(b, &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev);
}

static const char *user_home(void)
{
    const char *h = getenv("HOME");
    if (h && h[0] == '/') {
        return h;
    }
    const struct passwd *pw = getpwuid(getuid());
    return pw && pw->pw_dir ? pw->pw_dir : "";
}

int installed_open(struct installed *s, enum unit_kind k, const char *home, struct err *e)
{
    struct buf own, real;
    s->kind = k;
    buf_init(&s->home, PATH_MAX);
    buf_init(&s->name, 64);
    buf_init(&s->path, PATH_MAX);
    buf_init(&s->log, PATH_MAX);
    buf_init(&own, PATH_MAX);
    buf_init(&real, PATH_MAX);
    struct err ignored = {0};
    int r = absolute(home, &s->home, e);
    const char *other = getenv("SHOAL_HOME"); /* a second home of the user's, then */
    bool standard = !r && !(other && *other) && !plat_home(&own, &ignored) &&
                    !absolute(own.p, &real, &ignored) && same_folder(real.p, s->home.p);
    if (!r && !user_home()[0]) {
        r = err_set(e, ERR_ARG, "HOME is not set: it says where services are kept");
    }
    if (!r && (unit_name(k, s->home.p, standard, &s->name) ||
               unit_path(k, user_home(), getenv("XDG_CONFIG_HOME"), s->name.p, &s->path) ||
               buf_addf(&s->log, "%s/service.log", s->home.p))) {
        r = err_set(e, ERR_LIMIT, "the path of the home is too long");
    }
    buf_free(&own);
    buf_free(&real);
    return r;
}

void installed_close(struct installed *s)
{
    buf_free(&s->home);
    buf_free(&s->name);
    buf_free(&s->path);
    buf_free(&s->log);
}

bool installed_there(const struct installed *s)
{
    return !access(s->path.p, F_OK);
}

int installed_loaded(const struct installed *s, bool *loaded)
{
    struct unit_step st;
    const char *argv[UNIT_STEP_WORDS + 1] = {NULL};
    struct buf said;
    struct err e = {0};
    int status = 0;
    unit_ask(s->kind, s->name.p, (unsigned)getuid(), &st);
    for (size_t i = 0; i < st.n; i++) {
        argv[i] = st.word[i];
    }
    buf_init(&said, SAID);
    int r = plat_run(argv, &said, &status, &e);
    buf_free(&said);
    *loaded = !r && status == 0;
    return r;
}

int installed_program(const char *exe, struct buf *out, struct err *e)
{
    char p[PATH_MAX], real[PATH_MAX];
    const char *path = getenv("PATH"), *name = strrchr(exe, '/');
    if (!name) {
        return err_set(e, ERR_IO, "this program's path is not known: start it by its whole path");
    }
    for (const char *at = path; at && *at;) {
        size_t n = strcspn(at, ":");
        if (at[0] == '/' && n + strlen(name) < sizeof p) {
            snprintf(p, sizeof p, "%.*s%s", (int)n, at, name);
            if (realpath(p, real) && !strcmp(real, exe)) {
                return buf_adds(out, p) ? err_set(e, ERR_LIMIT, "the program's path is too long")
                                        : 0;
            }
        }
        at += n + (at[n] == ':');
    }
    return buf_adds(out, exe) ? err_set(e, ERR_LIMIT, "the program's path is too long") : 0;
}

static int run(const struct unit_step *s, struct err *e)
{
    const char *argv[UNIT_STEP_WORDS + 1] = {NULL};
    struct buf said;
    int status = 0, r;
    for (size_t i = 0; i < s->n; i++) {
        argv[i] = s->word[i];
    }
    buf_init(&said, SAID);
    for (unsigned left = s->again;; left--) {
        said.n = 0;
        r = plat_run(argv, &said, &status, e);
        if (r || !status || !left) {
            break;
        }
        poll(NULL, 0, 1000);
    }
    if (!r && status && !s->may_fail) {
        size_t n = said.n;
        while (n && (said.p[n - 1] == '\n' || said.p[n - 1] == ' ')) {
            n--;
        }
        r = err_set(e, ERR_REFUSED, "%s %s failed (status %d): %.*s", argv[0],
                    argv[s->n > 2 ? 2 : 1], status, (int)n, n ? said.p : "");
    }
    buf_free(&said);
    return r;
}

static int run_all(const struct unit_step *s, size_t n, struct err *e)
{
    int r = 0;
    for (size_t i = 0; !r && i < n; i++) {
        r = run(&s[i], e);
    }
    return r;
}

static int folder_of(const char *path, struct err *e)
{
    char p[PATH_MAX];
    snprintf(p, sizeof p, "%s", path);
    *strrchr(p, '/') = 0;
    return file_mkdirs(p, e);
}

int installed_put(struct installed *s, const struct unit *u, struct err *e)
{
    struct unit_step *st = calloc(UNIT_STEPS, sizeof *st);
    struct buf text;
    buf_init(&text, UNIT_TEXT);
    int r = st ? unit_text(s->kind, u, &text, e) : err_set(e, ERR_NOMEM, "out of memory");
    r = r ? r : folder_of(s->path.p, e);
    /* 0600: addresses of peers and folders are nobody else's affair */
    r = r ? r : file_write_atomic(s->path.p, text.p, text.n, 0600, e);
    if (!r) {
        r = run_all(st, unit_begin(s->kind, s->name.p, s->path.p, (unsigned)getuid(), st), e);
        if (r) {
            struct err ignored = {0};
            (void)installed_remove(s, &ignored);
        }
    }
    buf_free(&text);
    free(st);
    return r;
}

int installed_remove(struct installed *s, struct err *e)
{
    if (!installed_there(s)) {
        return err_set(e, ERR_NOTFOUND, "no service is installed for %s", s->home.p);
    }
    struct unit_step *st = calloc(UNIT_STEPS, sizeof *st);
    int r = st ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    struct err tool = {0};
    if (!r) { /* where there is no manager, the file goes all the same */
        (void)run_all(st, unit_end(s->kind, s->name.p, (unsigned)getuid(), st), &tool);
        if (unlink(s->path.p) && errno != ENOENT) {
            r = err_set(e, ERR_IO, "%s cannot be deleted: %s", s->path.p, strerror(errno));
        }
        (void)run_all(st, unit_forget(s->kind, st), &tool);
    }
    free(st);
    return r;
}
