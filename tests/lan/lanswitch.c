/* SPDX-License-Identifier: MIT
 * lanswitch CONTROL_FIFO NS_PATH...: an Ethernet switch in user space with one TAP device "eth0" in
 * each given network namespace. Rate, delay, jitter, loss, cut cables, partitions, blocked pairs,
 * no multicast, byte counts for each pair; no kernel module but tun is needed. Commands come, one a
 * line, on the FIFO (see ctl). Linux, root. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAXP = 64, MAXF = 9216, MACS = 1024 };
struct port {
    int fd, up, group, mcast;
    double rate, delay, jitter, loss;
    uint64_t out_free, in_free;
}; /* rate bytes/s, 0 = no limit */
struct frame {
    uint64_t at, seq;
    int dst, len;
    unsigned char b[];
};
static struct port P[MAXP + 1];
static int np;
static unsigned char blocked[MAXP + 1][MAXP + 1];
static uint64_t bytes[MAXP + 1][MAXP + 1], frames[MAXP + 1][MAXP + 1], dropped[MAXP + 1];
static struct {
    unsigned char mac[6];
    int port;
} macs[MACS];
static int nmacs;
static struct frame **heap; /* frames that wait for their time, earliest first */
static int nh, caph;
static uint64_t next_seq;
static double queue_s = 0.3; /* longest queue of a shaped link */
static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int before(const struct frame *a, const struct frame *b)
{
    return a->at < b->at || (a->at == b->at && a->seq < b->seq);
}

static void push(struct frame *f)
{
    if (nh == caph) {
        int cap = caph ? caph * 2 : 1024;
        struct frame **more = realloc(heap, sizeof *heap * (size_t)cap);
        if (!more) {
            dropped[f->dst]++;
            free(f);
            return;
        }
        heap = more;
        caph = cap;
    }
    int i = nh++;
    while (i && before(f, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = f;
}

static struct frame *pop(void)
{
    struct frame *top = heap[0], *f = heap[--nh];
    int i = 0;
    for (;;) {
        int k = 2 * i + 1;
        if (k >= nh) {
            break;
        }
        if (k + 1 < nh && before(heap[k + 1], heap[k])) {
            k++;
        }
        if (!before(heap[k], f)) {
            break;
        }
        heap[i] = heap[k];
        i = k;
    }
    if (nh) {
        heap[i] = f;
    }
    return top;
}

static void deliver(struct frame *f)
{
    if (P[f->dst].up && write(P[f->dst].fd, f->b, (size_t)f->len) < 0) {
        dropped[f->dst]++;
    }
    free(f);
}

static uint64_t rnd_state = 88172645463325252u;
/* 0 <= x < 1; the same numbers in every run (xorshift64) */
static double rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return (double)(rnd_state >> 11) / 9007199254740992.0;
}

/* one side of a link: waits for its turn at the link's rate; 0 = queue full */
static uint64_t pass(uint64_t t, uint64_t *free_at, const struct port *p, int len)
{
    if (p->rate <= 0) {
        return t;
    }
    uint64_t s = *free_at > t ? *free_at : t;
    if ((double)(s - t) > queue_s * 1e9) {
        return 0;
    }
    return *free_at = s + (uint64_t)((len + 24) / p->rate * 1e9);
}

static void send_to(int src, int dst, const unsigned char *b, int len, uint64_t t)
{
    struct port *s = &P[src], *d = &P[dst];
    int mc = b[0] & 1, arp = b[12] == 8 && b[13] == 6;
    if (!d->up || s->group != d->group || blocked[src][dst] ||
        (mc && !arp && !(b[0] == 0x33 && b[2] == 0xff) && (!s->mcast || !d->mcast))) {
        return;
    }
    if (rnd() < s->loss || rnd() < d->loss) {
        dropped[dst]++;
        return;
    }
    uint64_t x = pass(t, &s->out_free, s, len);
    if (x) {
        x = pass(x, &d->in_free, d, len);
    }
    if (!x) {
        dropped[dst]++;
        return;
    }
    bytes[src][dst] += (uint64_t)len;
    frames[src][dst]++;
    x += (uint64_t)((s->delay + d->delay + rnd() * (s->jitter + d->jitter)) * 1e9);
    struct frame *f = malloc(sizeof *f + (size_t)len);
    if (!f) {
        dropped[dst]++;
        return;
    }
    f->at = x;
    f->seq = next_seq++;
    f->dst = dst;
    f->len = len;
    memcpy(f->b, b, (size_t)len);
    if (x <= t) {
        deliver(f);
    } else {
        push(f);
    }
}
static void input(int src, const unsigned char *b, int len, uint64_t t)
{
    if (len < 14 || !P[src].up) {
        return;
    }
    int i;
    if (!(b[6] & 1)) {
        for (i = 0; i < nmacs && memcmp(macs[i].mac, b + 6, 6); i++) {
        }
        if (i < MACS) {
            memcpy(macs[i].mac, b + 6, 6);
            macs[i].port = src;
            if (i == nmacs) {
                nmacs++;
            }
        }
    }
    if (!(b[0] & 1)) {
        for (i = 0; i < nmacs; i++) {
            if (!memcmp(macs[i].mac, b, 6)) {
                if (macs[i].port != src) {
                    send_to(src, macs[i].port, b, len, t);
                }
                return;
            }
        }
    }
    for (i = 1; i <= np; i++) {
        if (i != src) {
            send_to(src, i, b, len, t);
        }
    }
}

static void ctl(char *l)
{
    int i, j;
    char k[16], path[512];
    double v;
    if (sscanf(l, "set %d %15s %lf", &i, k, &v) == 3 && i > 0 && i <= np) {
        if (!strcmp(k, "rate")) {
            P[i].rate = v;
        } else if (!strcmp(k, "delay")) {
            P[i].delay = v;
        } else if (!strcmp(k, "jitter")) {
            P[i].jitter = v;
        } else if (!strcmp(k, "loss")) {
            P[i].loss = v;
        } else if (!strcmp(k, "mcast")) {
            P[i].mcast = v != 0;
        } else if (!strcmp(k, "group")) {
            P[i].group = (int)v;
        } else if (!strcmp(k, "up")) {
            P[i].up = v != 0;
            int c = P[i].up;
            ioctl(P[i].fd, TUNSETCARRIER, &c);
        }
    } else if (sscanf(l, "block %d %d %lf", &i, &j, &v) == 3 && i > 0 && i <= np && j > 0 &&
               j <= np) {
        blocked[i][j] = blocked[j][i] = v != 0;
    } else if (sscanf(l, "queue %lf", &v) == 1) {
        queue_s = v;
    } else if (!strncmp(l, "zero", 4)) {
        memset(bytes, 0, sizeof bytes);
        memset(frames, 0, sizeof frames);
        memset(dropped, 0, sizeof dropped);
    } else if (sscanf(l, "stats %500s", path) == 1) {
        char tmp[520];
        snprintf(tmp, sizeof tmp, "%s.tmp", path);
        FILE *f = fopen(tmp, "w");
        if (!f) {
            return;
        }
        for (i = 1; i <= np; i++) {
            for (j = 1; j <= np; j++) {
                if (i != j) {
                    fprintf(f, "%d %d %llu %llu\n", i, j, (unsigned long long)bytes[i][j],
                            (unsigned long long)frames[i][j]);
                }
            }
        }
        for (i = 1; i <= np; i++) {
            fprintf(f, "dropped %d %llu\n", i, (unsigned long long)dropped[i]);
        }
        fclose(f);
        rename(tmp, path);
    } else {
        fprintf(stderr, "lanswitch: not understood: %s\n", l);
    }
}
int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > MAXP) {
        fprintf(stderr, "usage: lanswitch CONTROL_FIFO NS_PATH...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    np = argc - 2;
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 1; i <= np; i++) {
        int ns = open(argv[i + 1], O_RDONLY | O_CLOEXEC);
        if (ns < 0 || setns(ns, CLONE_NEWNET)) {
            perror(argv[i + 1]);
            return 1;
        }
        close(ns);
        struct ifreq r;
        memset(&r, 0, sizeof r);
        snprintf(r.ifr_name, sizeof r.ifr_name, "eth0");
        r.ifr_flags = IFF_TAP | IFF_NO_PI;
        P[i].fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (P[i].fd < 0 || ioctl(P[i].fd, TUNSETIFF, &r)) {
            perror("tap");
            return 1;
        }
        P[i].up = P[i].mcast = 1;
    }
    setns(home, CLONE_NEWNET);
    int fifo = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fifo < 0) {
        perror(argv[1]);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    struct pollfd p[MAXP + 1];
    for (int i = 1; i <= np; i++) {
        p[i] = (struct pollfd){P[i].fd, POLLIN, 0};
    }
    p[0] = (struct pollfd){fifo, POLLIN, 0};
    static unsigned char b[MAXF + 64];
    static char line[4096];
    size_t nl = 0;
    for (;;) {
        uint64_t t = now();
        struct timespec w = {1, 0}, *wp = &w;
        if (nh) {
            uint64_t d = heap[0]->at > t ? heap[0]->at - t : 0;
            w.tv_sec = (time_t)(d / 1000000000u);
            w.tv_nsec = (long)(d % 1000000000u);
        }
        int n = ppoll(p, (nfds_t)np + 1, wp, NULL);
        t = now();
        while (nh && heap[0]->at <= t) {
            deliver(pop());
        }
        if (n <= 0) {
            continue;
        }
        if (p[0].revents) {
            ssize_t k = read(fifo, line + nl, sizeof line - 1 - nl);
            if (k > 0) {
                nl += (size_t)k;
                line[nl] = 0;
                char *s = line, *e;
                while ((e = strchr(s, '\n'))) {
                    *e = 0;
                    if (*s) {
                        ctl(s);
                    }
                    s = e + 1;
                }
                nl = strlen(s);
                memmove(line, s, nl + 1);
                if (nl == sizeof line - 1) {
                    nl = 0;
                }
            }
        }
        for (int i = 1; i <= np; i++) {
            if (p[i].revents) {
                for (int k = 0; k < 64; k++) {
                    ssize_t len = read(P[i].fd, b, MAXF);
                    if (len <= 0) {
                        break;
                    }
                    input(i, b, (int)len, t);
                }
            }
        }
    }
}
