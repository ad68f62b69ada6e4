# SPDX-License-Identifier: MIT
# netns.sh: a small LAN on one machine, to be sourced by a test in bash (root, Linux, iproute2, a C compiler).
# Shaping is done by lanswitch.c and not by tc, so that no kernel module is needed.
#
#   . netns.sh
#   lan_need                      ends the script with 77 (skipped) and one line when something is missing; removes
#                                 what a LAN left whose script was killed
#   lan_trap                      lan_down and no $LAN_DIR any more however the script ends, Ctrl-C included
#   lan_up 3                      machines 1..3: network namespaces ${LAN}1.. joined by a user-space switch with
#                                 TAP devices: eth0 with 10.77.0.I/24, fd77::I/64 and an IPv6 link-local address;
#                                 no way out. LAN_MTU=1500. LAN_BRIDGE=1: joined by the kernel's bridge instead,
#                                 for many machines: nothing can be shaped, cut, split or counted then
#   lan_mdns 1 2 3                private dbus + avahi-daemon in each, on LAN_MDNS_IFS=eth0
#   lan_mdns_stop 1               ends avahi-daemon on machine 1; lan_mdns_start 1 starts it again
#   lan_run 1 CMD...              runs CMD on machine 1 (with its D-Bus)
#   lan_bg 1 LOG CMD...           the same in the background, pid in $LAN_PID
#   lan_origin 3 DIR [PORT]       nginx on machine 3 serving DIR (ranges, HTTP/1.1); prints its URL
#   lan_origin_bytes 3            body bytes served since. $LAN_DIR/3/nginx/access.log: client, method, path,
#                                 range, status, bytes, time. lan_origin_stop 3
#   lan_shape 1 rate=100mbit delay=5ms jitter=1ms loss=1%
#                                 both directions of machine 1's link; what is not named stays. lan_unshape 1
#   lan_cut 1 / lan_heal 1        pulls and replugs the cable (carrier goes away on machine 1)
#   lan_split 3 4 / lan_join 3 4  puts the machines on a second switch with no link to the first: a partition
#   lan_block 1 2 / lan_unblock 1 2   frames between 1 and 2 vanish, in both directions, all else goes on
#   lan_mcast_off 1 / lan_mcast_on 1  no multicast or broadcast but ARP and neighbour discovery passes machine
#                                 1's link (guest Wi-Fi)
#   lan_bytes 1                   "RX TX" bytes of machine 1's link since lan_zero
#   lan_pair_bytes 1 2            bytes sent from 1 to 2. lan_stats: all pairs
#   lan_wire 1 2 eth1 78          a second cable from 1 to 2: eth1 with 10.78.0.1/24 and 10.78.0.2/24, not shaped
#   lan_addr 1, lan_ll 1          10.77.0.1, fe80::...%eth0. lan_readdr 1 77 gives machine 1 10.77.0.77 instead
#   lan_pids 1 NAME               processes of machine 1 with that name
#   lan_sleep 1 / lan_wake 1      stops every process of machine 1 and pulls its cable / the reverse
#   lan_kill 1                    SIGKILL to every process of machine 1: a power cut
#   lan_down                      ends what was started here and removes the namespaces
#
# Only processes inside the namespaces made here are ever signalled. State is in $LAN_DIR.
LAN_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAN=${LAN:-lan}
LAN_DIR=${LAN_DIR:-${TMPDIR:-/tmp}/lan.$LAN}
LAN_N=0

lan_skip() {
    echo "skipped: $*"
    exit 77
}

lan_need() {
    local t
    [ "$(uname)" = Linux ] || lan_skip "a LAN of network namespaces needs Linux"
    [ "$(id -u)" = 0 ] || lan_skip "a LAN of network namespaces needs root"
    for t in ip cc unshare dbus-daemon avahi-daemon "$@"; do
        command -v "$t" >/dev/null || lan_skip "$t is missing (Debian: iproute2 gcc dbus avahi-daemon avahi-utils" \
            "iputils-ping nginx curl)"
    done
    ip netns add "${LAN}x" 2>/dev/null || lan_skip "network namespaces are not permitted here"
    ip netns del "${LAN}x"
    [ -c /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; } 2>/dev/null
    (exec 3<>/dev/net/tun) 2>/dev/null || lan_skip "no TAP devices here (/dev/net/tun)"
    lan_sweep
}

lan_trap() {
    trap 'lan_down; rm -rf "$LAN_DIR"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

lan_alive() { # PID: it runs, also stopped, and is no zombie
    local s
    s=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) && [ "${s%% *}" != Z ]
}

# $LAN_DIR/owner has the pid of the script and its LAN; a script that is no more was killed.
lan_sweep() {
    local f pid name
    for f in "${LAN_DIR%/*}"/lan.*/owner; do
        [ -e "$f" ] && read -r pid name <"$f" && ! lan_alive "$pid" || continue
        (
            LAN=$name
            LAN_DIR=${f%/owner}
            lan_down
            rm -rf "$LAN_DIR"
        )
    done
}

lan_ns() { echo "$LAN$1"; }
lan_addr() { cat "$LAN_DIR/$1/addr"; }
lan_ll() {
    ip netns exec "$LAN$1" ip -6 -o addr show dev eth0 scope link | awk '{sub("/.*","",$4); print $4 "%eth0"; exit}'
}

# Machines as cables into a bridge that is in a namespace of its own.
lan_bridge() {
    local i
    ip netns add "${LAN}b" && ip -n "${LAN}b" link add lan0 type bridge && ip -n "${LAN}b" link set lan0 up || return 1
    for ((i = 1; i <= LAN_N; i++)); do
        ip -n "$LAN$i" link add eth0 type veth peer name "m$i" netns "${LAN}b" &&
            ip -n "${LAN}b" link set "m$i" master lan0 up || return 1
    done
}

lan_up() {
    local i nss=()
    LAN_N=$1
    [ ! -e "/run/netns/${LAN}1" ] || { echo "lan_up: ${LAN}1 exists already: lan_down first, or another LAN=" >&2; return 1; }
    mkdir -p "$LAN_DIR"
    echo "$LAN_N" >"$LAN_DIR/n"
    echo "$$ $LAN" >"$LAN_DIR/owner"
    [ -c /dev/net/tun ] || { mkdir -p /dev/net; mknod /dev/net/tun c 10 200; }
    for ((i = 1; i <= LAN_N; i++)); do
        mkdir -p "$LAN_DIR/$i"
        ip netns add "$LAN$i" || return 1
        nss+=("/run/netns/$LAN$i")
    done
    if [ -n "${LAN_BRIDGE:-}" ]; then
        lan_bridge || return 1
    else
        lan_switch "${nss[@]}" || return 1
    fi
    for ((i = 1; i <= LAN_N; i++)); do
        ip netns exec "$LAN$i" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
            net.ipv6.conf.eth0.accept_dad=0 2>/dev/null
        ip -n "$LAN$i" link set lo up
        ip -n "$LAN$i" link set eth0 mtu "${LAN_MTU:-1500}" multicast on up || return 1
        ip -n "$LAN$i" addr add "10.77.0.$i/24" brd + dev eth0
        ip -n "$LAN$i" addr add "fd77::$i/64" dev eth0 nodad
        echo "10.77.0.$i" >"$LAN_DIR/$i/addr"
        ip -n "$LAN$i" route add 224.0.0.0/4 dev eth0 2>/dev/null
    done
    sleep .2
}

lan_switch() { # NETNS...
    local k=0
    cc -O2 -o "$LAN_DIR/lanswitch" "$LAN_HERE/lanswitch.c" || return 1
    rm -f "$LAN_DIR/ctl"
    mkfifo "$LAN_DIR/ctl"
    "$LAN_DIR/lanswitch" "$LAN_DIR/ctl" "$@" >"$LAN_DIR/switch.log" 2>&1 &
    echo $! >"$LAN_DIR/switch.pid"
    until grep -q ready "$LAN_DIR/switch.log"; do
        k=$((k + 1))
        [ $k -lt 100 ] || { cat "$LAN_DIR/switch.log" >&2; return 1; }
        sleep .1
    done
}

lan_ctl() {
    printf '%s\n' "$*" >"$LAN_DIR/ctl"
    sleep .02
}

lan_env() { echo "DBUS_SYSTEM_BUS_ADDRESS=unix:path=$LAN_DIR/$1/bus"; }

lan_run() {
    local i=$1
    shift
    ip netns exec "$LAN$i" env AVAHI_COMPAT_NOWARN=1 "$(lan_env "$i")" "$@"
}

lan_bg() {
    local i=$1 log=$2
    shift 2
    ip netns exec "$LAN$i" env AVAHI_COMPAT_NOWARN=1 "$(lan_env "$i")" "$@" >"$log" 2>&1 &
    LAN_PID=$!
}

# The daemon's pid file and socket have fixed names: a private mount namespace gives each daemon its own.
lan_mdns_start() {
    local i=$1 d=$LAN_DIR/$1 k=0
    ip netns exec "$LAN$i" unshare -m sh -c "mkdir -p /run/avahi-daemon
mount -t tmpfs tmpfs /run/avahi-daemon
exec env DBUS_SYSTEM_BUS_ADDRESS=unix:path=$d/bus avahi-daemon -f $d/avahi.conf --no-drop-root --no-chroot \
--no-rlimits --no-proc-title" >"$d/avahi.log" 2>&1 &
    until grep -q 'Server startup complete' "$d/avahi.log" 2>/dev/null; do
        k=$((k + 1))
        [ $k -lt 100 ] || { echo "lan_mdns: no avahi-daemon on machine $i: $(tail -1 "$d/avahi.log")" >&2; return 1; }
        sleep .1
    done
}

lan_mdns_stop() {
    local p
    for p in $(lan_pids "$1" avahi-daemon); do kill "$p"; done
    while [ -n "$(lan_pids "$1" avahi-daemon)" ]; do sleep .05; done
}

lan_dbus() {
    local d=$LAN_DIR/$1
    cat >"$d/dbus.conf" <<X
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=$d/bus</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
</policy></busconfig>
X
    cat >"$d/avahi.conf" <<X
[server]
host-name=mac$1
use-ipv4=yes
use-ipv6=yes
allow-interfaces=${LAN_MDNS_IFS:-eth0}
enable-dbus=yes
ratelimit-interval-usec=0
[publish]
publish-hinfo=no
publish-workstation=no
[rlimits]
X
    rm -f "$d/bus"
    ip netns exec "$LAN$1" env -i PATH="$PATH" dbus-daemon --config-file="$d/dbus.conf" --fork --print-pid >"$d/dbus.pid"
}

lan_mdns() {
    local i
    for i; do
        lan_dbus "$i" || return 1
        lan_mdns_start "$i" || return 1
    done
}

lan_origin() {
    local i=$1 dir=$2 port=${3:-8000} d=$LAN_DIR/$1/nginx
    mkdir -p "$d"
    cat >"$d/nginx.conf" <<X
pid $d/pid; error_log $d/error.log warn; worker_processes 1; user root; daemon on;
events { worker_connections 1024; }
http {
    access_log off; types { } default_type application/octet-stream; sendfile on; tcp_nopush on;
    log_format b '\$remote_addr \$request_method \$uri \$http_range \$status \$body_bytes_sent \$request_time';
    keepalive_timeout 60;
    client_body_temp_path $d/b; proxy_temp_path $d/p; fastcgi_temp_path $d/f; uwsgi_temp_path $d/u;
    scgi_temp_path $d/s;
    server {
        listen $port; listen [::]:$port; root $dir; autoindex off; access_log $d/access.log b;
        location / { max_ranges 64; }
    }
}
X
    : >"$d/access.log"
    ip netns exec "$LAN$i" nginx -c "$d/nginx.conf" || return 1
    echo "http://$(lan_addr "$i"):$port"
}

lan_origin_stop() {
    local p
    p=$(cat "$LAN_DIR/$1/nginx/pid" 2>/dev/null) && kill "$p"
}

lan_origin_bytes() { awk '{s += $(NF-1)} END {print s + 0}' "$LAN_DIR/$1/nginx/access.log"; }

lan_unit() {
    awk -v x="$1" 'BEGIN {
        n = x + 0; u = x; sub(/^[0-9.]+/, "", u)
        f["kbit"] = 125; f["mbit"] = 125e3; f["gbit"] = 125e6; f["us"] = 1e-6; f["ms"] = 1e-3; f["s"] = 1; f["%"] = .01
        if (!(u in f)) exit 1
        printf "%.9g", n * f[u] }'
}

lan_shape() {
    local i=$1 a v
    shift
    for a; do
        v=$(lan_unit "${a#*=}") || { echo "lan_shape: unit of $a?" >&2; return 2; }
        case $a in
        rate=* | delay=* | jitter=* | loss=*) lan_ctl set "$i" "${a%%=*}" "$v" ;;
        *) echo "lan_shape: what is $a?" >&2; return 2 ;;
        esac
    done
}

lan_unshape() {
    local k
    for k in rate delay jitter loss; do lan_ctl set "$1" $k 0; done
}

lan_cut() { lan_ctl set "$1" up 0; }
lan_heal() { lan_ctl set "$1" up 1; }
lan_split() {
    local i
    for i; do lan_ctl set "$i" group 1; done
}
lan_join() {
    local i
    for i; do lan_ctl set "$i" group 0; done
}
lan_block() { lan_ctl block "$1" "$2" 1; }
lan_unblock() { lan_ctl block "$1" "$2" 0; }
lan_mcast_off() { lan_ctl set "$1" mcast 0; }
lan_mcast_on() { lan_ctl set "$1" mcast 1; }
lan_zero() { lan_ctl zero; }

lan_stats() {
    local k=0
    rm -f "$LAN_DIR/stats"
    lan_ctl stats "$LAN_DIR/stats"
    until [ -e "$LAN_DIR/stats" ]; do
        k=$((k + 1))
        [ $k -lt 100 ] || return 1
        sleep .02
    done
    cat "$LAN_DIR/stats"
}

lan_bytes() {
    lan_stats | awk -v i="$1" '$1 != "dropped" { if ($2 == i) r += $3; if ($1 == i) t += $3 }
        END { printf "%d %d\n", r, t }'
}

lan_pair_bytes() { lan_stats | awk -v a="$1" -v b="$2" '$1 == a && $2 == b { print $3 }'; }

lan_readdr() {
    ip -n "$LAN$1" addr del "$(lan_addr "$1")/24" dev eth0
    ip -n "$LAN$1" addr add "10.77.0.$2/24" dev eth0 && echo "10.77.0.$2" >"$LAN_DIR/$1/addr"
}

lan_wire() {
    local i
    ip link add "$3" netns "$LAN$1" type veth peer name "$3" netns "$LAN$2" || return 1
    for i in "$1" "$2"; do
        ip -n "$LAN$i" addr add "10.$4.0.$i/24" brd + dev "$3"
        ip -n "$LAN$i" link set "$3" up || return 1
    done
}

lan_pids() {
    local p
    for p in $(ip netns pids "$LAN$1"); do
        [ "$(cat "/proc/$p/comm" 2>/dev/null)" != "$2" ] || echo "$p"
    done
}

lan_signal() {
    local p
    for p in $(ip netns pids "$LAN$1"); do kill "-$2" "$p" 2>/dev/null; done
    true
}

lan_sleep() {
    lan_signal "$1" STOP
    lan_cut "$1"
}
lan_wake() {
    lan_heal "$1"
    lan_signal "$1" CONT
}
lan_kill() { lan_signal "$1" KILL; }

lan_down() {
    local i n k
    n=$(cat "$LAN_DIR/n" 2>/dev/null || echo "$LAN_N")
    for ((i = 1; i <= n; i++)); do
        [ -e "/run/netns/$LAN$i" ] || continue
        lan_signal "$i" CONT
        lan_signal "$i" TERM
    done
    sleep .3
    for ((i = 1; i <= n; i++)); do
        [ -e "/run/netns/$LAN$i" ] || continue
        lan_signal "$i" KILL
        for ((k = 0; k < 50; k++)); do
            [ -n "$(ip netns pids "$LAN$i")" ] || break
            sleep .02
        done
        ip netns del "$LAN$i"
    done
    [ ! -e "/run/netns/${LAN}b" ] || ip netns del "${LAN}b"
    i=$(cat "$LAN_DIR/switch.pid" 2>/dev/null) && [ "$(cat "/proc/$i/comm" 2>/dev/null)" = lanswitch ] && kill "$i"
    rm -f "$LAN_DIR/n" "$LAN_DIR/switch.pid"
    true
}
