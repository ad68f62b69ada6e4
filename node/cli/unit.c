/* SPDX-License-Identifier: MIT
 * unit.c: see unit.h. */
#include "node/cli/unit.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define LABEL "org.shoal.node"

int unit_name(enum unit_kind k, const char *home, bool standard, struct buf *out)
{
    int r = buf_adds(out, k == UNIT_LAUNCHD ? LABEL : "shoal");
    if (!r && !standard) {
        r = buf_addf(out, "%c%08x", k == UNIT_LAUNCHD ? '.' : '-',
                     (unsigned)(XXH3_64bits(home, strlen(home)) >> 32));
    }
    return r;
}

int unit_path(enum unit_kind k, const char *user, const char *config, const char *name,
              struct buf *out)
{
    if (k == UNIT_LAUNCHD) {
        return buf_addf(out, "%s/Library/LaunchAgents/%s.plist", user, name);
    }
    /* an XDG path that is not absolute is to be ignored */
    return config && config[0] == '/'
               ? buf_addf(out, "%s/systemd/user/%s.service", config, name)
               : buf_addf(out, "%s/.config/systemd/user/%s.service", user, name);
}

/* The length of the UTF-8 character at s, which ends with a NUL; 0: it is none. */
static size_t utf8(const unsigned char *s)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 4 && (s[0] < 0xf0 || s[0] > 0xf4)) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* forms that are too long, halves of pairs, and what is beyond the last one */
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
               (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

static int check(const char *word, struct err *e)
{
    for (const unsigned char *p = (const unsigned char *)word; *p;) {
        size_t n = utf8(p);
        if (!n || *p < ' ' || *p == 0x7f) {
            return err_set(
                e, ERR_ARG,
                "\"%.100s\" has a control character, or is not UTF-8: such a word cannot "
                "stand in a service's file",
                word);
        }
        p += n;
    }
    return 0;
}

/* ---- launchd ---- */

static int xml_text(struct buf *out, const char *s)
{
    int r = 0;
    for (; !r && *s; s++) {
        r = *s == '&'   ? buf_adds(out, "&amp;")
            : *s == '<' ? buf_adds(out, "&lt;")
            : *s == '>' ? buf_adds(out, "&gt;")
                        : buf_add(out, s, 1);
    }
    return r;
}

static int xml_string(struct buf *out, const char *indent, const char *s)
{
    int r = buf_addf(out, "%s<string>", indent);
    r = r ? r : xml_text(out, s);
    return r ? r : buf_adds(out, "</string>\n");
}

/* Started at login, and again half a minute after it ended with an error; not after `shoal` was
 * told to stop. Interactive: without it launchd takes processor and disk away from what it starts,
 * and an answer is what somebody waits for; the node itself gives way (kernels' pool, QoS classes).
 */
static int launchd(const struct unit *u, struct buf *out)
{
    int r = buf_adds(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                          "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
                          "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"
                          "<plist version=\"1.0\">\n<dict>\n\t<key>Label</key>\n");
    r = r ? r : xml_string(out, "\t", u->name);
    r = r ? r : buf_adds(out, "\t<key>ProgramArguments</key>\n\t<array>\n");
    for (size_t i = 0; !r && i < u->n; i++) {
        r = xml_string(out, "\t\t", u->args[i]);
    }
    r = r ? r
          : buf_adds(out, "\t</array>\n"
                          "\t<key>RunAtLoad</key>\n\t<true/>\n"
                          "\t<key>KeepAlive</key>\n\t<dict>\n"
                          "\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>\n"
                          "\t<key>ThrottleInterval</key>\n\t<integer>30</integer>\n"
                          "\t<key>ExitTimeOut</key>\n\t<integer>60</integer>\n"
                          "\t<key>ProcessType</key>\n\t<string>Interactive</string>\n"
                          "\t<key>Umask</key>\n\t<integer>63</integer>\n" /* 077 */
                          "\t<key>SoftResourceLimits</key>\n\t<dict>\n"
                          "\t\t<key>NumberOfFiles</key>\n\t\t<integer>10240</integer>\n\t</dict>\n"
                          "\t<key>StandardErrorPath</key>\n");
    r = r ? r : xml_string(out, "\t", u->log);
    return r ? r : buf_adds(out, "</dict>\n</plist>\n");
}

/* ---- systemd ---- */

/* In double quotes, where a backslash escapes; % begins a specifier and $ a variable, each doubled
 * to mean itself. The program's own path knows no variables (unit_text refuses a $ there). */
static int sd_word(struct buf *out, const char *s)
{
    int r = buf_adds(out, "\"");
    for (; !r && *s; s++) {
        if (*s == '"' || *s == '\\') {
            r = buf_adds(out, "\\");
        } else if (*s == '%' || *s == '$') {
            r = buf_add(out, s, 1);
        }
        r = r ? r : buf_add(out, s, 1);
    }
    return r ? r : buf_adds(out, "\"");
}

static int systemd(const struct unit *u, struct buf *out)
{
    int r = buf_adds(out, "[Unit]\nDescription=Shoal node\nStartLimitIntervalSec=0\n\n"
                          "[Service]\nExecStart=");
    for (size_t i = 0; !r && i < u->n; i++) {
        r = i ? buf_adds(out, " ") : 0;
        r = r ? r : sd_word(out, u->args[i]);
    }
    return r ? r
             : buf_adds(out,
                        "\nRestart=on-failure\nRestartSec=30\nTimeoutStopSec=60\nUMask=0077\n\n"
                        "[Install]\nWantedBy=default.target\n");
}

int unit_text(enum unit_kind k, const struct unit *u, struct buf *out, struct err *e)
{
    int r = k == UNIT_LAUNCHD ? check(u->log, e) : 0;
    for (size_t i = 0; !r && i < u->n; i++) {
        r = check(u->args[i], e);
    }
    if (!r && k == UNIT_SYSTEMD && strpbrk(u->args[0], "$\"\\")) {
        r = err_set(e, ERR_ARG, "systemd cannot start a program at %.300s: move it", u->args[0]);
    }
    for (size_t i = 1; !r && k == UNIT_SYSTEMD && i < u->n; i++) {
        if (!strcmp(u->args[i], ";")) { /* even quoted it would begin another command */
            r = err_set(e, ERR_ARG, "a \";\" cannot be an argument in systemd's file");
        }
    }
    if (r) {
        return r;
    }
    r = k == UNIT_LAUNCHD ? launchd(u, out) : systemd(u, out);
    return r ? err_set(e, ERR_LIMIT, "the command is too long for a service's file") : 0;
}

/* ---- commands ---- */

__attribute__((format(printf, 2, 3))) static void word(struct unit_step *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->word[s->n++], UNIT_WORD, fmt, ap);
    va_end(ap);
}

static struct unit_step *step(struct unit_step *s, const char *tool, bool may_fail)
{
    s->n = 0;
    s->may_fail = may_fail;
    s->again = 0;
    word(s, "%s", tool);
    if (!strcmp(tool, "systemctl")) {
        word(s, "--user");
    }
    return s;
}

size_t unit_end(enum unit_kind k, const char *name, unsigned uid, struct unit_step out[UNIT_STEPS])
{
    if (k == UNIT_LAUNCHD) {
        struct unit_step *s = step(out, "launchctl", true);
        word(s, "bootout");
        word(s, "gui/%u/%s", uid, name);
        return 1;
    }
    struct unit_step *s = step(out, "systemctl", true);
    word(s, "disable");
    word(s, "--now");
    word(s, "%s.service", name);
    return 1;
}

size_t unit_begin(enum unit_kind k, const char *name, const char *path, unsigned uid,
                  struct unit_step out[UNIT_STEPS])
{
    if (k ==
        UNIT_LAUNCHD) { /* what runs is ended first, since a loaded label is not loaded again */
        size_t n = unit_end(k, name, uid, out);
        struct unit_step *s = step(out + n, "launchctl", false);
        s->again = 10;
        word(s, "bootstrap");
        word(s, "gui/%u", uid);
        word(s, "%s", path);
        return n + 1;
    }
    size_t n = unit_forget(k, out);
    struct unit_step *s = step(out + n, "systemctl", false);
    word(s, "enable");
    word(s, "%s.service", name);
    s = step(out + n + 1, "systemctl", false);
    word(s, "restart");
    word(s, "%s.service", name);
    return n + 2;
}

size_t unit_forget(enum unit_kind k, struct unit_step out[UNIT_STEPS])
{
    if (k == UNIT_LAUNCHD) {
        return 0;
    }
    word(step(out, "systemctl", false), "daemon-reload");
    return 1;
}

void unit_ask(enum unit_kind k, const char *name, unsigned uid, struct unit_step *out)
{
    if (k == UNIT_LAUNCHD) {
        struct unit_step *s = step(out, "launchctl", false);
        word(s, "print");
        word(s, "gui/%u/%s", uid, name);
        return;
    }
    struct unit_step *s = step(out, "systemctl", false);
    word(s, "is-enabled");
    word(s, "%s.service", name);
}
