#!/bin/bash
# SPDX-License-Identifier: MIT
# selftest.sh: proves that netns.sh does what it says. Root; ends with 77 where something is missing.
set -u
cd "$(dirname "$0")" || exit 2
export LAN=lt$$ LAN_DIR=${TMPDIR:-/tmp}/lan.selftest.$$
. ./netns.sh
. ./check.sh
lan_need ping nginx curl avahi-publish avahi-browse
lan_trap
ping1() { quiet lan_run "$1" ping -c1 -W1 "$(lan_addr "$2")"; }
secs() {
    local a b
    a=$(date +%s%N)
    quiet "$@"
    b=$(date +%s%N)
    awk -v a="$a" -v b="$b" 'BEGIN { print (b - a) / 1e9 }'
}

t 'four machines' lan_up 4
t 'ping 1 -> 4' ping1 1 4
t 'no way out' no quiet lan_run 1 ping -c1 -W1 192.0.2.1
t 'IPv6 link-local' quiet lan_run 1 ping -c1 -W1 "$(lan_ll 2)"

cc -O1 -Wall -Wextra sdbrowse.c -o "$LAN_DIR/sdbrowse" -ldns_sd || exit 2
browse() { lan_run "$1" "$LAN_DIR/sdbrowse" "$2" "$3" >"$LAN_DIR/$4"; }
t 'avahi on all' lan_mdns 1 2 3 4
lan_bg 1 "$LAN_DIR/pub" avahi-publish -s shell-1 _kit._tcp 4433 id=one v=1
P1=$LAN_PID
lan_bg 3 "$LAN_DIR/pub3" avahi-publish -s shell-3 _kit._tcp 4434 id=three
browse 4 _kit._tcp 4 b
t 'browse sees both' grep -q 'ADD shell-1' "$LAN_DIR/b"
t '... and the third' grep -q 'ADD shell-3' "$LAN_DIR/b"
t 'resolve gives host, port, TXT' grep -qE 'RESOLVED shell-1.* mac1.local.? 4433 .*id=one' "$LAN_DIR/b"
t 'avahi-browse agrees' grep -q 'mac3.local;10.77.0.3;4434' <(lan_run 2 avahi-browse -rptk _kit._tcp 2>/dev/null)
lan_bg 4 "$LAN_DIR/b2" "$LAN_DIR/sdbrowse" _kit._tcp 6
sleep 2
for p in $(lan_pids 1 avahi-publish); do kill "$p"; done
wait "$LAN_PID"
t 'goodbye is seen' grep -q 'REMOVE shell-1' "$LAN_DIR/b2"
wait "$P1"
lan_mdns_stop 3
t 'daemon stops' test -z "$(lan_pids 3 avahi-daemon)"
t 'daemon starts again' lan_mdns_start 3

mkdir -p "$LAN_DIR/www"
head -c 20000000 /dev/urandom >"$LAN_DIR/www/blob"
U=$(lan_origin 3 "$LAN_DIR/www")
t "origin at $U" test -n "$U"
lan_zero
lan_run 1 curl -s -r 1000000-8999999 -o "$LAN_DIR/part" "$U/blob"
t 'range download is right' cmp -s <(tail -c +1000001 "$LAN_DIR/www/blob" | head -c 8000000) "$LAN_DIR/part"
t 'bytes in at machine 1' between "$(lan_bytes 1 | cut -d' ' -f1)" 8000000 8800000
t 'bytes out at machine 3' between "$(lan_bytes 3 | cut -d' ' -f2)" 8000000 8800000
t 'none at machine 2' between "$(lan_bytes 2 | cut -d' ' -f1)" 0 20000
t 'origin log counts' between "$(lan_origin_bytes 3)" 8000000 8000000
t 'range over IPv6' test "$(lan_run 2 curl -s -g -r 0-99 "http://[fd77::3]:8000/blob" | wc -c)" = 100

lan_shape 1 rate=40mbit delay=10ms
t '4 MB at 40 Mbit/s take about 0.85 s' \
    between "$(secs lan_run 1 curl -s -r 0-3999999 -o /dev/null "$U/blob")" 0.75 1.8
t 'delay: round trip about 20 ms' \
    between "$(lan_run 1 ping -c5 -i.2 "$(lan_addr 3)" | awk -F/ '/rtt/ {print $5}')" 19 40
lan_unshape 1
t 'ping 2 -> 3' ping1 2 3
lan_shape 2 loss=30%
t 'loss: some of 60 pings go missing' between \
    "$(lan_run 2 ping -c60 -i.02 -W1 "$(lan_addr 3)" | sed -n 's/.* \([0-9.]*\)% packet loss.*/\1/p')" 20 80
lan_unshape 2

lan_bg 1 "$LAN_DIR/cut" curl -s -m 40 --limit-rate 2M -o "$LAN_DIR/slow" "$U/blob"
sleep 1
lan_cut 1
still() { # what was under way is read, then nothing comes
    local s
    s=$(stat -c %s "$LAN_DIR/slow")
    sleep 1
    [ "$(stat -c %s "$LAN_DIR/slow")" = "$s" ] && [ "$s" -lt 20000000 ]
}
t 'cut: transfer stands still' within 6 still
t 'cut: no carrier' grep -q 0 <(lan_run 1 cat /sys/class/net/eth0/carrier)
lan_heal 1
wait "$LAN_PID"
t 'healed: transfer ends right' cmp -s "$LAN_DIR/www/blob" "$LAN_DIR/slow"

lan_split 3 4
t 'split: 1 loses 3' no ping1 1 3
t 'split: 3 keeps 4' ping1 3 4
t 'split: 1 keeps 2' ping1 1 2
lan_join 3 4
t 'join' ping1 1 3
lan_block 1 2
t 'block: 1 loses 2' no ping1 1 2
t 'block: 1 keeps 3' ping1 1 3
lan_unblock 1 2
t 'unblock' ping1 1 2

lan_bg 3 "$LAN_DIR/p5" avahi-publish -s late _late._tcp 4500
lan_mcast_off 4
browse 4 _late._tcp 3 b3
t 'no multicast: nothing browsed' no grep -q ADD "$LAN_DIR/b3"
t 'no multicast: unicast goes on' ping1 4 1
lan_mcast_on 4
browse 4 _late._tcp 4 b4
t 'multicast again' grep -q 'ADD late' "$LAN_DIR/b4"
lan_zero
lan_run 1 curl -s -r 0-999999 -o /dev/null "$U/blob"
t 'bytes per pair' between "$(lan_pair_bytes 3 1)" 1000000 1100000
lan_run 2 curl -s -o /dev/null -w '%{speed_download}' "$U/blob" | awk '{printf "     unshaped: %.0f MB/s\n", $1 / 1e6}'

lan_readdr 2 77
t 'new address' ping1 1 2
lan_sleep 2
t 'asleep' no ping1 1 2
lan_wake 2
t 'awake' ping1 1 2
lan_kill 1
t 'power cut leaves no process' test -z "$(ip netns pids "$(lan_ns 1)")"
lan_down
t 'all gone' no quiet ls /run/netns/"${LAN}"*
lan_result 'lan selftest'
