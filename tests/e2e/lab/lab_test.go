// Package lab_test runs machines of package lab without a GPU.
package lab_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/vfiouser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline ends what hangs.
const deadline = 4 * time.Minute

// TestMachine uses one machine with two devices: the guest finds both, also after a reboot
// and a reset, and a kill ends it.
func TestMachine(t *testing.T) {
	scale.ReleaseOnly(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*deadline)
	defer cancel()
	var sockets []string
	for device := range uint16(2) {
		sockets = append(sockets, serve(t, newDevice(0x10de, 1+device)))
	}
	dir := t.TempDir()
	vm := labtest.Start(t, lab.Config{Sockets: sockets, Reboot: true, CPUs: 1, Memory: 512, Dir: dir})
	var pci proto.PCIResult
	require.NoError(t, vm.Agent().Call(ctx, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci))
	require.Len(t, pci.Functions, 2)
	require.ElementsMatch(t, []uint16{1, 2}, []uint16{pci.Functions[0].Device, pci.Functions[1].Device})
	require.EqualValues(t, barSize, pci.Functions[0].BARs[0].Size)
	log, err := vm.KernelLog(ctx)
	require.NoError(t, err)
	require.Contains(t, log[0].Text, "Linux version "+vm.Kernel())
	require.Equal(t, lab.LevelNotice, log[0].Level)

	require.NoError(t, vm.Reboot(ctx))
	require.NoError(t, vm.Reset(ctx))
	require.Equal(t, 3, vm.Agent().Boots())
	boots := 0
	for _, l := range vm.Console() {
		if strings.Contains(l.Text, "Linux version ") {
			boots++
		}
	}
	require.Equal(t, 3, boots, "the console has the lines of each boot")

	pid := vm.PID()
	vm.Kill()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process was reaped")
	require.ErrorContains(t, vm.Wait(ctx), "killed")
	require.ErrorContains(t, vm.Agent().Call(ctx, proto.CmdPing, nil, nil), "ended")
	for range 2 {
		require.NoError(t, vm.Close())
	}
	for _, name := range []string{"console.log", "qemu.log", "command"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
}

// The end of the context ends the machine.
func TestContextEndsMachine(t *testing.T) {
	labtest.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	vm, err := lab.Start(ctx, lab.Config{NoWait: true, CPUs: 1, Memory: 256, Accel: lab.AccelTCG})
	require.NoError(t, err)
	cancel()
	select {
	case <-vm.Done():
	case <-time.After(deadline):
		t.Fatal("QEMU still runs")
	}
	dir := vm.Dir()
	require.NoError(t, vm.Close())
	require.NoDirExists(t, dir)
}

// A machine that does not start, or whose guest hangs, is a clear error.
func TestStartFails(t *testing.T) {
	labtest.Need(t)
	_, err := lab.Start(t.Context(), lab.Config{QEMUArgs: []string{"-device", "no-such-device"}, Accel: lab.AccelTCG})
	require.ErrorContains(t, err, "no-such-device")
	_, err = lab.Start(t.Context(), lab.Config{BootTimeout: time.Millisecond, Accel: lab.AccelTCG})
	require.ErrorContains(t, err, "the console was silent for 1ms")
	require.ErrorContains(t, err, "qemu-system", "the error has the command")
}

// QEMU dies with the process that started it, however that ends. The test runs itself
// as that process.
func TestNoOrphans(t *testing.T) {
	const env = "UMBRA_LAB_ORPHAN"
	if dir := os.Getenv(env); dir != "" {
		vm, err := lab.Start(context.Background(), lab.Config{NoWait: true, CPUs: 1, Memory: 256, Accel: lab.AccelTCG, Dir: dir})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(vm.PID())), 0o644))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	labtest.Need(t)
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := os.StartProcess(self, []string{self, "-test.run=^TestNoOrphans$"}, &os.ProcAttr{Env: append(os.Environ(), env+"="+dir, "TMPDIR="+dir)})
	require.NoError(t, err)
	_, err = p.Wait()
	require.NoError(t, err)
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		return err != nil || strings.HasPrefix(state, "Z") // it may be a zombie still
	}, deadline, 20*time.Millisecond)
}

// device is a minimal PCI function: a configuration space, and a BAR0 of 4 KiB.
type device struct{ config, mem []byte }

const barSize = 4096

func newDevice(vendor, id uint16) *device {
	d := &device{make([]byte, 256), make([]byte, barSize)}
	binary.LittleEndian.PutUint16(d.config[0x00:], vendor)
	binary.LittleEndian.PutUint16(d.config[0x02:], id)
	d.config[0x0b] = 0xff // class: none
	return d
}

func (d *device) Regions() []vfiouser.Region {
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	r[vfiouser.RegionBAR0] = vfiouser.Region{Size: barSize, Flags: vfiouser.RegionRead | vfiouser.RegionWrite}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: 256, Flags: vfiouser.RegionRead | vfiouser.RegionWrite}
	return r
}

func (d *device) IRQs() []vfiouser.IRQ { return make([]vfiouser.IRQ, vfiouser.NumIRQs) }

func (d *device) ReadRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionConfig {
		copy(p, d.config[off:])
	} else {
		copy(p, d.mem[off:])
	}
	return nil
}

func (d *device) WriteRegion(index int, off uint64, p []byte) error {
	switch {
	case index == vfiouser.RegionBAR0:
		copy(d.mem[off:], p)
	case off == 0x04: // command
		copy(d.config[4:6], p)
	case off == 0x10 && len(p) == 4:
		binary.LittleEndian.PutUint32(d.config[0x10:], binary.LittleEndian.Uint32(p)&^(barSize-1))
	}
	return nil
}

func (d *device) Reset() error            { return nil }
func (d *device) Attached(*vfiouser.Host) {}
func (d *device) Detached()               {}

// serve serves a device until the test ends, and returns its socket.
func serve(t *testing.T, d *device) string {
	dir, err := os.MkdirTemp("", "umbra-") // t.TempDir is too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	s, err := vfiouser.NewServer(d, vfiouser.Options{})
	require.NoError(t, err)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(context.Background(), l)
	}()
	t.Cleanup(func() { s.Close(); <-done })
	return path
}
