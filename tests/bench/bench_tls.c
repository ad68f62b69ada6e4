/* SPDX-License-Identifier: MIT
 * bench_tls.c: the transport over loopback against the plainest program of the same library and
 * cipher suite (one blocking client thread, one blocking server thread). Both send objects of
 * 17,547,264 bytes in frames of 1 MiB and take the SHA-256 of every chunk received; rounds are
 * interleaved, medians compared. Then the same for small round trips, which show the price of the
 * hops between loop and workers.
 * usage: bench_tls [ROUNDS] (default 7). Exit 1 when the ratio of throughputs is below 0.9. */
#include "tests/peer/bare_tls.h"

#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define OBJECT 17547264u
enum { OBJECTS = 3, SMALL = 2000, SMALL_BODY = 32, DATA_BODY = 12, ROUNDS_MAX = 50 };

static struct kit_id id_server, id_client;
static struct kit_trust trust;
static uint8_t *object;
static uint8_t want[SHA256_SIZE]; /* over the chunks' SHA-256s */

static void check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "bench_tls: %s\n", what);
        exit(2);
    }
}

static size_t chunk_n(size_t at)
{
    return OBJECT - at < WIRE_RAW_MAX ? OBJECT - at : WIRE_RAW_MAX;
}

/* ---- bare ---- */

static int bare_fd, bare_port;

/* 'o': send an object. 's': echo small frames. 'q': end. Every request is one small frame. */
static void *bare_server(void *arg)
{
    int fd = accept(bare_fd, NULL, NULL);
    struct bare *b = bare_new(fd, true, &id_server, TLS_FASTEST);
    uint8_t head[WIRE_HEAD], body[SMALL_BODY] = {0};
    check(bare_handshake(b) == 0, "bare handshake");
    for (;;) {
        check(bare_read(b, head, sizeof head) == 0, "bare read");
        check(num_get_le32(head) <= SMALL_BODY, "bare length");
        check(bare_read(b, body, num_get_le32(head)) == 0, "bare read");
        if (body[0] == 'q') {
            break;
        } else if (body[0] == 's') {
            uint8_t frame[WIRE_HEAD + SMALL_BODY];
            memcpy(frame, head, WIRE_HEAD);
            memcpy(frame + WIRE_HEAD, body, SMALL_BODY);
            check(bare_write(b, frame, sizeof frame) == 0, "bare write");
            continue;
        }
        for (size_t at = 0; at < OBJECT; at += WIRE_RAW_MAX) {
            uint8_t h[WIRE_HEAD + DATA_BODY] = {0};
            frame_head(h, DATA_BODY, chunk_n(at));
            check(bare_write(b, h, sizeof h) == 0 && bare_write(b, object + at, chunk_n(at)) == 0,
                  "bare write");
        }
    }
    bare_free(b, true);
    return NULL;
}

static void bare_ask(struct bare *b, char what)
{
    uint8_t frame[WIRE_HEAD + SMALL_BODY] = {0};
    frame_head(frame, SMALL_BODY, 0);
    frame[WIRE_HEAD] = (uint8_t)what;
    check(bare_write(b, frame, sizeof frame) == 0, "bare write");
}

static double bare_objects(struct bare *b)
{
    uint8_t *chunk = malloc(WIRE_RAW_MAX), h[WIRE_HEAD + DATA_BODY];
    double t = clock_s();
    for (int i = 0; i < OBJECTS; i++) {
        struct sha256 all;
        uint8_t d[SHA256_SIZE];
        sha256_init(&all);
        bare_ask(b, 'o');
        for (size_t at = 0; at < OBJECT; at += WIRE_RAW_MAX) {
            check(bare_read(b, h, sizeof h) == 0, "bare read");
            check(num_get_le32(h + 4) == chunk_n(at), "bare length");
            /* Record by record, hashed while in the cache: as the other side of the comparison. */
            struct sha256 s;
            sha256_init(&s);
            for (size_t k = 0; k < chunk_n(at);) {
                size_t n = chunk_n(at) - k < 16384 ? chunk_n(at) - k : 16384;
                check(bare_read(b, chunk + k, n) == 0, "bare read");
                sha256_add(&s, chunk + k, n);
                k += n;
            }
            sha256_done(&s, d);
            sha256_add(&all, d, sizeof d);
        }
        sha256_done(&all, d);
        check(memcmp(d, want, sizeof d) == 0, "bare: wrong bytes");
    }
    t = clock_s() - t;
    free(chunk);
    return OBJECTS * (double)OBJECT / t;
}

static double bare_small(struct bare *b)
{
    uint8_t frame[WIRE_HEAD + SMALL_BODY];
    double t = clock_s();
    for (int i = 0; i < SMALL; i++) {
        bare_ask(b, 's');
        check(bare_read(b, frame, sizeof frame) == 0, "bare read");
    }
    return SMALL / (clock_s() - t);
}

/* ---- ours: the server on a loop and thread of its own ---- */

static struct {
    pthread_t thread;
    uv_sem_t ready;
    uv_async_t stop;
    int port;
} srv;

static void serve(struct kit_log *l, struct frame *f)
{
    if (f->body[0] == 's') {
        check(tls_conn_send(l->c, f->body, f->body_n, NULL, TLS_CONTROL) == 0, "send");
    } else {
        for (size_t at = 0; at < OBJECT; at += WIRE_RAW_MAX) {
            static const uint8_t body[DATA_BODY];
            struct tls_raw raw = {object + at, chunk_n(at), NULL, NULL};
            check(tls_conn_send(l->c, body, sizeof body, &raw, TLS_DEMAND) == 0, "send");
        }
    }
    frame_free(f);
}

static void stop_now(uv_async_t *a)
{
    *(int *)a->data = 1;
}

static void *server_main(void *arg)
{
    uv_loop_t loop;
    struct kit_node n;
    struct tls_opts o;
    int stop = 0;
    uv_loop_init(&loop);
    kit_opts(&o, &id_server, &trust);
    o.send_max = 64 << 20;
    kit_node_open(&n, &loop, &o, "127.0.0.1", 1);
    n.model.on_frame = serve;
    srv.port = n.port;
    uv_async_init(&loop, &srv.stop, stop_now);
    srv.stop.data = &stop;
    uv_sem_post(&srv.ready);
    while (!stop) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&srv.stop, NULL);
    kit_node_close(&n);
    uv_loop_close(&loop);
    return NULL;
}

static struct {
    size_t at;
    int objects, small;
    struct sha256 all;
} rx;

static const uint8_t ask_object[SMALL_BODY] = {'o'}, ask_small[SMALL_BODY] = {'s'};

static void take(struct kit_log *l, struct frame *f)
{
    uint8_t d[SHA256_SIZE];
    if (!f->raw_n) {
        if (++rx.small < SMALL) {
            tls_conn_send(l->c, ask_small, SMALL_BODY, NULL, TLS_CONTROL);
        }
        frame_free(f);
        return;
    }
    check(f->raw_n == chunk_n(rx.at), "length");
    sha256_add(&rx.all, f->raw_sha256, SHA256_SIZE);
    rx.at += f->raw_n;
    if (rx.at == OBJECT) {
        sha256_done(&rx.all, d);
        check(memcmp(d, want, sizeof d) == 0, "wrong bytes");
        sha256_init(&rx.all);
        rx.at = 0;
        if (++rx.objects < OBJECTS) {
            tls_conn_send(l->c, ask_object, SMALL_BODY, NULL, TLS_CONTROL);
        }
    }
    frame_free(f);
}

static double our_objects(uv_loop_t *loop, struct kit_log *l)
{
    memset(&rx, 0, sizeof rx);
    sha256_init(&rx.all);
    double t = clock_s();
    tls_conn_send(l->c, ask_object, SMALL_BODY, NULL, TLS_CONTROL);
    check(kit_until(loop, &rx.objects, OBJECTS, 120000), "too slow");
    return OBJECTS * (double)OBJECT / (clock_s() - t);
}

static double our_small(uv_loop_t *loop, struct kit_log *l)
{
    memset(&rx, 0, sizeof rx);
    double t = clock_s();
    tls_conn_send(l->c, ask_small, SMALL_BODY, NULL, TLS_CONTROL);
    check(kit_until(loop, &rx.small, SMALL, 120000), "too slow");
    return SMALL / (clock_s() - t);
}

/* Processor seconds of all threads so far: what a busy machine distorts less than rates. */
static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 7;
    check(rounds >= 1 && rounds <= ROUNDS_MAX, "usage: bench_tls [ROUNDS]");
    kit_id_make(&id_server);
    kit_id_make(&id_client);
    trust.n = 2;
    trust.of[0].id = id_server.id;
    trust.of[1].id = id_client.id;
    trust.of[0].trust = trust.of[1].trust = TLS_MEMBER;
    object = malloc(OBJECT);
    struct sha256 all;
    sha256_init(&all);
    for (size_t at = 0; at < OBJECT; at += WIRE_RAW_MAX) {
        uint8_t d[SHA256_SIZE];
        for (size_t i = at; i < at + chunk_n(at); i++) {
            object[i] = (uint8_t)(i * 2654435761u >> 13);
        }
        sha256(object + at, chunk_n(at), d);
        sha256_add(&all, d, sizeof d);
    }
    sha256_done(&all, want);

    pthread_t bare_thread;
    bare_fd = bare_listen(&bare_port);
    pthread_create(&bare_thread, NULL, bare_server, NULL);
    struct bare *b = bare_new(bare_connect(bare_port), false, &id_client, TLS_FASTEST);
    check(bare_handshake(b) == 0, "bare handshake");

    uv_loop_t loop;
    struct kit_node n;
    struct tls_opts o;
    struct kit_log l = {.on_frame = take};
    uv_sem_init(&srv.ready, 0);
    pthread_create(&srv.thread, NULL, server_main, NULL);
    uv_sem_wait(&srv.ready);
    uv_loop_init(&loop);
    kit_opts(&o, &id_client, &trust);
    kit_node_open(&n, &loop, &o, NULL, 0);
    kit_connect(&n, &l, "127.0.0.1", srv.port, NULL);
    check(kit_until(&loop, &l.opens, 1, 20000), "no connection");
    check(strcmp(bare_suite(b), l.peer.suite) == 0, "the suites differ");
    const struct tls_speed *sp = tls_suite_speed();
    printf("suite %s %s; AES-GCM %.0f MB/s, ChaCha20-Poly1305 %.0f MB/s (seal, one thread)\n",
           l.peer.version, l.peer.suite, sp->aes_gcm / 1e6, sp->chacha20 / 1e6);

    double v[4][ROUNDS_MAX], cpu[2][ROUNDS_MAX];
    for (int i = -1; i < rounds; i++) { /* the first warms up */
        int at = i < 0 ? 0 : i;
        double c0 = cpu_s();
        v[0][at] = bare_objects(b);
        double c1 = cpu_s();
        v[1][at] = our_objects(&loop, &l);
        cpu[0][at] = c1 - c0;
        cpu[1][at] = cpu_s() - c1;
        v[2][at] = bare_small(b);
        v[3][at] = our_small(&loop, &l);
    }
    double big[2] = {median(v[0], rounds), median(v[1], rounds)};
    double small[2] = {median(v[2], rounds), median(v[3], rounds)};
    printf("objects        bare %7.1f MB/s   ours %7.1f MB/s   ratio %.3f\n", big[0] / 1e6,
           big[1] / 1e6, big[1] / big[0]);
    double used[2] = {median(cpu[0], rounds), median(cpu[1], rounds)};
    printf("  processor    bare %7.2f s/GB   ours %7.2f s/GB   ratio %.3f\n",
           used[0] / OBJECTS / OBJECT * 1e9, used[1] / OBJECTS / OBJECT * 1e9, used[1] / used[0]);
    printf("round trips    bare %7.0f /s     ours %7.0f /s     ratio %.3f\n", small[0], small[1],
           small[1] / small[0]);

    bare_ask(b, 'q');
    pthread_join(bare_thread, NULL);
    bare_free(b, true);
    close(bare_fd);
    kit_node_close(&n);
    uv_loop_close(&loop);
    uv_async_send(&srv.stop);
    pthread_join(srv.thread, NULL);
    uv_sem_destroy(&srv.ready);
    free(object);
    return big[1] / big[0] < 0.9;
}
