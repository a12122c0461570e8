package packaging_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
)

// boot starts systemd as process 1 of its own namespaces, on a copy of this machine's
// files that is kept in memory: $1 is a folder for mounts, $2 the cgroup to live in, $3 a
// folder that is seen there as /given. The kernel's settings and devices are read-only there, and units that would touch
// them are masked.
const boot = `set -e
t=$1 root=$1/root
echo $$ > "$2/cgroup.procs"
exec unshare --pid --mount --uts --ipc --net --cgroup --fork --kill-child bash -ec '
t=$0 root=$0/root given=$1
mount --make-rprivate /
mkdir -p $t && mount -t tmpfs tmpfs $t && mkdir $t/up $t/work $root
mount -t overlay overlay -o lowerdir=/,upperdir=$t/up,workdir=$t/work $root
mount -t proc proc $root/proc
mount --bind $root/proc/sys $root/proc/sys && mount -o remount,bind,ro $root/proc/sys
mount -t sysfs -o ro sysfs $root/sys && mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
for d in run tmp dev; do mount -t tmpfs tmpfs $root/$d; done
chmod 755 $root/run $root/dev; chmod 1777 $root/tmp
for d in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 $root/dev/${d%:*} c 1 ${d#*:}; done
mknod -m 666 $root/dev/tty c 5 0
mkdir $root/dev/pts $root/dev/shm $root/given && mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx; ln -s /proc/self/fd $root/dev/fd
mount --bind $given $root/given
cd $root/etc/systemd/system && rm -rf *.wants *.requires
for u in systemd-sysctl systemd-modules-load systemd-remount-fs systemd-udevd systemd-logind systemd-random-seed; do ln -sf /dev/null $u.service; done
printf "[Unit]\nAfter=basic.target\nRequires=basic.target systemd-journald.service\n" > units-test.target
cp -r $given/files/. $root/
mkdir $root/old && cd $root && pivot_root . old && umount -l old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=units-test.target
' "$t" "$3"
`

// machine is a machine with systemd, in namespaces.
type machine struct {
	t   *testing.T
	pid string // of its process 1, as this machine counts
}

// newMachine boots one with the package's files; the test is skipped where that cannot be.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make namespaces with devices")
	}
	for _, name := range []string{"systemctl", "unshare", "nsenter", "pivot_root", "dbus-daemon", "runuser"} {
		need(t, name)
	}
	mounts := command(t, "", "findmnt", "-n", "-o", "TARGET", "-t", "cgroup2")
	group := filepath.Join(strings.Fields(mounts)[0], "wattmark-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no cgroup of its own: %v", err)
	}
	given := t.TempDir()
	files := filepath.Join(given, "files")
	command(t, "..", "go", "build", "-o", filepath.Join(files, "usr/bin/wattmark"), "./cmd/wattmark")
	for _, service := range services {
		put(t, "systemd/wattmark-"+service+".service", filepath.Join(files, "usr/lib/systemd/system/wattmark-"+service+".service"), 0o644)
		put(t, "config/"+service+".yaml", filepath.Join(files, "etc/wattmark/"+service+".yaml"), 0o644)
	}
	put(t, "sysusers/wattmark.conf", filepath.Join(files, "usr/lib/sysusers.d/wattmark.conf"), 0o644)
	c := exec.Command("bash", "-c", boot, "boot", filepath.Join(t.TempDir(), "machine"), group, given)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // unshare takes process 1 along, and that all others
		_ = c.Wait()
		removeGroup(group)
	})
	m := &machine{t: t}
	children := "/proc/" + strconv.Itoa(c.Process.Pid) + "/task/" + strconv.Itoa(c.Process.Pid) + "/children"
	m.until("systemd runs", func() bool {
		b, err := os.ReadFile(children)
		if err != nil || c.ProcessState != nil {
			t.Skipf("systemd cannot be started here: %v\n%s", err, &said)
		}
		m.pid = strings.TrimSpace(string(b))
		if m.pid == "" {
			return false
		}
		out, _ := m.try("systemctl is-system-running")
		return strings.Contains(out, "running") || strings.Contains(out, "degraded")
	})
	return m
}

// removeGroup removes a cgroup and those below it, once the kernel lets go of them.
func removeGroup(group string) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		var dirs []string
		_ = filepath.WalkDir(group, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, d := range dirs {
			_ = os.Remove(d)
		}
		if _, err := os.Stat(group); err != nil {
			return
		}
	}
}

// sub is a part of the test on the same machine.
func (m *machine) sub(name string, f func(*machine)) {
	m.t.Run(name, func(t *testing.T) { f(&machine{t, m.pid}) })
}

// try runs a command line on the machine.
func (m *machine) try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "nsenter", "-t", m.pid, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "bash", "-c", line)
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must runs a command line that has to succeed.
func (m *machine) must(line string) string {
	m.t.Helper()
	out, err := m.try(line)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s\n%s", line, err, out, m.journal())
	}
	return out
}

func (m *machine) journal() string {
	out, _ := m.try("journalctl --no-pager -q -n 60 -u 'wattmark-*' -u emulator")
	return out
}

// until waits for a condition.
func (m *machine) until(what string, holds func() bool) {
	m.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(3 * time.Minute); !holds(); <-again.C {
		if time.Now().After(end) {
			m.t.Fatalf("not within three minutes: %s\n%s", what, m.journal())
		}
	}
}

// property is one of a unit's.
func (m *machine) property(unit, name string) string {
	return m.must("systemctl show -P " + name + " " + unit)
}

const emulator = `cat > /run/systemd/system/emulator.service <<U
[Service]
User=wattmark
RuntimeDirectory=emulator
ExecStart=/usr/bin/wattmark emulate powersensor3 --link /run/emulator/meter --gpu /run/emulator/gpu
ExecStartPost=/bin/bash -c "until test -S /run/emulator/gpu -a -e /run/emulator/meter; do sleep 0.1; done; chmod 666 /run/emulator/gpu"
U
printf 'instruments:\n  - {kind: powersensor3, port: /run/emulator/meter}\n' > /etc/wattmark/bench.yaml
echo 'recover_every: 1s' >> /etc/wattmark/host.yaml
for s in monitor host; do mkdir /run/systemd/system/wattmark-$s.service.d; printf '[Service]\nWatchdogSec=3s\nRestartSec=100ms\n' > /run/systemd/system/wattmark-$s.service.d/soon.conf; done
ip link set lo up || true
systemd-sysusers /usr/lib/sysusers.d/wattmark.conf
useradd -M -G wattmark ada
useradd -M eve
systemctl daemon-reload
systemctl start emulator wattmark-monitor wattmark-host`

// run is how ada measures on the machine.
const run = `cd /tmp && runuser -u ada -- wattmark run --monitor 127.0.0.1:7551 --gpu sim:/run/emulator/gpu --db /var/lib/wattmark/power.db --benchmark half`

// The units keep their word under systemd itself: all services start in their
// sandbox, a member of the group measures, nobody's task is ended while it runs, a stop
// waits for the capture, and a service that hangs or crashes is started again.
func TestUnitsUnderSystemd(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("it boots a machine")
	}
	m := newMachine(t)
	m.must(emulator)
	if out, err := m.try("systemd-analyze verify /usr/lib/systemd/system/wattmark-*.service 2>&1 | grep wattmark"); err == nil {
		t.Error(out)
	}

	m.sub("a member of the group measures", func(m *machine) {
		if out := m.must(run + " --name one --duration 300ms"); !strings.Contains(out, "complete") {
			m.t.Error(out)
		}
		m.must("runuser -u ada -- test -w /run/wattmark/host.sock")
		if out, err := m.try("runuser -u eve -- test -e /run/wattmark/host.sock"); err == nil {
			m.t.Errorf("a stranger finds the socket: %s", out)
		}
		if out, err := m.try("runuser -u eve -- cat /var/lib/wattmark/power.db > /dev/null"); err == nil {
			m.t.Errorf("a stranger reads the database: %s", out)
		}
	})
	m.sub("a meter of any driver may be opened, also one that was plugged in later", func(m *machine) {
		for name, number := range map[string]string{"ttyACM0": "166 0", "ttyUSB0": "188 0", "usbtmc0": "180 176", "usb": "189 0", "nvidiactl": "195 255"} {
			out, _ := m.try("mknod /dev/" + name + " c " + number + "; echo $$ > /sys/fs/cgroup$(systemctl show -P ControlGroup wattmark-monitor)/cgroup.procs; : < /dev/" + name)
			if strings.Contains(out, "not permitted") || !strings.Contains(out, name) {
				m.t.Error(out) // there is no such device: that it may be opened is all
			}
		}
		if out, _ := m.try("mknod /dev/loop7 b 7 7; echo $$ > /sys/fs/cgroup$(systemctl show -P ControlGroup wattmark-monitor)/cgroup.procs; : < /dev/loop7"); !strings.Contains(out, "not permitted") {
			m.t.Errorf("a disk may be opened: %s", out)
		}
	})
	m.sub("a reload and a stop leave the capture alone", func(m *machine) {
		out := m.must("(" + strings.Replace(run, "wattmark run", "timeout -s QUIT 90 wattmark run", 1) + ` --name two --duration 4s) & p=$!
until journalctl -q -u wattmark-monitor | grep -q 'capture started.*task=two'; do sleep 0.1; done
systemctl reload wattmark-monitor && sleep 1.5 && systemctl stop wattmark-monitor && wait $p`)
		if !strings.Contains(out, "two, by ada: complete") {
			m.t.Error(out)
		}
		if got := m.property("wattmark-monitor", "Result"); got != "success" {
			m.t.Errorf("the monitor's stop: %s", got)
		}
		m.must("systemctl start wattmark-monitor")
	})
	m.sub("a task goes through the cluster into a store", func(m *machine) {
		m.must("systemctl start wattmark-cluster wattmark-store wattmark-relay")
		m.until("the store has the first task", func() bool {
			out, _ := m.try("runuser -u wattmark -- wattmark tasks --db /var/lib/wattmark-store/power.db")
			return strings.Contains(out, "one")
		})
		m.must("systemctl stop wattmark-relay wattmark-store wattmark-cluster")
		for _, service := range []string{"relay", "store", "cluster"} {
			if got := m.property("wattmark-"+service, "Result"); got != "success" {
				m.t.Errorf("%s's stop: %s", service, got)
			}
		}
	})
	for _, service := range []string{"wattmark-monitor", "wattmark-host"} {
		m.sub(service+" hangs, and crashes", func(m *machine) {
			for n, signal := range []string{"STOP", "ABRT", "SEGV", "KILL"} {
				pid := m.property(service, "MainPID")
				if pid == "0" {
					m.t.Fatalf("%s does not run", service) // the signal would go to the shell that sends it
				}
				m.must("kill -" + signal + " " + pid)
				m.until(service+" runs again after SIG"+signal, func() bool {
					return m.property(service, "NRestarts") == strconv.Itoa(n+1) && m.property(service, "ActiveState") == "active"
				})
			}
		})
	}
	m.sub("a fault in the configuration is not tried again", func(m *machine) {
		if out, err := m.try("echo 'nonsense: 1' >> /etc/wattmark/host.yaml; systemctl restart wattmark-host"); err == nil {
			m.t.Error(out)
		}
		if s, n := m.property("wattmark-host", "ActiveState"), m.property("wattmark-host", "NRestarts"); s != "failed" || n != "0" {
			m.t.Errorf("%s after %s restarts", s, n)
		}
	})
}
