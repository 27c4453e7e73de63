// Package lab_test runs the laboratory's machines for themselves: the three
// kernels without a card, reboot, reset and kill, and devices that are no GPU.
package lab_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/vfiouser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ctx bounds what a test waits for in a guest.
func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

// Each kernel comes up, says who it is, keeps a log with levels, and powers
// off.
func TestKernels(t *testing.T) {
	for _, version := range lab.Kernels {
		t.Run(version, func(t *testing.T) {
			vm := labtest.Start(t, lab.Config{Kernel: version})
			ready, err := vm.Agent().Ready(ctx(t), 1)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(ready.Kernel, version+"."), ready.Kernel)
			require.Equal(t, ready.Kernel, vm.Kernel())
			t.Logf("Linux %s, QEMU %s, %s (%s): up after %.1f s, %.1f s by its own clock", ready.Kernel, vm.QEMUVersion(),
				vm.Accel().Name, vm.Accel().Reason, time.Since(vm.Began()).Seconds(), ready.Uptime)

			log, err := vm.KernelLog(ctx(t))
			require.NoError(t, err)
			require.NotEmpty(t, log)
			require.Contains(t, log[0].Text, "Linux version "+ready.Kernel)
			require.Equal(t, lab.LevelNotice, log[0].Level)
			// The console has the same lines, without levels.
			require.Contains(t, vm.ConsoleLog()[0].Text, "Linux version "+ready.Kernel)

			// The whole chain of modules loads, without a card for the last one.
			require.NoError(t, vm.Agent().Call(ctx(t), proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil))
			warnings, err := vm.Warnings(ctx(t), "nouveau")
			require.NoError(t, err)
			require.Empty(t, warnings)

			require.NoError(t, vm.Poweroff(ctx(t)))
		})
	}
}

// A guest comes back from a reboot and from a reset, and a kill ends it.
func TestRebootResetKill(t *testing.T) {
	dir := t.TempDir()
	vm := labtest.Start(t, lab.Config{Reboot: true, CPUs: 1, Memory: 512, Dir: dir, Append: []string{"umbra.test=1"}})
	require.NoError(t, vm.Reboot(ctx(t)))
	require.NoError(t, vm.Reset(ctx(t)))
	require.Equal(t, 3, vm.Agent().Boots())
	require.NoError(t, vm.Agent().Call(ctx(t), proto.CmdPing, nil, nil))
	_, _, err := vm.WaitMonitorEvent(ctx(t), "RESET", 0)
	require.NoError(t, err)
	var status struct{ Status string }
	require.NoError(t, vm.Monitor(ctx(t), "query-status", nil, &status))
	require.Equal(t, "running", status.Status)
	boots := 0
	for _, l := range vm.ConsoleLog() {
		if strings.Contains(l.Text, "Command line: ") && strings.Contains(l.Text, "umbra.test=1") {
			boots++
		}
	}
	require.Equal(t, 3, boots, "kernel lines of each boot are on the console")

	pid := vm.PID()
	vm.Kill()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process is gone and reaped")
	require.ErrorContains(t, vm.Wait(ctx(t)), "killed")
	require.ErrorContains(t, vm.Agent().Call(ctx(t), proto.CmdPing, nil, nil), "ended")
	require.NoError(t, vm.Close())
	require.NoError(t, vm.Close(), "twice is once")
	for _, name := range []string{"console.log", "qemu.log", "command"} {
		require.FileExists(t, filepath.Join(dir, name), "kept, because Dir was set")
	}
}

// The end of the context ends the machine.
func TestContextEndsMachine(t *testing.T) {
	labtest.Need(t)
	c, cancel := context.WithCancel(t.Context())
	vm, err := lab.Start(c, lab.Config{NoWait: true, CPUs: 1, Memory: 256, Accel: lab.AccelTCG})
	require.NoError(t, err)
	cancel()
	select {
	case <-vm.Done():
	case <-time.After(time.Minute):
		t.Fatal("QEMU still runs")
	}
	dir := vm.Dir()
	require.DirExists(t, dir)
	require.NoError(t, vm.Close())
	require.NoDirExists(t, dir)
}

// What QEMU has against its arguments reaches the caller.
func TestBadArgument(t *testing.T) {
	labtest.Need(t)
	_, err := lab.Start(t.Context(), lab.Config{QEMUArgs: []string{"-device", "no-such-device"}, Accel: lab.AccelTCG})
	require.ErrorContains(t, err, "no-such-device")
	_, err = lab.Start(t.Context(), lab.Config{BootTimeout: 200 * time.Millisecond, Accel: lab.AccelTCG})
	require.ErrorContains(t, err, "its console has said nothing for 200ms")
	require.ErrorContains(t, err, "qemu-system", "the report has the command")
}

// QEMU dies with the process that started it, however that ends. The test
// starts itself again as that process.
func TestNoOrphans(t *testing.T) {
	if os.Getenv("UMBRA_LAB_ORPHAN") != "" {
		vm, err := lab.Start(context.Background(), lab.Config{NoWait: true, CPUs: 1, Memory: 256, Accel: lab.AccelTCG, Dir: os.Getenv("UMBRA_LAB_ORPHAN")})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(vm.Dir(), "pid"), []byte(strconv.Itoa(vm.PID())), 0o644))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	labtest.Need(t)
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := os.StartProcess(self, []string{self, "-test.run=^TestNoOrphans$"}, &os.ProcAttr{
		Env: append(os.Environ(), "UMBRA_LAB_ORPHAN="+dir, "TMPDIR="+dir),
	})
	require.NoError(t, err)
	_, err = p.Wait()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(data))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, time.Minute, 20*time.Millisecond)
}

// gone says whether a process has ended; one that nobody has reaped yet counts.
func gone(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// card is the least that is a PCI function: a configuration space that keeps
// what may be written, and 4 KiB of memory behind BAR0.
type card struct {
	mu     sync.Mutex
	config [256]byte
	mem    [4096]byte
}

const barSize = 4096

func newCard(vendor, device uint16) *card {
	c := new(card)
	binary.LittleEndian.PutUint16(c.config[0x00:], vendor)
	binary.LittleEndian.PutUint16(c.config[0x02:], device)
	c.config[0x0b] = 0xff // class: none of the defined ones
	return c
}

func (c *card) Regions() []vfiouser.Region {
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	rw := vfiouser.RegionRead | vfiouser.RegionWrite
	r[vfiouser.RegionBAR0] = vfiouser.Region{Size: barSize, Flags: rw}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: 256, Flags: rw}
	return r
}

func (c *card) IRQs() []vfiouser.IRQ { return make([]vfiouser.IRQ, vfiouser.NumIRQs) }

func (c *card) ReadRegion(index int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index == vfiouser.RegionConfig {
		copy(p, c.config[off:])
		return nil
	}
	copy(p, c.mem[off:])
	return nil
}

func (c *card) WriteRegion(index int, off uint64, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case index == vfiouser.RegionBAR0:
		copy(c.mem[off:], p)
	case off == 0x04: // command
		copy(c.config[4:6], p)
	case off == 0x10 && len(p) == 4:
		binary.LittleEndian.PutUint32(c.config[0x10:], binary.LittleEndian.Uint32(p)&^(barSize-1))
	}
	return nil
}

func (c *card) Reset() error              { return nil }
func (c *card) Attached(h *vfiouser.Host) {}
func (c *card) Detached()                 {}

// serve serves a card until the test ends.
func serve(t *testing.T, c *card, path string) {
	s, err := vfiouser.NewServer(c, vfiouser.Options{})
	require.NoError(t, err)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(context.Background(), l)
	}()
	t.Cleanup(func() { s.Close(); <-done })
}

// Devices on sockets are PCI functions of the guest, one for each.
func TestDevices(t *testing.T) {
	dir, err := os.MkdirTemp("", "umbra-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	sockets := []string{filepath.Join(dir, "0.sock"), filepath.Join(dir, "1.sock")}
	serve(t, newCard(0x10de, 0x0001), sockets[0])
	serve(t, newCard(0x10de, 0x0002), sockets[1])
	vm := labtest.Start(t, lab.Config{Sockets: sockets})
	var pci proto.PCIResult
	require.NoError(t, vm.Agent().Call(ctx(t), proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci))
	require.Len(t, pci.Functions, 2)
	var devices []uint16
	for _, f := range pci.Functions {
		devices = append(devices, f.Device)
		require.Len(t, f.BARs, 1)
		require.EqualValues(t, barSize, f.BARs[0].Size)
	}
	require.ElementsMatch(t, []uint16{1, 2}, devices)
	for _, s := range sockets {
		require.Contains(t, vm.Command(), s)
	}
}
