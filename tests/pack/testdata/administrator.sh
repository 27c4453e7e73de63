# What an administrator does with the package on a Debian whose init is systemd. The first thing that fails ends it.
set -eux

trap 'journalctl -n 60 -o cat --no-pager' EXIT

# soon COMMAND PATTERN waits until the output of a command has the pattern.
soon() {
	{ set +x; } 2>/tmp/none
	tries=0
	until sh -c "$1" 2>&1 | grep -q -- "$2"; do
		tries=$((tries + 1))
		[ $tries -lt 120 ] || { sh -c "$1"; exit 1; }
		sleep 1
	done
	set -x
}
refused() { if "$@"; then exit 1; fi; }
user() { setpriv --reuid ann --regid ann --groups "$1" sh -c "$2"; }
shows() { systemctl show -P "$1" umbra.service; }
# guest NAME attaches a QEMU of ann's, with the arguments that umbra prints.
guest() {
	eval "set -- $1 $(umbra gpu attach "$1" | sed s/2G/128M/)"
	name=$1
	shift
	systemd-run -q --collect --unit "guest-$name" -p User=ann -p SupplementaryGroups=kvm -p WorkingDirectory=/opt/qemu \
		./usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path ./usr/lib/x86_64-linux-gnu ./usr/bin/qemu-system-x86_64 \
		-L ./usr/share/qemu -L ./usr/share/seabios -nodefaults -display none "$@"
}

: install
dpkg -i /umbra.deb
id -Gn umbra
systemd-analyze verify --man=no umbra.service umbra-control.socket umbra-gpu@desk.socket 2>&1 | tee /tmp/verify
refused grep umbra /tmp/verify
systemd-analyze security --no-pager umbra.service | tail -1

: start
systemctl enable --now umbra.service
systemctl is-active umbra.service
[ "$(shows Type) $(shows StatusText)" = "notify 1 GPU, 0 clients attached" ]
umbra status
refused user ann 'umbra vfio-user probe /run/umbra/desk.sock'
user kvm 'umbra vfio-user probe --timeout 2m /run/umbra/desk.sock' | head -3

: numbers for Prometheus, which the unit permits as docs/operating.md says
mkdir -p /etc/systemd/system/umbra.service.d
printf '[Service]\nPrivateNetwork=no\nRestrictAddressFamilies=AF_UNIX AF_INET\n' >/etc/systemd/system/umbra.service.d/metrics.conf
sed -i 's/^# metrics:/metrics:/' /etc/umbra/umbra.yaml
systemctl daemon-reload
systemctl restart umbra.service
{
	printf 'global: {scrape_interval: 1s}\nrule_files: [/usr/share/umbra/prometheus/umbra.rules.yml]\n'
	cat /usr/share/umbra/prometheus/umbra.scrape.yml
} >/tmp/prometheus.yml
systemd-run -q --unit prometheus /usr/bin/prometheus --config.file /tmp/prometheus.yml --storage.tsdb.path /tmp/prometheus

: two guests and a weight
umbra gpu add name=lap vram=128MiB socket=/run/umbra/lap.sock
guest desk
guest lap
soon 'umbra gpu list' 'desk .*iB *[0-9]'
soon 'umbra gpu list' 'lap .*iB *[0-9]'
umbra gpu set lap weight=300
soon 'systemctl show -P StatusText umbra.service' '2 GPUs, 2 clients attached'
ask='promtool query instant http://127.0.0.1:9090'
soon "$ask 'umbra_gpu_weight{gpu=\"lap\"}'" '=> 300 '
soon "$ask 'sum(umbra_gpu_attached)'" '=> 2 '
umbra top --looks 1

: a changed file
printf '  - {name: new, socket: /run/umbra/new.sock, vram: 64MiB}\n' >/tmp/new
sed -i '/name: desk/r /tmp/new' /etc/umbra/umbra.yaml
systemctl reload umbra.service
soon 'umbra gpu list' '^ *new '

: killed
systemctl kill -s KILL umbra.service
soon 'systemctl show -P NRestarts umbra.service' 1
soon 'systemctl is-active umbra.service' '^active'
systemctl stop guest-desk guest-lap || true
guest desk
soon 'umbra gpu list' 'desk .*iB *[0-9]'

: hung
systemctl kill -s STOP umbra.service
soon 'systemctl show -P NRestarts umbra.service' 2
soon 'systemctl is-active umbra.service' '^active'
systemctl stop guest-desk || true

: sockets of systemd
systemctl stop umbra.service
systemctl reset-failed umbra.service || true # many starts within a minute
systemctl start umbra-control.socket umbra-gpu@desk.socket
user kvm 'umbra vfio-user probe --timeout 2m /run/umbra/desk.sock' | head -3
systemctl is-active umbra.service
systemctl restart umbra.service
umbra status

: end
systemctl stop umbra-control.socket umbra-gpu@desk.socket umbra.service
[ "$(shows Result)" = success ]
[ "$(ls -A /run/umbra)" = lap.sock ] # of the killed server: no configuration names it
systemctl reset-failed umbra.service || true # many starts within a minute
systemctl enable --now umbra-gpu@desk.socket
systemctl start umbra.service
dpkg -r umbra
refused systemctl is-active umbra.service umbra-gpu@desk.socket
[ "$(shows LoadState)" = not-found ]
[ "$(echo /etc/systemd/system/*.wants/umbra*)" = '/etc/systemd/system/*.wants/umbra*' ]
refused grep -q "^Uid:.$(id -u umbra)" /proc/[0-9]*/status
: all done
