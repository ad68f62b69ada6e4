/* SPDX-License-Identifier: MIT
 * tls_suite.h: the cipher suites that are allowed and their order. */
#ifndef SHOAL_PEER_TLS_SUITE_H
#define SHOAL_PEER_TLS_SUITE_H

enum tls_family {
    TLS_FASTEST, /* by measurement */
    TLS_AES_GCM,
    TLS_CHACHA20,
};

struct tls_speed {
    double aes_gcm, chacha20; /* bytes per second of sealing 16 KiB records on one thread */
};

/* Measured at the first call of a process (about 10 ms), then remembered. Any thread. */
const struct tls_speed *tls_suite_speed(void);

/* Suite numbers for mbedtls_ssl_conf_ciphersuites, ended by 0; `prefer` first, the other family
 * after it, AES-128 before AES-256. Static memory. */
const int *tls_suite_list(enum tls_family prefer);

#endif
