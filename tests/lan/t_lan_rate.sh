#!/bin/bash
# SPDX-License-Identifier: MIT
# t_lan_rate.sh LAN_RATE: what peers on slow wires deliver, against bare TLS over the same wires: rates and ratios are
# printed, the machine that plays all three may be busy. Asserted is that every byte comes and is right (lan_rate
# compares each chunk's SHA-256), and that with two peers both give. Root; 77 = skipped.
set -u
rate=$1
cd "$(dirname "$0")" || exit 2
export LAN=lr$$ LAN_DIR=${TMPDIR:-/tmp}/lan.rate.$$
. ./netns.sh
. ./check.sh
lan_need
lan_trap

# Machines 1 and 2 have everything, each behind a wire of 100 Mbit/s; machine 3 asks, its own wire is quick.
t 'three machines' lan_up 3
t 'homes of one shoal' "$rate" homes "$LAN_DIR/home" 3
for i in 1 2; do
    lan_shape $i rate=100mbit delay=200us
    lan_bg $i "$LAN_DIR/serve$i" "$rate" serve "$LAN_DIR/home/$i" 4433
done
t 'both serve' within 60 eval 'grep -q ready "$LAN_DIR/serve1" && grep -q ready "$LAN_DIR/serve2"'
lan_zero
t 'measured, medians of three rounds' eval \
    'lan_run 3 "$rate" fetch "$LAN_DIR/home/3" 3 10.77.0.1:4433 10.77.0.2:4433 >"$LAN_DIR/out" 2>"$LAN_DIR/log"'
sed 's/^/     /' "$LAN_DIR/out"
awk '{ b[NR] = $3; m[NR] = $5 } END { if (b[1] && m[1])
    printf "     a second peer: %.2f of the rate with one, bare TLS %.2f\n", m[2] / m[1], b[2] / b[1] }' "$LAN_DIR/out"
# Four objects by bare TLS, and four of the eight that the mesh fetches from two, or at least a fifth of them.
object=17547264
for i in 1 2; do
    t "$i gave its part of what the mesh fetched" between "$(lan_pair_bytes $i 3)" $((i == 1 ? 13 * object : 5 * object)) 1e12
done
if [ $lan_failed != 0 ]; then
    tail -n 30 "$LAN_DIR/log"
fi
lan_result 'rates over shaped wires'
